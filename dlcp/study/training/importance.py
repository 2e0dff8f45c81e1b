"""What a block is worth, for many runs at once: the twin of dlcp.torch.gradient.importance.marker.Marker for the study.

The score of a block is the mean of its squares over the running mean square of its parameter, per run and worker; its
code has four steps per octave, 128 at the parameter's average. The codes are the same as the Marker's (a test compares
them); here all messages are whole gradients of one model, and blocks lie within one parameter.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dlcp_sim.cosimulation.models import BLOCK

# As dlcp.torch.gradient.importance.marker has them.
SMOOTHING = 0.9
CODE_MAX = 254
# Of a parameter whose gradient was always 0.
_MEAN_SQUARE_MIN = 1e-30


class Importance:
    """Running mean squares and thresholds of runs × workers."""

    def __init__(self, parameter_of_block: Tensor, critical_share: Tensor) -> None:
        """`parameter_of_block`: int64[blocks]. `critical_share`: [runs], of the droppable blocks."""
        self._parameter_of_block = parameter_of_block
        self._counts = torch.bincount(parameter_of_block)
        self._critical_share = critical_share
        blocks = len(parameter_of_block)
        # Rounding: a share of a tenth of a hundred blocks is ten blocks.
        self._critical_max = (critical_share.double() * blocks + 1e-9).floor().long()
        self._mean_squares: Tensor | None = None
        self._threshold: Tensor | None = None

    def codes(self, values: Tensor) -> Tensor:
        """int32[runs, WORKERS, blocks] of values [runs, WORKERS, elements], and what end_step() needs."""
        squares = torch.unflatten(values, -1, (-1, BLOCK)).square().mean(-1)
        sums = torch.zeros(*squares.shape[:2], len(self._counts))
        sums.index_add_(-1, self._parameter_of_block, squares)
        self._now = sums / self._counts
        reference = self._now if self._mean_squares is None else self._mean_squares
        self._codes = code_of(squares / reference.clamp(min=_MEAN_SQUARE_MIN)[..., self._parameter_of_block])
        return self._codes

    def critical(self) -> Tensor:
        """bool[runs, WORKERS, blocks]: which of the blocks just coded are never abandoned."""
        if self._threshold is None:
            return self._codes > CODE_MAX
        return self._codes >= self._threshold

    def end_step(self) -> None:
        """Takes the step's values into the running mean squares and thresholds."""
        before = self._mean_squares
        self._mean_squares = self._now if before is None else SMOOTHING * before + (1 - SMOOTHING) * self._now
        ordered = self._codes.sort(-1, descending=True).values
        blocks = ordered.shape[-1]
        at = self._critical_max.clamp(max=blocks - 1)[:, None, None].expand(*ordered.shape[:2], 1)
        threshold = ordered.gather(-1, at) + 1
        threshold = torch.where(self._critical_max[:, None, None] >= blocks, 0, threshold)
        # A share of 0: none, whatever comes next.
        self._threshold = torch.where(self._critical_share[:, None, None] > 0, threshold, CODE_MAX + 1)


def code_of(score: Tensor) -> Tensor:
    """int32 codes 0 to 254 of float32 scores: four steps per octave, 128 for 1.0; 255 of what is not finite."""
    code = ((score.contiguous().view(torch.int32) >> 21) - (127 << 2) + 128).clamp(0, CODE_MAX)
    return torch.where(score.isfinite(), code, 255)
