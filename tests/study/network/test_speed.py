"""The studies of speed: their workloads are the shared ones, their bars and tables say what was measured."""

from __future__ import annotations

import csv
import io
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dlcp.study.network import _ns3, _reference, speed, threads
from dlcp.study.network._reference import Bar
from dlcp_sim.result import Result


def links(fat_tree_k: int, source: int, destination: int) -> int:
    """How many links a packet crosses, from the numbers of the hosts alone."""
    half = fat_tree_k // 2
    if source // half == destination // half:
        return 2
    return 4 if source // half**2 == destination // half**2 else 6


@pytest.mark.parametrize(
    ("workload", "k", "expected"),
    [
        ("P128", 8, {2: 1, 4: 13, 6: 114}),
        ("P1024", 16, {2: 9, 4: 55, 6: 960}),
        ("I32", 8, {4: 3, 6: 29}),
    ],
)
def test_workloads_have_the_paths_of_their_definition(
    workload: str, k: int, expected: dict[int, int]
) -> None:
    lines = [tuple(map(int, line.split())) for line in _reference.rows(workload).splitlines()]
    assert Counter(links(k, source, destination) for source, destination, _ in lines) == expected
    assert {size for _, _, size in lines} == {2_000_000}
    assert _reference.fabric(workload).hosts == k**3 // 4


@pytest.mark.parametrize("transport", speed.TRANSPORTS)
def test_incast_ends_no_earlier_than_the_last_link_allows(transport: str) -> None:
    """The last packet is there after 32 · n · s + (L - 1) · s + L · d at best (docs/simulator/validation.md, 2)."""
    case = speed.Case("I32", transport)
    speed._simulate(case)
    packet_us, payload_us = 4160 * 8e-5, 2_000_000 * 8e-5
    assert case.completion_us[1] >= 32 * payload_us
    # Repairs, ramps and acknowledgements cost a few per cent at most.
    assert case.completion_us[1] <= 1.06 * (32 * 489 * packet_us + 5 * packet_us + 6)
    # A hop per data packet and link at least.
    assert case.hops >= 32 * 489 * 4
    assert case.events >= case.hops
    assert len(case.cpu_s) == len(case.outside) == 1


def test_the_native_program_is_told_what_the_scenario_says(tmp_path: Path) -> None:
    line = speed._line(Path("simulator"), tmp_path, "P1024", "ndp")
    assert line[line.index("--k") + 1] == "16"
    settings = dict(word.split("=") for word in line[line.index("--settings") + 1].split(","))
    assert float(settings["window_packets"]) == 50


@pytest.mark.parametrize(
    ("found", "at_least", "met"),
    [(99.0, False, True), (101.0, False, False), (101.0, True, True), (99.0, True, False)],
)
def test_a_bar_is_met_on_its_side(found: float, at_least: bool, met: bool) -> None:
    bar = Bar("P128", found, 100, "ns/hop", at_least)
    assert bar.met is met
    assert bar.text() == (
        f"P128: {found:.4g} ns/hop, asked {'≥' if at_least else '≤'} 100: {'met' if met else 'NOT met'}"
    )


def made_up(workload: str, name: str, ns: list[float], hops: int = 1_000_000) -> speed.Case:
    return speed.Case(workload, name, [1e-9 * value * hops for value in ns], hops, 2 * hops, [0.01, 0.03])


def test_tables_and_bars_take_the_leanest_full_transport_and_medians(tmp_path: Path) -> None:
    found = [
        made_up("P128", "ndp", [90, 110, 95]),
        made_up("P128", "uet", [100, 101, 102]),
        made_up("P128", "yardstick", [40, 45]),
        made_up("P128", "ns-3 UDP", [3600]),
        made_up("I32", "ndp", [80, 81, 82]),
        made_up("I32", "line_rate", [10, 10, 10]),
        made_up("P1024", "ndp", [120, 130, 140], 6_000_000),
        made_up("P1024", "dlcp", [500, 500, 500], 3_000_000),
    ]
    cases = {(case.workload, case.name): case for case in found}
    setup = {"cpu_s": 0.1, "bytes": 5e7, "total_bytes": 1.2e8}
    bars = {bar.what: bar for bar in speed._bars(cases, {"ndp": 690.0, "dlcp": 1500.0}, setup)}
    assert bars["P128 over ndp, median"].found == pytest.approx(95)
    assert bars["P128 over ndp, median"].met
    assert not bars["I32 over ndp, median"].met
    assert bars["P1024 over ndp, median"].found == pytest.approx(0.78)
    assert bars["P128 over ndp"].found == 690
    assert not bars["8192 hosts, whole process"].met
    assert bars["P1024 over ndp, outside the native loop"].found == pytest.approx(2.0)
    rows = list(csv.DictReader(io.StringIO(speed._table(cases).csv())))
    assert [row[""] for row in rows[:3]] == ["P128 ndp", "P128 uet", "P128 yardstick"]
    assert float(rows[0]["× yardstick"]) == pytest.approx(90 / 40)
    assert "40 × the time per hop of ndp" in "\n".join(speed._notes(cases, 3, {}))


def test_the_picture_of_made_up_cases_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install '.[sim]'")
    cases = {
        (workload, name): made_up(workload, name, [50, 60])
        for workload in _reference.WORKLOADS
        for name in ("ndp", "dlcp", "yardstick")
    }
    speed._draw(cases, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes()[:4] == b"\x89PNG"


def test_gain_is_the_ratio_of_pairs() -> None:
    case = threads.Case("ndp", {1: [2.0, 3.0], 2: [1.0, 2.0]}, {1: [2.0, 3.0], 2: [2.1, 3.2]}, {"a"})
    assert case.gains(2) == [2.0, 1.5]
    rows = list(csv.DictReader(io.StringIO(threads._table([case]).csv())))
    assert float(rows[1]["gain median"]) == 1.75
    assert rows[1]["result"] == "same"


def test_digest_is_of_all_arrays_and_nothing_else() -> None:
    one = _reference.scenario("I32", "ndp", size=20_000).run()
    assert threads.digest(one) == threads.digest(
        _reference.scenario("I32", "ndp", size=20_000, threads=2).run()
    )
    ends = one.arrays["flow.delivered_ps"].copy()
    ends[3] += 1
    assert threads.digest(Result(one.metadata, {**one.arrays, "flow.delivered_ps": ends})) != threads.digest(
        one
    )


def test_instructions_are_counted_free_of_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program of known cost: 1000 instructions of set-up and 7 per hop."""
    if shutil.which("sh") is None:
        pytest.skip("needs a shell to stand for valgrind")
    fake = tmp_path / "valgrind"
    fake.write_text(
        '#!/bin/sh\nfor word; do [ -f "$word" ] && hops=$(awk \'{s += $3} END {print s / 1000}\' "$word"); done\n'
        'echo "==1== Collected : $((1000 + 7 * hops))" >&2; echo "{\\"hops\\": $hops}"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "nothing"
    found = speed._instructions({"simulator": program}, tmp_path, ("ndp",))
    assert found == {"ndp": pytest.approx(7.0)}


def test_totals_of_ns3_are_read_by_name() -> None:
    answer = "port 0 1 2\ntotal arrivals 5 hops 10 events 36 setup_s 0.006 cpu_s 0.0002 last_ps 3 rss_kb 16\n"
    assert _ns3.totals(answer)["hops"] == 10
    assert _ns3.totals(answer)["cpu_s"] == pytest.approx(0.0002)


def test_ns3_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLCP_NS3", raising=False)
    monkeypatch.setattr(_ns3, "SOURCE", Path("/nowhere/fixed_routes.cc"))
    with pytest.raises(_ns3.Ns3Error, match="apt-get install libns3-dev|checkout"):
        _ns3.program()


def test_routes_for_ns3_lead_from_source_to_destination() -> None:
    work = speed._ns3_work()
    if work is None:
        pytest.skip("ns-3 is not installed (Debian: apt-get install libns3-dev)")
    lines = work[1].splitlines()
    count = int(lines[0].split()[1])
    ports = np.array([list(map(int, line.split())) for line in lines[1 : count + 1]])
    for line in lines[count + 2 :]:
        source, destination, packets, payload, last, start_ps, length, *path = map(int, line.split())
        assert (packets - 1) * payload + last == 2_000_000
        assert start_ps == 0
        assert len(path) == length == links(8, source, destination)
        assert ports[path[0], 0] == source
        assert ports[path[-1], 1] == destination
        assert (ports[path[1:], 0] == ports[path[:-1], 1]).all()
