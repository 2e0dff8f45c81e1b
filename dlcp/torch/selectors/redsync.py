"""The selectors of RedSync (Fang et al., Journal of Parallel and Distributed Computing 2019, arXiv 1808.04357).

All begin with thresholds between the mean and the largest magnitude. `Trimmed` lowers a threshold step by step
and then selects exactly among what reaches it. `Binary` searches for a threshold that k to 2 k elements reach
and selects all these. `SampledThreshold` makes the search once in several steps and uses its threshold in
between.

What is done otherwise than in published copies: the binary search lowers the threshold whenever fewer than k
elements reach it. Copies do so below k / 2 only and raise it from there to k, so that they settle at about k /
2. They also stop after a few probes, far from k. Below the mean: bisection.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dlcp.checks import integer, number
from dlcp.torch.selectors.bisection import Bracket, Magnitudes, bisect
from dlcp.torch.selectors.largest import Largest
from dlcp.torch.selectors.selector import check, trivial


class Trimmed:
    """Selects exactly k elements, the same as `Largest`.

    `step`: by how much the threshold is lowered in turn, as a part of the distance from the mean to the largest
    magnitude; above 0, below 1. Heavy tails make it trim little: the maximum is far out, and the first
    threshold that k elements reach is near the mean.
    """

    fixed_length = True

    def __init__(self, step: float = 0.2) -> None:
        self._step = number("step", step, 0, 1, above=True, below=True)
        self._largest = Largest()

    def select(self, values: Tensor, k: int) -> Tensor:
        """As Selector.select. On CUDA it waits for the device in each pass."""
        values = check(values, k)
        if (indices := trivial(values, k)) is not None:
            return indices
        magnitudes = Magnitudes(values)
        survivors = magnitudes.reaching(trim_threshold(magnitudes, k, self._step))
        return survivors[self._largest.select(values[survivors], k)]


class Binary:
    """Selects k to 2 k elements: all that reach a threshold.

    Where no threshold is reached by k to 2 k elements (equal values), or `probes` do not find one, it selects
    exactly k: those that reach the upper threshold of the search, and the first of those between the
    thresholds.
    """

    fixed_length = False

    def __init__(self, probes: int = 32) -> None:
        self._probes = integer("probes", probes, 1)

    def select(self, values: Tensor, k: int) -> Tensor:
        """As Selector.select, but up to 2 k indices. On CUDA it waits for the device in each pass."""
        values = check(values, k)
        if (indices := trivial(values, k)) is not None:
            return indices
        magnitudes = Magnitudes(values)
        return _cut(magnitudes, k, bisect(magnitudes, k, most=2 * k, passes=self._probes))


class SampledThreshold:
    """Selects k / 2 to 2 k elements: those that reach the threshold of an earlier step.

    The threshold is that of `Binary`, searched once in `interval` steps, 1 or more; `probes` as of Binary. One
    selector for one buffer, step after step. The search is made earlier if the old threshold selects less than
    k / 2 or more than 2 k elements, as with another k or after a change of the gradient's scale.
    """

    fixed_length = False

    def __init__(self, interval: int = 5, probes: int = 32) -> None:
        self._interval = integer("interval", interval, 1)
        self._probes = integer("probes", probes, 1)
        self._threshold = math.nan
        self._steps_left = 0

    @property
    def state(self) -> tuple[float, int]:
        """The threshold, and for how many selections more it is used; may be set."""
        return self._threshold, self._steps_left

    @state.setter
    def state(self, state: tuple[float, int]) -> None:
        self._threshold, self._steps_left = state

    def select(self, values: Tensor, k: int) -> Tensor:
        """As Selector.select, but k / 2 to 2 k indices. On CUDA it waits for the device."""
        values = check(values, k)
        if (indices := trivial(values, k)) is not None:
            return indices
        magnitudes = Magnitudes(values)
        if self._steps_left > 0:
            self._steps_left -= 1
            if k <= 2 * magnitudes.count(self._threshold) <= 4 * k:
                return magnitudes.reaching(self._threshold)
        bracket = bisect(magnitudes, k, most=2 * k, passes=self._probes)
        self._threshold = bracket.lower
        self._steps_left = self._interval - 1
        return _cut(magnitudes, k, bracket)


def trim_threshold(magnitudes: Magnitudes, k: int, step: float) -> float:
    """The first of mean + (1 - i step) (largest - mean), i = 1, 2, ..., that at least k elements reach.

    The mean itself is the last of them; 0 follows.
    """
    mean, largest = magnitudes.mean_and_max()
    for i in range(1, math.ceil(1 / step)):
        threshold = mean + (1 - i * step) * (largest - mean)
        if magnitudes.count(threshold) >= k:
            return threshold
    return mean if magnitudes.count(mean) >= k else 0.0


def _cut(magnitudes: Magnitudes, k: int, bracket: Bracket) -> Tensor:
    """All that reach the lower threshold, if they are not more than 2 k; otherwise k, as Binary says."""
    if bracket.lower_count <= 2 * k:
        return magnitudes.reaching(bracket.lower)
    first = magnitudes.between(bracket.lower, bracket.upper)[: k - bracket.upper_count]
    return torch.cat([magnitudes.reaching(bracket.upper), first]).sort().values
