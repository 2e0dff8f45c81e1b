"""Phases of a training in which less may be lost.

As DBLP (arXiv 2605.01989): while the norm of the gradient changes much, training is in a *critical* phase and little
may be lost; else more. It begins critical, and is checked once per interval, the paper's epoch. The paper has two
budgets, P_low (what a model bears at any time, 0.8 to 2.4 %) and P_high (40 points more); here the budget that the user
gives is the high one and a critical phase multiplies it.

All ranks decide alike as long as all are given the same numbers: the norm of the *averaged* gradient, which is equal on
all ranks, never of a rank's own. Should processors round a norm differently at the very threshold, ranks differ in how
much they may lose for an interval, and in nothing else: results stay equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlcp import checks


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """When less may be lost, and how much less. Must be the same on all ranks.

    The phase that follows a check is critical if the mean norm since the check before differs from the mean of the
    interval before that by at least `change` of it; a mean, since norms of single steps differ by more than training
    does. Off unless given: GradientOptions.phase.
    """

    interval_steps: int = 100
    """Steps between checks; those of an epoch, for the paper's rule."""
    change: float = 0.5
    """Of the norm, relative; the paper's 50 %."""
    critical_scale: float = 0.2
    """What budgets are multiplied by in a critical phase, 0 to 1: so a budget of 5 % becomes 1 %, which is within what
    the paper allows then."""

    def __post_init__(self) -> None:
        checks.integer("interval_steps", self.interval_steps, 1)
        checks.number("change", self.change, 0, above=True)
        checks.number("critical_scale", self.critical_scale, 0, 1)


class Phase:
    """The phase that a training is in, under a rule; None: never critical."""

    def __init__(self, rule: PhaseRule | None) -> None:
        self.rule = rule
        self.critical = rule is not None
        """Whether little may be lost now."""
        self._steps = 0
        self._norms = 0
        self._sum = 0.0
        self._previous: float | None = None

    @property
    def scale(self) -> float:
        """What budgets are multiplied by now, 0 to 1."""
        return self.rule.critical_scale if self.rule is not None and self.critical else 1.0

    def end_step(self, gradient_norm: float | None) -> float:
        """A step is over: the scale for the next one.

        `gradient_norm`: L2, of the averaged gradient, unscaled and before clipping; None or not finite (a step that was
        skipped): the step counts, its norm does not. An interval without a norm changes nothing. Raises ValueError: it
        is negative.
        """
        if gradient_norm is not None and gradient_norm < 0:
            raise ValueError(f"gradient_norm is {gradient_norm}; accepted: 0 or more, or None")
        if self.rule is None:
            return 1.0
        self._steps += 1
        if gradient_norm is not None and math.isfinite(gradient_norm):
            self._norms += 1
            self._sum += gradient_norm
        if self._steps >= self.rule.interval_steps:
            self._check(self.rule)
        return self.scale

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "critical": self.critical,
            "steps": self._steps,
            "norms": self._norms,
            "sum": self._sum,
            "previous": self._previous,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was taken; under a rule of None the state has no effect."""
        self.critical = bool(state["critical"]) and self.rule is not None
        self._steps, self._norms = int(state["steps"]), int(state["norms"])
        self._sum = float(state["sum"])
        self._previous = None if state["previous"] is None else float(state["previous"])

    def _check(self, rule: PhaseRule) -> None:
        if self._norms:
            mean = self._sum / self._norms
            if self._previous is not None:
                self.critical = abs(mean - self._previous) >= rule.change * self._previous
            self._previous = mean
        self._steps, self._norms, self._sum = 0, 0, 0.0
