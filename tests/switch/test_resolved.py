"""A policy as integers: what stands for never, what ratios round to, and that every target takes the same ones."""

from __future__ import annotations

import pytest

from dlcp import _native
from dlcp.switch import Policy, Port, Thresholds, TrafficClass
from dlcp.switch.entries import mark_steps
from dlcp.switch.resolved import NEVER_BYTES, ResolvedThresholds, resolved_ratio
from dlcp.switch.tofino import mark_ranges

MARKS = Thresholds(40_000, 80_000, 0.1, drop_above_bytes=120_000)
CLASS = TrafficClass(3, dscp=(24,), critical=MARKS, droppable=(Thresholds(drop_above_bytes=60_000),))
TIGHT = TrafficClass(3, critical=Thresholds(1_000))
POLICY = Policy(classes=(CLASS,), ports=(Port("a", 10**9, (TIGHT,)),), port_bytes=10**6, trimmed_class=3)


def test_never_is_that_of_the_native_switch() -> None:
    assert NEVER_BYTES == _native.SWITCH_NEVER


@pytest.mark.parametrize(
    ("ratio", "parts"), [(0.0, 0), (1e-6, 0), (1e-5, 1), (0.1, 6554), (0.5, 32768), (1.0, 65535)]
)
def test_ratio_is_rounded_to_the_nearest_part(ratio: float, parts: int) -> None:
    assert resolved_ratio(ratio) == parts


def test_levels_are_eight_droppable_ones_and_the_critical_one() -> None:
    levels = POLICY.resolved().thresholds[3]
    droppable = ResolvedThresholds(NEVER_BYTES, NEVER_BYTES, 65535, NEVER_BYTES, 60_000)
    assert levels == (*[droppable] * 8, (40_000, 80_000, 6554, NEVER_BYTES, 120_000))


def test_step_ends_where_it_begins() -> None:
    assert Thresholds(1_000).resolved()[:2] == (1_000, 1_000)


def test_port_has_thresholds_of_its_own() -> None:
    assert POLICY.resolved("a").thresholds[3][8].mark_from_bytes == 1_000
    assert POLICY.resolved("b") == POLICY.resolved()


def test_buffer_and_trimmed_dscp() -> None:
    assert (POLICY.resolved().port_bytes, POLICY.resolved().shared_bytes) == (10**6, 0)
    assert (Policy(shared_bytes=5).resolved().port_bytes, Policy(shared_bytes=5).resolved().shared_bytes) == (
        NEVER_BYTES,
        5,
    )
    assert POLICY.resolved().trimmed_dscp == 24
    assert Policy().resolved().trimmed_dscp is None


def test_tables_and_a_tofino_mark_with_the_same_ratios() -> None:
    ratios = [ratio for _, _, ratio in mark_steps(MARKS)]
    *ramp, (_, _, full) = mark_ranges(MARKS, 2_000)
    assert [ratio for _, _, ratio in ramp] == ratios
    assert full == 6554
