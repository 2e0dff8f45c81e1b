"""Search for a threshold that a wanted number of magnitudes reach, by counting passes over the data.

MSTopK and RedSync both cut an interval of thresholds in halves. Published code begins with the interval from
the mean to the maximum, which misses every k above the number of elements that reach the mean (29 to 43 % of
them in usual distributions); here the search goes below the mean then. It ends with two thresholds, an upper
one that too few elements reach and a lower one that enough reach, also where no threshold fits, as with many
equal values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dlcp.transport import gradient


class Magnitudes:
    """Magnitudes that thresholds are compared with. NaN counts as infinite.

    float16 and bfloat16 become float32. A threshold is rounded to the type of the magnitudes. No magnitude
    reaches the threshold NaN.
    """

    def __init__(self, values: Tensor) -> None:
        wide = values if values.dtype == torch.float64 else values.float()
        self._values = wide.abs().nan_to_num_(nan=math.inf, posinf=math.inf)

    def __len__(self) -> int:
        return self._values.numel()

    def mean_and_max(self) -> tuple[float, float]:
        """Of the finite ones; an infinite one counts as 0."""
        values = self._values
        if math.isinf(values.max().item()):
            values = torch.where(values.isinf(), 0.0, values)
        mean = values.mean().item()
        if math.isinf(mean):  # the sum overflows
            mean = values.mean(dtype=torch.float64).item()
        return mean, values.max().item()

    def count(self, threshold: float) -> int:
        """How many reach it: one pass over the data."""
        values = self._values
        if values.dtype == torch.float32 and values.device.type == "cpu":
            return gradient.count_reaching(values.data_ptr(), values.numel(), threshold)
        return int(torch.count_nonzero(values >= threshold))

    def reaching(self, threshold: float) -> Tensor:
        """The indices of those that reach it, ascending."""
        return (self._values >= threshold).nonzero().squeeze(1)

    def between(self, lower: float, upper: float) -> Tensor:
        """The indices of those that reach `lower` but not `upper`, ascending."""
        return ((self._values >= lower) & ~(self._values >= upper)).nonzero().squeeze(1)


class Bracket(NamedTuple):
    """Two thresholds, and how many elements reach each."""

    upper: float
    """At most k elements reach it. NaN if more than k are infinite."""
    upper_count: int
    lower: float
    """At least k elements reach it: not more than were accepted, if the search found such a threshold."""
    lower_count: int


def bisect(magnitudes: Magnitudes, k: int, most: int, passes: int) -> Bracket:
    """The tightest bracket of k among the thresholds probed, ended by one that k to `most` elements reach.

    `passes`: how many thresholds of the interval are probed at most. Two passes more find the interval.
    """
    infinite = magnitudes.count(math.inf)
    if infinite >= k:
        return Bracket(math.nan, 0, math.inf, infinite)
    mean, end = magnitudes.mean_and_max()
    begin, reached = mean, magnitudes.count(mean)
    if reached >= k:
        bracket = Bracket(math.inf, infinite, mean, reached)
    else:
        bracket = Bracket(mean, reached, 0.0, len(magnitudes))
        begin, end = 0.0, mean
    low, high = 0.0, 1.0
    for _ in range(passes):
        if bracket.lower_count <= most:
            break
        middle = (low + high) / 2
        threshold = begin + middle * (end - begin)
        reached = magnitudes.count(threshold)
        if reached >= k:
            low = middle
            if reached < bracket.lower_count:
                bracket = bracket._replace(lower=threshold, lower_count=reached)
        else:
            high = middle
            if reached > bracket.upper_count:
                bracket = bracket._replace(upper=threshold, upper_count=reached)
    return bracket
