"""A residual memory as slow and plain as can be: dense float64 arrays per parameter, one rule after the other.

It also keeps the books that the real one cannot, element by element: what came in, what was delivered, what momentum
made, what was written off.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.residual.rule import ResidualRule

Array = NDArray[np.float64]


class Parameter:
    """All there is to say of one parameter's elements."""

    def __init__(self, numel: int) -> None:
        self.held = np.zeros(numel, bool)
        self.value = np.zeros(numel)
        self.velocity = np.zeros(numel)
        self.age = np.zeros(numel, np.int64)
        self.given = np.zeros(numel)
        self.made = np.zeros(numel)
        self.delivered = np.zeros(numel)
        self.expired = np.zeros(numel)
        self.decayed = np.zeros(numel)
        self.magnitude = np.zeros(numel)
        """Sum of all sizes that went through additions: what rounding is relative to."""


class Twin:
    """As ResidualMemory, of whole parameters; gradients are given unscaled."""

    def __init__(self, rule: ResidualRule, numels: dict[str, int]) -> None:
        self.rule = rule
        self.parameters = {name: Parameter(numel) for name, numel in numels.items()}
        self.before = copy.deepcopy(self.parameters)
        self.expired_elements = self.not_finite_elements = 0
        self.energies = {"expired": 0.0, "decayed": 0.0}
        self.books = (0, 0, dict(self.energies))

    def exchange(
        self,
        gradient: Array,
        delivered: Array,
        layout: Layout,
        given_up: Iterable[int],
        left_alone: Collection[str] = (),
    ) -> None:
        """One buffer: `gradient` as backward made it, `delivered` what really left, and which did not arrive.

        `left_alone`: parameters that add_to was not told of.
        """
        lost = np.zeros(layout.numel, bool)
        lost[list(given_up)] = True
        for segment in layout.segments:
            p = self.parameters[segment.name]
            element = self._beside if segment.name in left_alone else self._element
            for i in range(segment.count):
                element(
                    p,
                    segment.offset + i,
                    gradient[segment.begin + i],
                    delivered[segment.begin + i],
                    lost[segment.begin + i],
                )

    def _element(self, p: Parameter, i: int, gradient: float, delivered: float, lost: bool) -> None:
        m = self.rule.momentum or 0.0
        old_value, old_velocity, old_age, was_held = p.value[i], p.velocity[i], p.age[i], p.held[i]
        p.held[i], p.value[i], p.velocity[i], p.age[i] = False, 0.0, 0.0, 0
        finite = np.isfinite(gradient)
        g = gradient if finite else 0.0
        p.given[i] += g
        p.made[i] += m * old_velocity
        p.magnitude[i] += abs(g) + abs(old_value) + abs(m * old_velocity)
        if not lost:
            p.delivered[i] += delivered
            return
        self.not_finite_elements += not finite
        p.held[i] = True
        p.velocity[i] = m * old_velocity + g
        p.value[i] = g + old_value + m * old_velocity
        p.age[i] = old_age
        if was_held and self.rule.age_max is not None and old_age + 1 > self.rule.age_max:
            self._expire(p, i, old_value + m * old_velocity)
            p.value[i], p.velocity[i], p.age[i] = g, g, 0

    def _beside(self, p: Parameter, i: int, gradient: float, delivered: float, lost: bool) -> None:
        finite = np.isfinite(gradient)
        g = gradient if finite else 0.0
        p.given[i] += g
        p.magnitude[i] += abs(g) + abs(p.value[i])
        if not lost:
            p.delivered[i] += delivered
            return
        self.not_finite_elements += not finite
        p.held[i] = True
        p.value[i] += g
        p.velocity[i] += g

    def _expire(self, p: Parameter, i: int, value: float) -> None:
        p.expired[i] += value
        self.expired_elements += 1
        self.energies["expired"] += value * value

    def end_step(self, applied: bool) -> None:
        """As the real one's."""
        if not applied:
            self.parameters = copy.deepcopy(self.before)
            self.expired_elements, self.not_finite_elements = self.books[:2]
            self.energies = dict(self.books[2])
            return
        for p in self.parameters.values():
            for i in np.flatnonzero(p.held):
                p.age[i] += 1
                old = self.rule.age_max is not None and p.age[i] > self.rule.age_max
                if old or self.rule.decay == 0.0:
                    self._expire(p, i, p.value[i])
                    p.held[i], p.value[i], p.velocity[i], p.age[i] = False, 0.0, 0.0, 0
                else:
                    gone = (1 - self.rule.decay) * p.value[i]
                    p.decayed[i] += gone
                    self.energies["decayed"] += gone * gone
                    p.value[i] -= gone
        self.before = copy.deepcopy(self.parameters)
        self.books = (self.expired_elements, self.not_finite_elements, dict(self.energies))
