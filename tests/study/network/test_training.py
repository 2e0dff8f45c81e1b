"""The study of training speed: what it claims, on its smallest job, and that its tables and picture come out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlcp.study.network import training
from dlcp.study.network.training import (
    Case,
    Found,
    best,
    by_condition,
    by_model,
    faster,
    main_cases,
    measure,
    sweep_cases,
)
from dlcp_sim.workloads import models

RESNET = models.resnet50()
QUARTER = replace(
    RESNET,
    layers=tuple(replace(layer, parameters=layer.parameters // 4) for layer in RESNET.layers),
    speed=replace(RESNET.speed, samples_per_s=4 * RESNET.speed.samples_per_s),
)
"""A quarter of everything, in a quarter of the time."""
HUB = Case(QUARTER, "hub", "p3", 10e9, packet_bytes=training.SMALL_BYTES)


def found(seconds: float) -> Found:
    return Found(seconds, seconds / 2, 0.01, 3, 4, 1)


def test_the_gain_with_servers_is_the_baselines_timeouts() -> None:
    """Behind shallow buffers and Linux's timeout dlcp is half as fast again at least; over tuned TCP hardly at all."""
    shallow = replace(HUB, port_bytes=128_000)
    cases = [
        replace(shallow, min_rto_s=training.STOCK_RTO_S),
        shallow,
        replace(shallow, system="dlcp bounded"),
    ]
    got = measure(cases, 1, [1], 1)
    stock, tuned, ours = (got[case] for case in cases)
    assert faster(ours, stock) > 0.5
    assert -0.1 < faster(ours, tuned) < 0.2
    assert tuned.timeouts > stock.timeouts > 0
    assert ours.timeouts == 0
    assert 0 < ours.abandoned_ratio < training.LOSS_RATIO


def test_in_a_ring_nothing_is_lost_and_nothing_gained() -> None:
    cases = [
        Case(QUARTER, "ring", system, 25e9) for system in ("fifo", "dlcp reliable", "dlcp direct bounded")
    ]
    got = measure(cases, 1, [1], 1)
    for case in cases[1:]:
        assert abs(faster(got[case], got[cases[0]])) < 0.02
        assert got[case].abandoned_ratio < 0.001


def test_the_same_for_any_number_of_processes() -> None:
    cases = [Case(QUARTER, "ring", "byte_scheduler 1", 100e9)]
    one, two = measure(cases, 1, [1, 2], 1), measure(cases, 1, [1, 2], 2)
    assert one[cases[0]].iteration_s == two[cases[0]].iteration_s
    # Seeds differ.
    assert measure(cases, 1, [1], 1)[cases[0]].iteration_s != one[cases[0]].iteration_s


def test_tables_have_a_row_per_case_and_the_best_baseline(tmp_path: Path) -> None:
    models, rates = ("resnet50", "vgg16"), (10e9,)
    buffers, timeouts = (128_000, None), (0.2, 1e-3)
    cases = [*main_cases(models, rates), *sweep_cases("resnet50", 10e9, buffers, timeouts)]
    got = {case: found(2.0 if case.system.startswith("dlcp") else 3.0) for case in cases}
    quick = Case("vgg16", "hub", "byte_scheduler 2", 10e9)
    got[quick] = found(1.0)
    assert best(got, replace(quick, system="byte_scheduler")).iteration_s == 1.0
    main = by_model(got, models, rates)
    assert len(main.rows) == 4
    assert main.rows[0][-2] == "+50.0 %"
    assert next(row for row in main.rows if row[0] == "vgg16")[-2] == "−50.0 %"
    sweep = by_condition(got, "resnet50", 10e9, buffers, timeouts)
    assert len(sweep.rows) == 4
    lines = training.notes(got, sweep, main)
    assert "published: up to +84.3 %" in lines[0]
    pytest.importorskip("matplotlib")
    training.draw(got, models, rates, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
