"""The study of the honest baseline: what it compares, its bounds, its arithmetic, and a small run of all of it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from dlcp.study.network import honest
from dlcp.study.network.honest import (
    BOUNDED,
    CONFIGURATIONS,
    DCQCN,
    RELAXED,
    RELIABLE,
    SPRAYED,
    UET,
    Case,
    Condition,
    Found,
)
from dlcp_sim.transports import Dlcp

TRIMMING = Condition("rails", 4, "trimming")
DROPPING = Condition("rails", 4, "dropping")
SIZE = 100_000


def found(step_s: float) -> Found:
    return Found(
        (step_s,), abandoned_ratio=0, repeated_ratio=0, trimmed=0, dropped=0, lost=0, timeouts=0, pauses=0
    )


def test_every_condition_has_every_transport_and_a_lossless_fabric_for_dcqcn() -> None:
    conditions = honest.conditions(quick=False)
    cases = honest.cases_of(conditions)
    assert len(conditions) == len(set(conditions)) == 12
    assert len(cases) == len(set(cases)) == 12 * len(CONFIGURATIONS) + 6 * 2
    assert {case.condition.switch for case in cases if case.configuration in (DCQCN, SPRAYED)} == {"lossless"}
    assert {condition.gray for condition in conditions} == {True, False}
    assert {condition.oversubscription for condition in conditions} == {1, 4}


def test_transports_differ_in_what_their_names_say_and_in_nothing_else() -> None:
    scenarios = {
        configuration: Case(TRIMMING, configuration).scenario(SIZE, 1) for configuration in CONFIGURATIONS
    }
    window, relaxed = scenarios[BOUNDED].transport, scenarios[BOUNDED + RELAXED].transport
    assert isinstance(window, Dlcp)
    assert isinstance(relaxed, Dlcp)
    assert (window.congestion, relaxed.congestion) == ("window", "line_rate")
    assert scenarios[RELIABLE].transport == window
    assert scenarios[RELIABLE].switch == scenarios[BOUNDED + RELAXED].switch
    loads = {configuration: s.workload.build(s.fabric, 1).flows for configuration, s in scenarios.items()}
    for configuration, flows in loads.items():
        lossy = flows["loss_ratio"] > 0
        assert (np.mean(lossy) == 0.5) if configuration.startswith(BOUNDED) else not lossy.any()
        assert np.array_equal(flows["bytes"], loads[UET]["bytes"])


def test_critical_packets_meet_the_baselines_switch() -> None:
    uet, dlcp = (Case(TRIMMING, configuration).scenario(SIZE, 1).policy for configuration in (UET, BOUNDED))
    ours, theirs = dlcp.traffic_class(0), uet.traffic_class(0)
    assert theirs.critical.trim_above_bytes is not None
    assert ours.critical.trim_above_bytes == pytest.approx(theirs.critical.trim_above_bytes, rel=0.02)
    assert ours.droppable[-1].trim_above_bytes == pytest.approx(ours.critical.trim_above_bytes, abs=2)
    assert ours.droppable[0].trim_above_bytes == pytest.approx(
        theirs.critical.trim_above_bytes * 3 / 4, rel=0.02
    )


def test_deeper_thresholds_are_multiples() -> None:
    first, deeper = (
        Case(DROPPING, BOUNDED, depth=depth).scenario(SIZE, 1).policy.traffic_class(0).droppable
        for depth in (0.25, 1.0)
    )
    assert [level.drop_above_bytes for level in deeper] == pytest.approx(
        [4 * (level.drop_above_bytes or 0) for level in first], rel=0.01
    )


def test_bounds_are_the_busiest_link() -> None:
    # 8 hosts · 7/8 · 4 MB over two links of 400 Gb/s, twice; over eight, a host's own link is as busy.
    assert TRIMMING.bound_s(4_000_000) == pytest.approx(2 * 8 * 28e6 / 800e9)
    assert Condition("rails", 1, "trimming").bound_s(4_000_000) == pytest.approx(2 * 8 * 3.5e6 / 400e9)
    assert Condition("servers", 4, "trimming").bound_s(4_000_000) == pytest.approx(2 * 8 * 28e6 / 400e9)
    large = Condition("rails", 4, "trimming", scale=4)
    assert large.bound_s(1_000_000) == pytest.approx(TRIMMING.bound_s(4_000_000))
    assert Case(large, UET).scenario(SIZE, 1).workload == Case(TRIMMING, UET).scenario(4 * SIZE, 1).workload
    assert TRIMMING.bound_s(4_000_000, 0.1) == pytest.approx(0.95 * TRIMMING.bound_s(4_000_000))


def test_gains_are_shares_of_the_others_time() -> None:
    lossless = Condition("rails", 4, "lossless")
    steps = {Case(TRIMMING, configuration): found(1e-3) for configuration in CONFIGURATIONS}
    steps |= {Case(TRIMMING, BOUNDED): found(0.9e-3), Case(lossless, DCQCN): found(2e-3)}
    steps[Case(lossless, SPRAYED)] = found(float("inf"))
    assert honest.gain(steps, TRIMMING, BOUNDED, RELIABLE) == pytest.approx(0.1)
    assert honest.gain(steps, TRIMMING, UET, DCQCN) == pytest.approx(0.5)
    assert honest.percent(-0.25) == ("-25.0 %", -0.25)


def test_a_small_run_leaves_tables_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(honest, "QUICK_BYTES", SIZE)
    monkeypatch.setattr(honest, "DEPTHS", (1.0, 0.25))
    monkeypatch.setattr(honest, "CRITICAL_RATIOS", (0.3,))
    honest.run(tmp_path, True, 1)
    assert "beside UET" in capsys.readouterr().out
    text = (tmp_path / "honest.md").read_text(encoding="utf-8")
    assert text.count("\n| rails, 4:1, trimming") >= 1 + len(CONFIGURATIONS)
    rows = list(csv.DictReader((tmp_path / "honest.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * len(CONFIGURATIONS) + 2
    for row in rows:
        assert TRIMMING.bound_s(SIZE) < float(row["step"]) < 0.01
        assert 0 <= float(row["abandoned"]) <= 0.1
        assert (float(row["abandoned"]) > 0) <= ("bounded" in row[""])
    assert (tmp_path / "honest.png").stat().st_size > 10_000
