"""When a training is in a critical phase."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlcp.torch.gradient.loss.phase import Phase, PhaseRule

RULE = PhaseRule(interval_steps=4, change=0.5, critical_scale=0.25)


def _scales(phase: Phase, norms: list[float | None]) -> list[float]:
    return [phase.end_step(norm) for norm in norms]


def test_phase_begins_critical_and_a_first_interval_proves_nothing() -> None:
    phase = Phase(RULE)
    assert (phase.critical, phase.scale) == (True, 0.25)
    assert _scales(phase, [1.0] * 7) == [0.25] * 7
    assert phase.end_step(1.0) == 1.0


@pytest.mark.parametrize(
    ("then", "critical"), [(1.49, False), (1.5, True), (3.0, True), (0.51, False), (0.5, True), (0.0, True)]
)
def test_phase_is_critical_if_the_norm_changed_by_half(then: float, critical: bool) -> None:
    phase = Phase(RULE)
    _scales(phase, [1.0] * 8)
    assert not phase.critical
    _scales(phase, [then] * 4)
    assert phase.critical is critical


def test_phase_compares_means_of_intervals_not_steps() -> None:
    phase = Phase(RULE)
    _scales(phase, [1.0] * 8)
    # Single steps jump; their mean does not.
    _scales(phase, [0.1, 2.0, 0.1, 1.8])
    assert not phase.critical
    # A slow drift over many intervals is no change within one.
    for drift in range(12):
        _scales(phase, [1.3**drift] * 4)
        assert not phase.critical


def test_phase_leaves_skipped_steps_out() -> None:
    phase = Phase(RULE)
    _scales(phase, [1.0] * 4)
    assert _scales(phase, [None, float("inf"), float("nan"), 1.2]) == [0.25, 0.25, 0.25, 1.0]
    # An interval without a norm changes nothing, and the next is compared with the last that had one.
    _scales(phase, [None] * 4)
    assert not phase.critical
    _scales(phase, [1.2 * 1.6] * 4)
    assert phase.critical


def test_phase_after_a_zero_gradient_is_critical_once_there_is_one() -> None:
    phase = Phase(RULE)
    _scales(phase, [0.0] * 8)
    # No change of nothing is a change by half of it, too.
    assert phase.critical
    _scales(phase, [1.0] * 4)
    assert phase.critical


def test_phase_without_a_rule_never_narrows() -> None:
    phase = Phase(None)
    assert (phase.critical, phase.scale) == (False, 1.0)
    assert _scales(phase, [1.0, 100.0, None]) == [1.0] * 3


def test_phase_is_the_same_on_all_ranks_and_after_a_resume() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        rule = PhaseRule(int(rng.integers(1, 6)), float(rng.uniform(0.1, 1.0)), float(rng.uniform(0, 1)))
        norms = [float(norm) if rng.random() < 0.9 else None for norm in rng.lognormal(0, 1, 60)]
        one, other = Phase(rule), Phase(rule)
        stop = int(rng.integers(60))
        scales = _scales(one, norms)
        assert _scales(other, norms[:stop]) == scales[:stop]
        resumed = Phase(rule)
        resumed.load_state_dict(other.state_dict())
        assert resumed.scale == other.scale
        assert _scales(resumed, norms[stop:]) == scales[stop:]
        assert set(scales) <= {rule.critical_scale, 1.0}


def test_phase_loaded_without_a_rule_is_not_critical() -> None:
    phase = Phase(None)
    phase.load_state_dict(Phase(RULE).state_dict())
    assert phase.scale == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval_steps": 0},
        {"change": 0.0},
        {"change": float("inf")},
        {"critical_scale": -0.1},
        {"critical_scale": 1.1},
        {"critical_scale": float("nan")},
    ],
)
def test_phase_rule_refuses_what_it_does_not_accept(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; accepted"):
        PhaseRule(**wrong)


def test_phase_refuses_a_negative_norm() -> None:
    with pytest.raises(ValueError, match="gradient_norm is -1"):
        Phase(RULE).end_step(-1.0)
