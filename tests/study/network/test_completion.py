"""The flow-completion study: its workload, its conditions, and what its quick mode leaves behind."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from dlcp.errors import ArgumentError
from dlcp.study.network import completion
from dlcp.study.network._sweep import measure, together
from dlcp.study.network.completion import FABRIC, Case, Found, PushRounds, beside, gains, simulate

FEW = PushRounds(servers=1, fan_in=(48,), sizes=(40_000,))


def test_rounds_ask_for_the_load_and_go_to_servers_only() -> None:
    workload = PushRounds(duration_s=0.4, load=0.5)
    flows = workload.build(FABRIC, 7).flows
    offered = flows["bytes"].sum() * 8 / (12 * 100e9 * 0.4)
    assert offered == pytest.approx(0.5, rel=0.1)
    servers = np.unique(flows["destination"])
    assert len(servers) == 12
    assert not np.isin(flows["source"], servers).any()
    assert set(np.unique(flows["bytes"])) == set(workload.sizes)


def test_a_round_is_one_size_from_different_workers_at_nearly_the_same_time() -> None:
    workload = PushRounds(servers=1, fan_in=(16,), duration_s=0.01)
    flows = workload.build(FABRIC, 3).flows
    for first in range(0, len(flows), 16):
        rows = slice(first, first + 16)
        assert len(np.unique(flows["source"][rows])) == 16
        assert len(np.unique(flows["bytes"][rows])) == 1
        assert np.ptp(flows["start_ps"][rows]) <= 20e6


def test_the_same_seed_gives_the_same_rounds() -> None:
    one, same, other = (PushRounds().build(FABRIC, seed).flows for seed in (1, 1, 2))
    assert (one["start_ps"] == same["start_ps"]).all()
    assert len(one) != len(other) or (one["start_ps"] != other["start_ps"]).any()


def test_too_many_servers_are_refused() -> None:
    with pytest.raises(ArgumentError, match="servers is 140; accepted: 1 to 112"):
        PushRounds(servers=140).build(FABRIC, 1)


def test_conditions_reach_transport_and_switches() -> None:
    def scenario(name: str) -> completion.Scenario:
        return Case("layers", name, 0.4, 100_000, 1e-3).scenario(0.001, 1)

    for name, setting in (("dctcp", "min_rto_ps"), ("pfabric", "rto_ps")):
        assert scenario(name).transport.parameters()[setting] == 1e9
        assert scenario(name).policy.port_bytes == 100_000
    assert scenario("dctcp").transport.parameters()["tail_probe"] == 1
    assert scenario("dctcp, no probes").transport.parameters()["tail_probe"] == 0
    assert scenario("dlcp bounded").workload.build(FABRIC, 1).flows["loss_ratio"].max() == 0.1
    ratios = {
        name: float(scenario(name).workload.build(FABRIC, 1).flows["critical_ratio"].max())
        for name in ("dlcp bounded", "dlcp half droppable")
    }
    assert ratios == {"dlcp bounded": 0.9, "dlcp half droppable": 0.5}
    assert scenario("dlcp reliable").workload.build(FABRIC, 1).flows["loss_ratio"].max() == 0


def test_gains_compare_with_the_rival_of_the_same_buffer() -> None:
    def found(ms: float) -> Found:
        return Found(np.full(10, ms * 1e-3), 0.0, 0, 0, 0.0)

    rival = Case("layers", "dctcp", completion.LOAD, 100_000, 10e-3)
    cases = {
        rival: found(10),
        Case("layers", "dlcp reliable", completion.LOAD, 100_000): found(4),
        Case("layers", "dlcp bounded", completion.LOAD, 100_000): found(2),
        Case("layers", "dlcp bounded", completion.LOAD, 500_000): found(1),
    }
    (gain,) = gains("layers", cases)
    assert gain.rival == rival
    assert (gain.p99, gain.mean) == pytest.approx((-0.8, -0.8))
    assert gain.reliable_p99 == pytest.approx(-0.6)
    assert beside(3.0, 2.0) == 0.5


def test_seeds_are_put_together_flow_by_flow() -> None:
    parts = [Found(np.array(values), ratio, 1, 2, 0.5) for values, ratio in (([1.0, 2.0], 0.1), ([9.0], 0.3))]
    whole = together(parts)
    assert (whole.mean, whole.p99, whole.timeouts, whole.dropped_packets) == (4.0, 9.0, 2, 4)
    assert whole.abandoned_ratio == pytest.approx(0.2)


def test_long_timeouts_make_the_published_gain_and_short_ones_take_it_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The study's finding, in small: DCTCP's tail under wide incast is its least timeout."""
    monkeypatch.setattr(completion, "WORKLOADS", {"few": FEW})
    long, short = (Case("few", "dctcp", completion.LOAD, 100_000, timeout) for timeout in (10e-3, 30e-6))
    ours = Case("few", "dlcp bounded", completion.LOAD, 100_000)
    found = measure(simulate, [long, short, ours], 0.002, [1], processes=1)
    assert beside(found[ours].p99, found[long].p99) < -0.75
    assert abs(beside(found[ours].p99, found[short].p99)) < 0.5


def test_a_quick_study_leaves_a_table_a_file_of_numbers_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "WORKLOADS", {"few": FEW})
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    completion.run(tmp_path, quick=True, seeds=1)
    printed = capsys.readouterr().out
    assert "few: completion by load" in printed
    assert "Published: −91.8 % and −43.1 %" in printed
    with (tmp_path / "completion.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["transport"] for row in rows} == {
        "dctcp",
        "dctcp, no probes",
        "pfabric",
        "ndp",
        "dlcp reliable",
        "dlcp bounded",
        "dlcp half droppable",
    }
    assert all(0 < float(row["mean_s"]) <= float(row["p99_s"]) <= float(row["max_s"]) for row in rows)
    assert "| dctcp | 0.6 |" in (tmp_path / "completion.md").read_text(encoding="utf-8")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "no picture" in printed
    else:
        assert (tmp_path / "completion.png").read_bytes().startswith(b"\x89PNG")
