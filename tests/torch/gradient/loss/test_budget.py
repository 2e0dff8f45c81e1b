"""The budget of a step: never more than what its buffers bring, whatever is spent when."""

from __future__ import annotations

import random

import pytest

from dlcp.torch.gradient.loss.budget import StepBudget

CASES = 300


def run_step(
    budget: StepBudget, draw: random.Random, buffers: list[tuple[float, float]], greed: float
) -> list[float]:
    """One step of (bytes, budget) per buffer, of which each loses `greed` of what it may; the fractions given."""
    under_way: list[tuple[int, float]] = []
    ratios, lost, allowed = [], 0.0, 0.0
    for index, (nbytes, ratio) in enumerate(buffers):
        allowed += nbytes * ratio
        given = budget.give(index, nbytes, ratio)
        ratios.append(given)
        under_way.append((index, given * nbytes * greed))
        assert budget.committed_bytes <= allowed * (1 + 1e-9) + 1e-9
        while under_way and draw.random() < 0.5:
            over, abandoned = under_way.pop(draw.randrange(len(under_way)))
            budget.settle(over, abandoned)
            lost += abandoned
    for over, abandoned in under_way:
        budget.settle(over, abandoned)
        lost += abandoned
    assert lost <= sum(nbytes * ratio for nbytes, ratio in buffers) * (1 + 1e-9) + 1e-9
    budget.end_step()
    return ratios


@pytest.mark.parametrize("whole_step", [True, False])
@pytest.mark.parametrize("seed", range(CASES // 20))
def test_no_step_loses_more_than_its_budget(seed: int, whole_step: bool) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        cap = draw.choice([0.0, 0.1, 0.5, 0.99])
        budget = StepBudget(loss_cap=cap, whole_step=whole_step)
        for _ in range(4):
            # Other buffers than in the step before: torch rebuilds them.
            buffers = [
                (float(draw.choice([0, 64, 4096, 10**6, 10**9])), draw.choice([0.0, 0.01, 0.05, 0.3, 0.9]))
                for _ in range(draw.randrange(1, 12))
            ]
            ratios = run_step(budget, draw, buffers, draw.choice([0.0, 0.3, 1.0]))
            assert all(0.0 <= ratio <= cap for ratio in ratios)


def test_under_scope_buffer_each_buffer_has_its_own() -> None:
    budget = StepBudget(loss_cap=0.5, whole_step=False)
    for _ in range(3):
        assert run_step(budget, random.Random(1), [(1000.0, 0.1)] * 4, 0.0) == pytest.approx([0.1] * 4)


def test_under_scope_step_late_buffers_get_more_than_early_ones() -> None:
    budget = StepBudget(loss_cap=0.9, whole_step=True)
    run_step(budget, random.Random(1), [(1000.0, 0.1)] * 8, 1.0)
    ratios = run_step(budget, random.Random(1), [(1000.0, 0.1)] * 8, 1.0)
    assert ratios == sorted(ratios)
    assert ratios[0] < 0.1 < ratios[-1]
    # All of the step's budget is given out.
    assert sum(ratios) == pytest.approx(0.8)


def test_what_early_buffers_leave_the_last_may_spend() -> None:
    budget = StepBudget(loss_cap=0.9, whole_step=True)
    for _ in range(2):
        ratios = run_step(budget, random.Random(1), [(1000.0, 0.1)] * 8, 0.0)
    assert ratios[-1] > 0.3


def test_nothing_is_carried_into_the_next_step() -> None:
    budget = StepBudget(loss_cap=0.9, whole_step=True)
    for _ in range(10):
        run_step(budget, random.Random(1), [(1000.0, 0.1)] * 4, 0.0)
    assert sum(run_step(budget, random.Random(1), [(1000.0, 0.1)] * 4, 1.0)) <= 0.4 * (1 + 1e-9)


def test_an_empty_buffer_gets_nothing() -> None:
    assert StepBudget(loss_cap=0.5, whole_step=True).give("empty", 0.0, 0.5) == 0.0
