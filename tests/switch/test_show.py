"""`dlcp switch show`: a policy as a person reads it, each set of thresholds said once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlcp.cli import main
from dlcp.switch.number_ranges import number_ranges
from dlcp.switch.policy import Policy, Port, Thresholds, TrafficClass, importance_levels
from dlcp.switch.starting_policy import starting_policy

LEVELS = importance_levels("drop_above_bytes", 8_000, 15_000)


def shown(policy: Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    path = tmp_path / "policy.toml"
    policy.save(path)
    assert main(["switch", "show", str(path)]) == 0
    return capsys.readouterr().out.splitlines()


def test_numbers_are_listed_by_runs() -> None:
    assert number_ranges([8, 8, 0, 1, 2, 10, 9, 63]) == "0–2, 8–10, 63"
    assert number_ranges([]) == ""


def test_starting_policy_fits_on_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(starting_policy(10**11), tmp_path, capsys)
    assert len(lines) < 36
    assert max(map(len, lines)) <= 110
    assert [line for line in lines if "  marked from" in line] == [
        "classes 0–6           marked from  trimmed above  dropped above"
    ]
    assert "class 7: never marked or trimmed, dropped only where the buffer ends" in lines


def test_droppable_packets_are_shown_as_never_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # As native/switch/decision.hpp has it: only what is ECN-capable is.
    marks = Thresholds(1_000, 2_000, 0.5)
    lines = shown(Policy(classes=(TrafficClass(1, dscp=(8,), droppable=(marks,)),)), tmp_path, capsys)
    assert "class 1: never marked or trimmed, dropped only where the buffer ends" in lines


def test_foreign_traffic_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = shown(Policy(classes=(TrafficClass(1, dscp=(8, 10)),)), tmp_path, capsys)
    at = alone.index("foreign      in queue 0; never marked or trimmed:")
    assert alone[at + 1].split() == [
        "DSCP",
        "0–7,",
        "9,",
        "11–63;",
        "VLAN,",
        "IPv4",
        "options,",
        "what",
        "is",
        "not",
        "IP",
    ]
    shared = shown(Policy(classes=(TrafficClass(0, dscp=tuple(range(64))),)), tmp_path, capsys)
    at = shared.index("foreign      in queue 0 with class 0; never marked or trimmed:")
    assert shared[at + 1].split() == ["VLAN,", "IPv4", "options,", "what", "is", "not", "IP"]


def test_every_threshold_and_ratio_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ramp = Thresholds(3_000, 7_000, 0.25, trim_above_bytes=8_000, drop_above_bytes=9_000)
    levels = (*LEVELS[:6], *[Thresholds(drop_above_bytes=20_000)] * 2)
    own = TrafficClass(2, critical=Thresholds(1_000), droppable=(Thresholds(trim_above_bytes=500),))
    policy = Policy(
        classes=(TrafficClass(2, "two", (16,), ramp, levels), TrafficClass(1, "one", (8,), ramp, levels)),
        ports=(Port("up1", 10**10, (own,)), Port("up2", 10**10, (own,)), Port("down", 10**9)),
    )
    lines = shown(policy, tmp_path, capsys)
    at = next(i for i, line in enumerate(lines) if line.startswith("classes 1–2 "))
    title = "classes 1–2           marked from  all marked  mark ratio  trimmed above  dropped above"
    assert lines[at] == title
    assert lines[at + 1].split() == ["critical", "3000", "7000", "0.25", "8000", "9000"]
    # Equal levels together, the most important first.
    assert lines[at + 2].split() == ["importance", "192–254", "–", "–", "–", "–", "20000"]
    assert lines[at + 3].split() == ["importance", "160–191", "–", "–", "–", "–", "13000"]
    at = next(i for i, line in enumerate(lines) if line.startswith("classes 2 at up1, 2 at up2 "))
    assert lines[at + 1].split() == ["critical", "1000", "–"]
    assert lines[at + 2].split() == ["droppable", "–", "500"]
    assert "down  1 Gb/s" in lines


# --- notes ----------------------------------------------------------------------------------------------------


def notes(policy: Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The last lines, without the one that every policy of several queues gets."""
    lines = shown(policy, tmp_path, capsys)
    first = next((i for i, line in enumerate(lines) if line.startswith("note: ")), len(lines))
    assert all(line.startswith("note: ") for line in lines[first:]), "plain lines at the end"
    return [line[6:] for line in lines[first:] if "priority is strict" not in line]


def test_separate_starting_policy_leaves_no_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = starting_policy(10**10, separate=True)
    assert notes(policy, tmp_path, capsys) == []
    assert shown(policy, tmp_path, capsys)[-1] == (
        "note: priority is strict: while other classes fill a port, queue 0, foreign traffic's, sends nothing there"
    )
    assert notes(starting_policy(10**10), tmp_path, capsys) == [
        "class 0 marks, trims or drops DSCP 0: everybody's traffic has it, unless told otherwise",
        "class 6 marks, trims or drops DSCP 48: routing protocols have it (CS6)",
    ]


def test_what_trimmed_packets_get_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(starting_policy(10**10, separate=True, trim=True), tmp_path, capsys)
    assert "trimmed      126 bytes are left, and go on in class 7, with DSCP 59" in lines


def test_policy_without_classes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notes(Policy(), tmp_path, capsys) == [
        "the policy has no classes: all traffic is foreign, in queue 0"
    ]


def test_threshold_that_no_queue_reaches_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = TrafficClass(0, "", (1,), Thresholds(50_000, drop_above_bytes=99_999), LEVELS)
    assert notes(Policy(classes=(data,), port_bytes=100_000), tmp_path, capsys) == []
    assert notes(Policy(classes=(data,), port_bytes=99_999), tmp_path, capsys) == [
        "class 0: critical.drop_above_bytes = 99999 is never met: no queue holds more than 99999 bytes"
    ]
    # A queue takes half of what is left at most, so a third of all.
    shared = Policy(classes=(data,), shared_bytes=299_999, shared_alpha_log2=-1)
    assert notes(shared, tmp_path, capsys) == [
        "class 0: critical.drop_above_bytes = 99999 is never met: no queue holds more than 99999 bytes"
    ]
    assert notes(replace(shared, shared_bytes=300_000), tmp_path, capsys) == []
    at_port = Policy(
        classes=(data,), port_bytes=100_000, ports=(Port("up1", 1, (replace(data, dscp=(), droppable=(
            Thresholds(drop_above_bytes=200_000),)),)),)
    )  # fmt: skip
    assert notes(at_port, tmp_path, capsys) == [
        "class 0 at up1: droppable.drop_above_bytes = 200000 is never met: no queue holds more than 100000 bytes"
    ]


def test_classes_that_fill_one_port_together_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = Thresholds(drop_above_bytes=40_000)
    classes = tuple(TrafficClass(n, dscp=(8 * n,), critical=limited, droppable=LEVELS) for n in (1, 2))
    assert notes(Policy(classes=classes, port_bytes=100_000), tmp_path, capsys) == [
        "queues 0–2 may together hold 180000 bytes, a port 100000: those served last can take the room of the first; "
        "shared_bytes leaves it"
    ]
    assert notes(Policy(classes=classes, shared_bytes=10**6), tmp_path, capsys) == []
    both = tuple(replace(c, number=c.number - 1) for c in classes)
    assert notes(Policy(classes=both, port_bytes=140_000), tmp_path, capsys) != []
    assert notes(Policy(classes=both, port_bytes=140_000, foreign_class=1), tmp_path, capsys) != []


def test_port_that_replaces_thresholds_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = TrafficClass(1, dscp=(8,), critical=Thresholds(1_000), droppable=LEVELS)
    own = TrafficClass(1, critical=Thresholds(2_000))
    policy = Policy(classes=(usual,), ports=(Port("up1", 10**9, (own,)),))
    assert "at these ports, in place of all thresholds of the class:" in shown(policy, tmp_path, capsys)
    assert notes(policy, tmp_path, capsys) == [
        "class 1 at up1 has no thresholds for droppable packets: a port's class replaces all that the class has "
        "elsewhere"
    ]
