"""The dpdk benchmark: how it judges, and that its programs run and count alike. No rate is asserted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import programs
from bench.dpdk import ends, engine, rates
from bench.report import Report

SHORT = rates.Sampling(1, 0.02)


@pytest.fixture(autouse=True)
def _programs_of_the_tests(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that `make test` has built: with assertions, so for counts and not for rates."""
    monkeypatch.setattr(programs, "BUILD", native_build)


def said(kpps: float, cycles: float = 100.0) -> dict:
    return {"kpps_per_cpu_s": kpps, "busy_cycles": cycles, "kpps": kpps}


def need(reason: Callable[[], str | None]) -> None:
    if why := reason():
        pytest.skip(why)


def need_program(name: str) -> None:
    try:
        programs.path(name)
    except programs.ProgramError as error:
        pytest.skip(f"{error}; make test builds it where libdpdk is found")


def test_driver_is_judged_against_dpdk_alone_in_the_same_repetition() -> None:
    found = {
        "memif": {
            "bare: as txonly": [(said(100), said(50)), (said(200), said(50))],
            "driver: as txonly": [(said(90), said(1)), (said(190), said(1))],
            "driver receives": [(said(1), said(40)), (said(1), said(35))],
        }
    }
    report = Report("dpdk", {})
    rates.judge_devices(found, report)
    assert [(bar.what.split(", ")[1], bar.met) for bar in report.bars] == [
        ("sender", True),
        ("receiver", False),
    ]
    assert [bar.figure.median for bar in report.bars] == pytest.approx([0.925, 0.75])
    assert len(report.tables[0].rows) == 2


def test_processor_time_judges_and_cycles_stand_beside_it() -> None:
    """Empty polls are the receiver's processor time: it may be worse by that than by its cycles, and the reverse."""
    found = {
        "memif": {"bare: as txonly": [(said(100), said(100, 50))], "driver receives": [({}, said(70, 40))]}
    }
    report = Report("dpdk", {})
    rates.judge_devices(found, report)
    assert [(bar.figure.median, bar.met) for bar in report.bars] == [(0.7, False)]
    row = report.tables[0].rows[-1]
    assert (row[3], row[6]) == ("0.70", "1.25")


def test_what_dpdk_does_alone_is_told_without_the_driver() -> None:
    report = Report("dpdk", {})
    rates.judge_devices({"null": {"bare: as txonly": [(said(1000), {})]}}, report)
    assert not report.bars
    assert report.tables[0].rows[0][:2] == ["null, sender, as txonly", "1,000"]


def test_times_of_sockets_are_of_both_ends() -> None:
    found = {
        "own": [(said(600, 900), said(400, 50))],
        "plain": [(said(100, 100), said(100, 600))],
        "GSO": [(said(1), said(1))],
    }
    report = Report("dpdk", {})
    rates.judge_sockets(found, "own", ["plain"], report)
    assert [bar.met for bar in report.bars] == [True, False]


def test_order_of_cases_turns() -> None:
    order: list[str] = []
    rates.take({name: lambda n=name: (order.append(n), ({}, {}))[1] for name in "abc"}, 2)
    assert "".join(order) == "abcbca"


def test_dpdk_alone_counts_what_it_moves() -> None:
    need(ends.without_dpdk)
    with ends.here() as host:
        case = rates.beside_dpdk(host, ends.MEMIF, SHORT)[f"bare: {rates.BODY}"]
        sender, receiver = case()
        assert sender["total_packets"] == receiver["total_packets"] > 0
        assert sender["refused_packets"] == 0
        alone = rates.into_null(host, SHORT)["bare: as txonly"]()[0]
    assert alone["packets"] > 0 < alone["busy_cycles"]


def test_driver_counts_what_it_moves() -> None:
    need_program("driver_rate")
    need(ends.without_driver)
    with ends.here() as host:
        for case in (
            rates.whole(host, SHORT, "checksum=software"),
            rates.beside_dpdk(host, ends.MEMIF, SHORT)["driver receives"],
        ):
            sender, receiver = case()
            assert sender["total_packets"] == receiver["total_packets"] > 0


def test_sockets_count_what_they_move() -> None:
    need_program("driver_rate")
    with ends.here() as host:
        sender, receiver = rates.sockets(host, SHORT, offload=True, cable=False)()
    assert sender["total_packets"] == receiver["total_packets"] > 0


def test_engine_cost_has_every_section() -> None:
    need_program("engine_cost")
    answer = programs.ask("engine_cost", packets=2000, memory_bytes=8 << 20)
    assert answer["packets"] >= 2000
    assert answer["lost_packets"] == 0
    assert all(answer[f"{section}_ns"] > 0 for section in engine.SECTIONS)


def test_messages_are_answered() -> None:
    need_program("driver_messages")
    with ends.here() as host:
        asked, answered = host.ask({}, {}, messages=20, seconds=5)
    assert asked["messages"] == 20
    assert answered["messages"] == 21  # one to warm up
