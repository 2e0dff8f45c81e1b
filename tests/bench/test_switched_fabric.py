"""How steps across switched fabrics are judged, from made-up accounts."""

from __future__ import annotations

from dataclasses import replace

from bench.gradient_lab import Account, Steps
from bench.switched_fabric import BACKENDS, BOUNDED, POLICIES, Dropped, judge
from dlcp.lab.tcp_fill import TcpFill

ACCOUNT = Account(sent_bytes=1000, abandoned_bytes=10, residual_bytes=0)


def accounts(step_s: dict[str, float]) -> dict[tuple[str, str], list[list[Steps]]]:
    """Two repetitions of three ranks, whose steps take so long with each policy."""
    return {
        (policy, backend.label): [
            [Steps(1000, [step_s[policy]] * 4, 0.5, "same", ACCOUNT if backend == BOUNDED else None)] * 3
        ]
        * 2
        for policy in POLICIES
        for backend in BACKENDS
    }


def drops(critical: int) -> dict[tuple[str, str], list[Dropped]]:
    return {
        (policy, backend.label): [Dropped(critical, 9, 100), Dropped(0, 9, 100)]
        for policy in POLICIES
        for backend in BACKENDS
    }


def test_policy_that_halves_steps_meets_its_bars() -> None:
    report = judge(accounts({"policy": 0.1, "FIFO": 0.2}), drops(0), {}, TcpFill(1.0, "cubic"))
    assert [bar.met for bar in report.bars] == [True, True, True]
    assert report.bars[0].figure.median == 2
    assert "p50, FIFO / policy, Gloo: 2.00" in report.notes
    assert "policy, dlcp bounded: abandoned 1.00% of 0 MB" in report.notes
    assert len(report.tables[0].rows) == len(POLICIES) * len(BACKENDS)


def test_policy_that_loses_critical_packets_or_time_is_told() -> None:
    report = judge(accounts({"policy": 0.2, "FIFO": 0.1}), drops(1), {}, TcpFill(1.0, "cubic"))
    assert [bar.met for bar in report.bars] == [False, False, False]


def test_ranks_that_differ_are_wrong() -> None:
    found = accounts({"policy": 0.1, "FIFO": 0.2})
    ranks = found["FIFO", "dlcp"][0]
    found["FIFO", "dlcp"] = [[*ranks[:2], replace(ranks[2], digest="other")], ranks]
    report = judge(found, drops(0), {}, TcpFill(1.0, "cubic"))
    assert "WRONG: FIFO, dlcp: ranks ended with different weights" in report.notes
