"""The study of gray links: its conditions reach the network, its figures are what they say, it leaves its files."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from dlcp.study.network import _sweep, gray
from dlcp.study.network._sweep import measure
from dlcp.study.network.gray import GRAY_LINK, QUICK, SENDERS, TOPOLOGIES, Case, Found, GrayPlan, simulate
from dlcp_sim.faults import RandomLoss

SMALL = GrayPlan(iterations=3, scale=1 / 64, cap_s=2.0, round_cap_s=0.3)


def found(*iteration_s: float) -> Found:
    return Found(np.array(iteration_s), 0.0, 0, 0, 0.0)


def test_cases_have_a_healthy_network_to_compare_with() -> None:
    for quick in (True, False):
        cases = gray.cases_of(quick)
        assert len(cases) == len(set(cases))
        results = {case: found(2.0 if case.loss_ratio else 1.0) for case in cases}
        assert all(gray.healthy_s(results, case) == 1.0 for case in cases)
    assert {case.topology for case in gray.cases_of(True)} == set(TOPOLOGIES)


def test_packets_and_bounds_are_as_said() -> None:
    payloads = set()
    for name, sender in SENDERS.items():
        scenario = Case("ring", name).scenario(SMALL, 1)
        load = scenario.workload.build(scenario.fabric, 1)
        payload = (
            getattr(sender.transport, "block_bytes", None) or sender.transport.parameters()["mtu_bytes"] - 52
        )
        payloads.add(payload)
        assert load.flows["loss_ratio"].max() == sender.loss_ratio
        assert load.flows["critical_ratio"].max() == (0.0 if sender.loss_ratio else 1.0)
    assert payloads == {4096}


def test_a_healthy_ring_takes_its_computing_and_its_closed_form() -> None:
    one = simulate((Case("ring", "cubic, 1 ms"), SMALL, 1))
    job = Case("ring", "cubic, 1 ms").scenario(SMALL, 1).workload
    step_s = (job.batch or job.the_model().batch) / job.the_model().speed.samples_per_s / 64  # type: ignore[attr-defined]
    sent_bytes = 25_557_032 * 4 / 64 * 2 * 7 / 8
    ring_s = sent_bytes / 4096 * 4186 * 8 / 25e9
    assert one.mean_s == pytest.approx(step_s + ring_s, rel=0.1)
    assert one.mean_s > step_s + ring_s
    assert one.max_s - one.iteration_s.min() < 1e-9


def test_a_gray_link_costs_linux_s_timeout_more_than_a_bounded_transport() -> None:
    loss = 0.05
    linux, tuned, bounded = (
        simulate((Case("ring", name, loss), SMALL, 1))
        for name in ("cubic, 200 ms", "cubic, 1 ms", "dlcp 10 %")
    )
    assert linux.max_s > 2 * tuned.max_s
    assert tuned.mean_s > bounded.mean_s
    assert 0 < bounded.abandoned_ratio <= 0.1
    assert linux.abandoned_ratio == 0


def test_bursts_are_two_and_as_long_as_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[RandomLoss] = []
    plain = Case.scenario

    def noting(
        self: Case, plan: GrayPlan, seed: int, given: tuple[RandomLoss, ...] = (), **more: object
    ) -> object:
        faults.extend(given)
        return plain(self, plan, seed, given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Case, "scenario", noting)
    simulate((Case("hub", "dlcp reliable", 0.6, "bursts"), SMALL, 1))
    healthy = simulate((Case("hub", "dlcp reliable"), SMALL, 1))
    assert [fault.link for fault in faults] == [GRAY_LINK] * 2
    for fault in faults:
        assert fault.until_s is not None
        assert fault.until_s - fault.at_s == pytest.approx(healthy.iteration_s[0])


def test_a_higher_bound_shortens_the_round_of_a_burst_and_is_kept() -> None:
    low, high = (
        simulate((Case("ring", f"line rate, {bound} %", 0.6, "round"), SMALL, 1)) for bound in ("2.4", "42.4")
    )
    assert len(low.iteration_s) == 1
    assert low.mean_s / high.mean_s > 1.2
    assert low.abandoned_ratio <= 0.024
    assert 0.35 < high.abandoned_ratio <= 0.424


def test_how_often_a_burst_must_be() -> None:
    # Of 10 rounds of 1 one takes 5, or 2 with the higher bound: 3 of 14 off.
    assert gray.rounds_between(1.0, 5.0, 2.0, cut=3 / 14) == pytest.approx(10)
    assert math.isnan(gray.rounds_between(1.0, 1.1, 1.0))


def test_the_same_for_any_number_of_processes() -> None:
    cases = [Case("ring", "cubic, 1 ms", 0.01), Case("ring", "dlcp 10 %", 0.01)]
    one, two = (measure(simulate, cases, SMALL, (1, 2), processes) for processes in (1, 2))
    for case in cases:
        assert (one[case].iteration_s == two[case].iteration_s).all()
        assert len(one[case].iteration_s) == 2 * SMALL.iterations


def test_a_run_leaves_table_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")

    def made_up(_: object, cases: list[Case], plan: GrayPlan, seeds: range) -> dict[Case, Found]:
        assert plan is QUICK
        return {
            case: found(
                math.inf if case.sender == "cubic, 1 ms" and case.when == "round" else 1 + case.loss_ratio
            )
            for case in cases
        }

    monkeypatch.setattr(_sweep, "measure", made_up)
    gray.run(tmp_path, True, 1)
    text = (tmp_path / "gray.md").read_text()
    assert "> 0.3 s" in text
    assert "a bound of 42.4 % in place of 2.4 %" in text
    rows = list(csv.DictReader((tmp_path / "gray.csv").read_text().splitlines()))
    assert len(rows) == len(gray.cases_of(True))
    assert {row["unfinished"] for row in rows} == {"0", "1"}
    assert (tmp_path / "gray.png").stat().st_size > 10_000
