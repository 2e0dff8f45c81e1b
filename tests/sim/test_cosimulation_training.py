"""Time to accuracy: configurations learn from the same examples; only the network's time and losses differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp_sim.transports import Dlcp

pytest.importorskip("torch")

from dlcp_sim.cosimulation import Baseline, Bounded, Curve, Exact, table, time_to_accuracy

STAR = ds.Star(8, rate_bps=1e9, delay_s=2e-6)
SMALL = Dlcp(datagram_bytes=576)


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    others = ds.cross_traffic(
        pairs=tuple((4 + i, i) for i in range(4)), load=0.5, bytes=100_000, duration_s=0.3
    )
    return time_to_accuracy(
        "mlp",
        STAR,
        workers=4,
        steps=25,
        compute_s=1e-3,
        looks=5,
        background=others,
        configurations=[
            Exact(transport=SMALL),
            Bounded(transport=SMALL, loss_ratio=0.3),
            Baseline(transport=ds.Ndp(), rounds=3),
        ],
    )


def test_every_arm_learns(curves: list[Curve]) -> None:
    for curve in curves:
        assert curve.loss[-1] < 0.8 * curve.loss[0]
        assert (np.diff(curve.time_s) > 0).all()
        assert curve.step.tolist() == [0, 5, 10, 15, 20, 25]
        assert curve.total_s == pytest.approx(25e-3 + curve.network_s)


def test_exact_arms_learn_the_same_whatever_the_network(curves: list[Curve]) -> None:
    exact, _, baseline = curves
    np.testing.assert_allclose(exact.loss, baseline.loss, rtol=1e-4)
    assert exact.abandoned_share == baseline.abandoned_share == 0


def test_a_bounded_arm_gives_up_some_and_stays_close(curves: list[Curve]) -> None:
    exact, bounded, _ = curves
    assert 0 < bounded.abandoned_share <= 0.3
    assert bounded.loss[-1] == pytest.approx(exact.loss[-1], rel=0.05)


def test_the_table_has_a_row_per_arm_and_times_to_a_loss_that_all_reach(curves: list[Curve]) -> None:
    lines = table(curves).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["exact", "bounded", "ndp"]
    assert "never" not in table(curves)
    assert "never" in table(curves, loss=0.0)


def test_time_to_a_loss_lies_between_looks() -> None:
    curve = Curve("a", np.array([0.0, 1.0, 2.0]), np.array([3.0, 2.0, 1.0]), 2, 0.0, 0.0)
    assert curve.time_to(2.5) == pytest.approx(0.5)
    assert curve.time_to(3.0) == 0.0
    assert curve.time_to(0.5) == math.inf


def test_arguments_out_of_range_are_named() -> None:
    with pytest.raises(ArgumentError, match="mlp"):
        time_to_accuracy("resnet", STAR)
    with pytest.raises(ArgumentError, match="2 to 8"):
        time_to_accuracy("mlp", STAR, workers=9)
