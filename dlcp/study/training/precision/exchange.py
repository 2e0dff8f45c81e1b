"""The exchange of coded gradients, for many trainings at once: contributions to the owner, and the owner's return.

A sender adds what it kept to its gradient, sends the code of that, and keeps what the code leaves. The owner adds the
decoded contributions in rank order, divides, adds what it kept, and returns the code of that; all apply the same.
Invariant: what was put in is what was applied and what is kept: sum of gradients / N = sum of results + mean of the
senders' residuals + the owner's. A residual is exact in float32 (dlcp/torch/codec.py); only sums round.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dlcp.study.training.precision.arm import DENSE, WARMUP_CODEC, Arm, bits_of
from dlcp.study.training.precision.capacity import Shares
from dlcp.study.training.precision.rounding import rounded
from dlcp.transport.coded import GROUP_VALUES
from dlcp_sim.cosimulation.tasks import WORKERS


def _turn() -> Tensor:
    """Hadamard's matrix of GROUP_VALUES, orthonormal: a turn of a group."""
    matrix = torch.ones(1, 1)
    while len(matrix) < GROUP_VALUES:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix.div(len(matrix) ** 0.5)


TURN = _turn()


class Exchange:
    """The exchange of trainings of one arm; holds what senders and owners keep."""

    def __init__(self, arm: Arm, groups: int, seeds: Sequence[int], row: Tensor) -> None:
        """`groups`: of a gradient. `seeds`: of chance; `row` int64[trainings]: each training's place in them."""
        self._arm = arm
        self._row = row
        self._draws = [torch.Generator().manual_seed(1_000_003 * seed + 3) for seed in seeds]
        self._shares = Shares(arm, [torch.Generator().manual_seed(1_000_003 * seed + 4) for seed in seeds])
        self.sender_kept = torch.zeros(len(row), WORKERS, groups, GROUP_VALUES)
        self.owner_kept = torch.zeros(len(row), groups, GROUP_VALUES)
        self._block_of_group = torch.arange(groups) // arm.block_groups
        blocks = int(self._block_of_group[-1]) + 1
        owner_of_block = torch.arange(blocks) * WORKERS // blocks
        self._owner_of_group = owner_of_block[self._block_of_group]
        self._owned = torch.bincount(owner_of_block, minlength=WORKERS).tolist()
        # Of counts that are not whole, the rest goes to the next step.
        self._carried = torch.full((len(row), 2, WORKERS), 0.5)
        self._bits = torch.zeros(len(row))
        self._steps = 0

    def mean(self, gradients: Tensor) -> Tensor:
        """float32[trainings, groups, 64]: what is applied, of `gradients` [trainings, WORKERS, groups, 64]."""
        shares = self._shares.draw()[self._row]
        sent, kept, sent_bits = self._code(gradients + self.sender_kept, shares[:, 0], owner=False)
        if self._arm.feedback != "none":
            self.sender_kept = kept
        total = sent[:, 0].clone()
        for rank in range(1, WORKERS):
            total += sent[:, rank]
        total = total.div_(WORKERS).add_(self.owner_kept)
        result, kept, returned_bits = self._code(total, shares[:, 1], owner=True)
        if self._arm.feedback == "both":
            self.owner_kept = kept
        self._bits += (sent_bits + returned_bits) / 2
        self._steps += 1
        return result

    def bits(self) -> Tensor:
        """float32[trainings]: bits that a value took, in the mean over steps and the two halves."""
        return self._bits / max(1, self._steps)

    def _code(self, values: Tensor, shares: Tensor, *, owner: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Decoded values, what the code leaves of them, and bits per value [trainings].

        `values`: [trainings, WORKERS, groups, 64], or the owners' [trainings, groups, 64]. `shares`: [trainings,
        WORKERS], as Shares draws them.
        """
        arm, trainings = self._arm, len(values)
        codec = arm.returned if owner and arm.returned else arm.codec
        if self._steps < arm.warmup_steps:
            codec = WARMUP_CODEC
        if codec == DENSE:
            return values, torch.zeros_like(values), torch.full((trainings,), 32.0)
        if arm.wider:
            return self._code_wider(values, shares, owner=owner)
        decoded = self._rounded(values, codec)
        left = values - decoded
        bits = torch.full((trainings,), bits_of(codec, arm.scale_values))
        if not arm.layers:
            return decoded, left, bits
        layers, after = [], left
        for _ in range(arm.layers):
            layers.append(rounded(after, arm.refinement))
            after = after - layers[-1]
        chosen = self._choose(left, layers, shares, owner=owner)
        for place, layer in enumerate(layers):
            arrived = layer * chosen[..., place, :, None]
            decoded += arrived
            left -= arrived
        refined = chosen.flatten(1).mean(1) * arm.layers
        return decoded, left, bits + refined * bits_of(arm.refinement)

    def _rounded(self, values: Tensor, codec: str) -> Tensor:
        arm = self._arm
        if not arm.turned:
            return rounded(values, codec, arm.scale_values, arm.scale)
        # The matrix is its own inverse.
        return rounded(values @ TURN, codec, arm.scale_values, arm.scale) @ TURN

    def _code_wider(self, values: Tensor, which: Tensor, *, owner: bool) -> tuple[Tensor, Tensor, Tensor]:
        """As _code, each rank with the codec that it has room for."""
        if owner:
            # Each owner's groups are as it decides.
            which = which[:, self._owner_of_group]
        codecs = (self._arm.codec, *self._arm.wider)
        decoded = rounded(values, codecs[0])
        for place, codec in enumerate(codecs[1:], 1):
            chosen = which == place
            decoded[chosen] = rounded(values[chosen], codec)
        bits = torch.tensor([bits_of(codec) for codec in codecs])[which]
        return decoded, values - decoded, bits.mean(1)

    def _choose(self, left: Tensor, layers: list[Tensor], shares: Tensor, *, owner: bool) -> Tensor:
        """float32[..., layers, groups]: 1 where the layer of a group arrives, 0 where it does not."""
        scores = self._scores(left, layers)
        counts = [len(layers) * sum(self._owned)] * WORKERS
        if owner:
            counts = [len(layers) * owned for owned in self._owned]
        due = shares * torch.tensor(counts) + self._carried[:, int(owner)]
        whole = due.floor()
        self._carried[:, int(owner)] = due - whole
        if owner:
            # Each owner chooses among its own blocks.
            parts = zip(torch.split(scores, self._owned, -1), whole.unbind(1), strict=True)
            chosen = torch.cat([_first(part, count) for part, count in parts], -1)
        else:
            chosen = _first(scores, whole)
        return chosen[..., self._block_of_group].float()

    def _scores(self, left: Tensor, layers: list[Tensor]) -> Tensor:
        """[..., layers, blocks]: what comes first has more. No layer of a block comes before one that it refines."""
        if self._arm.order == "random":
            blocks = sum(self._owned)
            shape = (*left.shape[1:-2], blocks)
            drawn = torch.stack([torch.rand(shape, generator=draw) for draw in self._draws])[self._row]
            return torch.stack([drawn - place for place in range(len(layers))], -2)
        scores = []
        for layer in layers:
            scores.append(self._per_block(torch.linalg.vector_norm(left, dim=-1).square()))
            left = left - layer
        return torch.stack(scores, -2)

    def _per_block(self, groups: Tensor) -> Tensor:
        """Sums over the groups of each block."""
        sums = torch.zeros(*groups.shape[:-1], sum(self._owned))
        return sums.index_add_(-1, self._block_of_group, groups)


def _first(scores: Tensor, count: Tensor) -> Tensor:
    """bool[..., layers, blocks]: those with the `count` [...] largest of all; of equals the earlier."""
    flat = scores.flatten(-2)
    # NaN, of a training that diverged, counts as the most.
    order = flat.argsort(dim=-1, descending=True, stable=True)
    places = torch.empty_like(order).scatter_(-1, order, torch.arange(flat.shape[-1]).expand_as(order))
    return (places < count[..., None]).view(scores.shape)
