"""What becomes of values that were abandoned, for many runs at once: zero, rescaled, kept, or spread beforehand.

The twin of dlcp.torch.gradient's fills for the study (a test holds the residual to ResidualMemory): there a few ranges
of a rank's buffer are kept, here dense tensors [runs, WORKERS, elements] hold all runs.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from dlcp.study.training.lockstep import MOMENTUM
from dlcp_sim.cosimulation.models import BLOCK
from dlcp_sim.cosimulation.tasks import WORKERS

Fill = Literal["zero", "rescale", "residual", "masked", "hadamard"]
"""zero: counts as nothing. rescale: the sum is divided by the contributions that came. residual: kept, decayed each
step that it waits, added to the next step's. masked: a residual with momentum corrected and masked, see ResidualMemory.
hadamard: zero, behind a randomised Hadamard transform."""


class Filling:
    """The fill of runs that all have the same one; holds what they keep."""

    def __init__(self, fill: Fill, decay: Tensor) -> None:
        """`decay`: [runs], of what is kept, each step that it waits; read by "residual" and "masked" alone."""
        self._fill = fill
        self._decay = decay[:, None, None]
        self._kept: Tensor | None = None
        self._velocity: Tensor | None = None

    def compensate(self, gradients: Tensor, step: int) -> Tensor:
        """What the workers send, [runs, WORKERS, elements]; may be `gradients` itself, changed."""
        if self._fill == "hadamard":
            return hadamard_(gradients.mul_(_signs(gradients.shape[-1], step)))
        if self._velocity is not None:
            # As the optimizer's momentum.
            gradients = self._velocity.mul_(MOMENTUM).add_(gradients)
        if self._kept is not None:
            return torch.addcmul(gradients, self._kept, self._decay)
        return gradients

    def settle(self, sent: Tensor, abandoned: Tensor, step: int) -> Tensor:
        """The mean that every worker ends with, [runs, elements], of what was sent less what was abandoned.

        `abandoned`: bool[runs, WORKERS, blocks]. Values of a run that diverged are not finite and stay so.
        """
        blocks = torch.unflatten(sent, -1, (-1, BLOCK))
        delivered = (~abandoned).to(sent.dtype)[..., None]
        lost = abandoned.to(sent.dtype)[..., None]
        if self._fill == "masked":
            velocity = sent if self._velocity is None else self._velocity
            self._velocity = (torch.unflatten(velocity, -1, (-1, BLOCK)) * lost).flatten(2)
        if self._fill in ("residual", "masked"):
            self._kept = (blocks * lost).flatten(2)
        total = (blocks * delivered).sum(1)
        if self._fill == "rescale":
            mean = total / delivered.sum(1).clamp(min=1.0)
        else:
            mean = total / WORKERS
        if self._fill == "hadamard":
            return hadamard_(mean.flatten(1)).mul_(_signs(sent.shape[-1], step))
        return mean.flatten(1)


# --- the transform --------------------------------------------------------------------------------------------


def hadamard_(values: Tensor) -> Tensor:
    """The orthonormal Walsh-Hadamard transform of the last dimension, in pieces of a power of two; its own inverse."""
    at, length = 0, values.shape[-1]
    while at < length:
        log2 = (length - at).bit_length() - 1
        piece = values[..., at : at + (1 << log2)]
        # H of 2^a * 2^b is the Kronecker product of H of 2^a and of 2^b: two products of small matrices.
        first, second = _matrix(log2 - log2 // 2), _matrix(log2 // 2)
        square = torch.unflatten(piece, -1, (len(first), len(second)))
        piece.copy_((first @ square @ second).flatten(-2))
        at += 1 << log2
    return values


def _matrix(log2: int) -> Tensor:
    matrix = torch.ones(1, 1)
    for _ in range(log2):
        matrix = torch.kron(matrix, torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2.0))
    return matrix


def _signs(length: int, step: int) -> Tensor:
    """The step's signs, alike on all workers."""
    draw = torch.Generator().manual_seed(step)
    return torch.randint(2, (length,), generator=draw).float().mul_(2).sub_(1)
