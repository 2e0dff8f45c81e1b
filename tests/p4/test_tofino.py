"""The program for a Tofino: that it compiles, where a compiler is at hand; and the script that a policy becomes.

No TNA compiler is in any registry. With `bf-p4c` on PATH, or a `p4c` that knows the target, the program is compiled.
With `p4test` and the architecture's include files (`DLCP_TNA_INCLUDE`, or beside p4c) it is only type-checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcp.cli import main
from dlcp.switch.policy import Policy, Port, Thresholds, TrafficClass
from dlcp.switch.starting_policy import starting_policy
from dlcp.switch.tofino import (
    CELL_BYTES,
    CRITICAL_LEVEL,
    PATH_ACTIONS,
    RED,
    YELLOW,
    TofinoError,
    colour_queue,
    mark_ranges,
    render_tofino,
)


def compilers() -> Iterator[list[str]]:
    """Commands that compile TNA, of those on PATH."""
    if (found := shutil.which("bf-p4c")) is not None:
        yield [found, "--std", "p4-16", "--target", "tofino", "--arch", "tna"]
    if (found := shutil.which("p4c")) is not None:
        told = subprocess.run([found, "--target-help"], capture_output=True, text=True, check=False)
        if re.search(r"\btofino\b", told.stdout):
            yield [found, "--std", "p4-16", "--target", "tofino", "--arch", "tna"]


def test_program_compiles(repository: Path, tmp_path: Path) -> None:
    command = next(compilers(), None)
    if command is None:
        pytest.skip("neither bf-p4c nor a p4c with target tofino on PATH")
    done = subprocess.run(
        [*command, "-o", str(tmp_path), "tofino.p4"],
        cwd=repository / "p4",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def tna_include() -> Path | None:
    """The folder that has tna.p4."""
    if folder := os.environ.get("DLCP_TNA_INCLUDE"):
        return Path(folder)
    p4test = shutil.which("p4test")
    beside = Path(p4test).resolve().parent.parent / "share" / "p4c" / "p4include" if p4test else None
    return beside if beside is not None and (beside / "tna.p4").is_file() else None


@pytest.mark.parametrize("tofino", [1, 2])
def test_program_type_checks(repository: Path, tofino: int) -> None:
    p4test, include = shutil.which("p4test"), tna_include()
    if p4test is None:
        pytest.skip("no p4test on PATH")
    if include is None:
        pytest.skip("no tna.p4 beside p4test, and DLCP_TNA_INCLUDE is not set")
    done = subprocess.run(
        [p4test, "--std", "p4-16", f"-D__TARGET_TOFINO__={tofino}", "-I", str(include), "tofino.p4"],
        cwd=repository / "p4",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- the script ----


class Table:
    """Takes the place of a node of bfrt: remembers what is called of it."""

    def __init__(self, name: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self._name = name
        self._calls = calls

    def __getattr__(self, name: str) -> Table:
        return Table(f"{self._name}.{name}".lstrip("."), self._calls)

    def __call__(self, **arguments: Any) -> Any:
        if self._name == "tf1.tm.port.cfg.get":
            number = arguments["dev_port"]
            data = {b"pg_id": number // 4, b"egress_qid_queues": [8 * (number % 4) + q for q in range(32)]}
            return type("Entry", (), {"data": data})
        self._calls.append((self._name, arguments))
        return None


def run(text: str) -> dict[str, list[dict[str, Any]]]:
    """What the script calls, by table and action."""
    calls: list[tuple[str, dict[str, Any]]] = []
    exec(text, {"bfrt": Table("", calls)})
    found: dict[str, list[dict[str, Any]]] = {}
    for name, arguments in calls:
        found.setdefault(name, []).append(arguments)
    return found


def levels(*limits: int) -> tuple[Thresholds, ...]:
    return tuple(Thresholds(drop_above_bytes=limit) for limit in limits)


GRADIENTS = TrafficClass(
    3,
    "gradients",
    dscp=(24, 26),
    critical=Thresholds(40_000, 80_000, 0.5),
    droppable=levels(*[40_000] * 4, *[120_000] * 4),
)
POLICY = Policy("eighths", (GRADIENTS, TrafficClass(7, "control", dscp=(56,))), port_bytes=160_000)
PORTS = {"1/0": 132, "2/0": 260}


def test_limits_that_are_eighths_are_met() -> None:
    colours = colour_queue(GRADIENTS, 160_000)
    assert (colours.cells, colours.red_levels, colours.red_eighths, colours.yellow_eighths) == (2000, 4, 2, 6)
    assert [colours.limit_bytes(level) for level in range(9)] == [40_000] * 4 + [120_000] * 4 + [160_000]


@pytest.mark.parametrize(
    "limits", [[5_000 * i for i in range(8)], [100_000] * 8, [1, 2, 3, 4, 5, 6, 7, 160_000]]
)
def test_less_important_is_never_dropped_later(limits: list[int]) -> None:
    colours = colour_queue(TrafficClass(1, droppable=levels(*limits)), 160_000)
    got = [colours.limit_bytes(level) for level in range(CRITICAL_LEVEL + 1)]
    assert got == sorted(got)


def test_class_without_limits_fills_its_queue() -> None:
    colours = colour_queue(TrafficClass(7), 160_000)
    assert {colours.limit_bytes(level) for level in range(9)} == {160_000}


def test_mark_ranges_cover_every_depth_once() -> None:
    found = list(mark_ranges(GRADIENTS.critical, 2000))
    cells = [cell for first, last, _ in found for cell in range(first, last + 1)]
    assert cells == list(range(40_000 // CELL_BYTES + 1, 2001))
    ratios = [ratio for _, _, ratio in found]
    assert ratios == sorted(r for r in ratios if r is not None)
    assert ratios[-1] == 32768
    assert list(mark_ranges(Thresholds(), 2000)) == []
    assert list(mark_ranges(Thresholds(8_000), 2000)) == [(101, 2000, None)]


def test_script_of_a_policy() -> None:
    rendered = render_tofino(POLICY, PORTS)
    calls = run(rendered.text)
    program = "tofino.pipe.TofinoIngress."
    classes = calls[program + "classify.classify.add_with_set_class"]
    assert [(c["dscp"], c["traffic_class"]) for c in classes] == [(24, 3), (26, 3), (56, 7)]
    colours = calls[program + "colour.colour.add_with_set_colour"]
    of_gradients = [c["colour"] for c in colours if c["traffic_class"] == 3]
    assert of_gradients == [RED] * 4 + [YELLOW] * 4
    assert program + "forward.path_group.set_default_with_by_path_id" in calls

    limits = calls["tf1.tm.queue.color.mod"]
    assert len(limits) == 16
    assert {(c["pg_id"], c["pg_queue"]) for c in limits} == {(33, q) for q in range(8)} | {
        (65, q) for q in range(8)
    }
    [own] = [c for c in limits if (c["pg_id"], c["pg_queue"]) == (33, 3)]
    assert (own["drop_enable"], own["drop_limit_yellow"], own["drop_limit_red"]) == (True, "75%", "25%")
    assert [c["max_priority"] for c in calls["tf1.tm.queue.sched_cfg.mod"][:8]] == [str(q) for q in range(8)]
    assert {c["pool_max_cells"] for c in calls["tf1.tm.queue.buffer.mod_with_shared_pool"]} == {2000}
    assert {c["pipe"] for c in limits} == {1, 2}


def test_names_of_the_script_are_those_of_the_program(repository: Path) -> None:
    text = "".join(path.read_text() for path in sorted((repository / "p4" / "blocks").glob("tofino_*.p4")))
    policy = Policy(
        "", (TrafficClass(1, dscp=(8,), critical=Thresholds(8_000)),), port_bytes=160_000,
        ports=(Port("1/0", 10**10, (TrafficClass(1, critical=Thresholds(4_000, 9_000)),)),),
    )  # fmt: skip
    for name, arguments in run(render_tofino(policy, PORTS).text).items():
        if not name.startswith("tofino.pipe."):
            continue
        *_, table, call = name.split(".")
        assert f"table {table} {{" in text
        action = re.sub("^(add|set_default)_with_", "", call)
        parameters = re.search(rf"action {action}\((.*?)\)", text)
        assert parameters is not None, action
        known = set(re.findall(r"(\w+)(?:,|$)", parameters[1])) | {"match_priority"}
        for key in re.findall(r'@name\("(\w+)"\)', text):
            known |= {key, f"{key}_mask", f"{key}_start", f"{key}_end"}
        assert set(arguments[0]) <= known, name
    assert all(f"action {action}()" in text for action in PATH_ACTIONS.values())


def test_port_of_its_own_hides_the_marks_of_all() -> None:
    own = TrafficClass(3, critical=Thresholds(100_000), droppable=GRADIENTS.droppable)
    policy = Policy("", (GRADIENTS,), port_bytes=160_000, ports=(Port("2/0", 10**10, (own,)),))
    calls = run(render_tofino(policy, PORTS).text)
    rows = [
        (
            c["match_priority"],
            c["depth_cells_start"],
            c["depth_cells_end"],
            c["port"],
            c["port_mask"],
            c["dscp"],
            ratio,
        )
        for name, found in calls.items()
        if "mark_ramp" in name
        for c in found
        for ratio in [c.get("ratio", 65536)]
    ]

    def ratio_at(port: int, cell: int) -> int:
        hits = [row for row in rows if row[5] == 24 and row[1] <= cell <= row[2] and port & row[4] == row[3]]
        return min(hits)[6] if hits else 0

    assert ratio_at(132, 600) > 0
    assert ratio_at(260, 600) == 0
    assert ratio_at(260, 1251) == 65536


def test_what_is_done_otherwise_is_said() -> None:
    policy = Policy(
        "", (TrafficClass(1, dscp=(8,), droppable=(Thresholds(trim_above_bytes=33_000),)),), "adaptive",
        port_bytes=160_000, pause_above_bytes=500_000, resume_below_bytes=1, trimmed_run_packets=10,
    )  # fmt: skip
    rendered = render_tofino(policy, PORTS)
    assert [difference.field for difference in rendered.differences] == [
        "class[0].droppable",
        "class[0].droppable[0].trim_above_bytes",
        "path_choice",
        "port_bytes",
        "pause_above_bytes",
        "trimmed_run_packets",
    ]
    for difference in rendered.differences:
        assert f"# Other than the policy: {difference.text()}\n" in rendered.text
    assert "by_random" in rendered.text


def test_queue_of_a_shared_buffer_ends_where_it_would_if_others_were_empty() -> None:
    policy = starting_policy(10**10, trim=False, separate=True, ports=32)
    rendered = render_tofino(policy, PORTS)
    told = next(d for d in rendered.differences if d.field == "shared_bytes")
    assert "fixed limit" in told.text()
    assert "        7: (17066, " in rendered.text, "control: a third of 4096000 bytes in cells of 80"
    assert "        1: (1600, " in rendered.text, "data: critical.drop_above_bytes"


@pytest.mark.parametrize(
    ("policy", "ports", "text"),
    [
        (Policy(), {}, "dev_ports is empty"),
        (Policy(port_bytes=1), {"a": 512}, "dev_ports.a is 512; accepted: an integer from 0 to 511"),
        (
            Policy(port_bytes=1, ports=(Port("b", 1),)),
            PORTS,
            "port.name is 'b'; accepted: a port with a device port",
        ),
        (
            Policy("", (TrafficClass(1),)),
            PORTS,
            "port_bytes is None; accepted: a number, shared_bytes, or critical.drop_above_bytes",
        ),
    ],
)
def test_what_a_tofino_cannot_do_at_all(policy: Policy, ports: dict[str, int], text: str) -> None:
    with pytest.raises(TofinoError, match=re.escape(text)):
        render_tofino(policy, ports)


def test_command_writes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.to_toml())
    command = ["switch", "render", str(policy), "--os", "tofino"]
    assert main([*command, "--ports", "1/0=132,2/0=260"]) == 0
    told = capsys.readouterr()
    assert told.out == render_tofino(POLICY, PORTS).text
    assert re.search(r"policy.toml: caveat: line \d+: port_bytes: holds for each queue", told.err)
    assert main([*command, "--ports", "1/0"]) == 2
    assert "--ports is '1/0'; accepted: NAME=DEVICE_PORT" in capsys.readouterr().err
    assert main([*command, "--ports", "1/0=132", "--strict"]) == 2
    assert "port_bytes: holds for each queue" in capsys.readouterr().err
