"""Which fraction of the values travels in a step: the options `density`, `warmup_steps` and `warmup`."""

from __future__ import annotations

import math

from dlcp.torch.gradient.options import GradientOptions

WARMUP_DENSITIES = (0.25, 0.0625, 0.015625, 0.004)
"""Of the quarters of a warm-up by densities, as in RedSync (arXiv 1808.04357) and Deep Gradient Compression."""


class Density:
    """The density of each step. `usual`: that of the recipe, where the options give none."""

    def __init__(self, options: GradientOptions, usual: float) -> None:
        self._density = usual if options.density is None else options.density
        self._warmup_steps = options.warmup_steps or 0
        self._dense_warmup = options.warmup == "dense"

    def of(self, step: int) -> float:
        """Above 0, up to 1. `step`: counted from 0."""
        if step >= self._warmup_steps:
            return self._density
        if self._dense_warmup:
            return 1.0
        return max(self._density, WARMUP_DENSITIES[len(WARMUP_DENSITIES) * step // self._warmup_steps])


def count_of(density: float, numel: int) -> int:
    """How many of `numel` elements travel: at least one, if there is one."""
    # A density that is a rounded fraction must not give one more.
    return min(numel, max(1, math.ceil(density * numel - 1e-6)))
