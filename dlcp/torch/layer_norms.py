"""L2 norms of many tensors that are the same on all ranks: each is computed by one rank, its owner, and sent to all.

LARS and LAMB need the norms of every layer's weights and update in every step. Ranks whose tensors are alike would all
compute the same; here each reads its share, and an all-gather of 4 bytes a norm brings the rest: the parallel tensor
operator (PTO) of Shi et al., MLSys 2021, arXiv 2010.10458. All ranks get the same bits: those that one alone would have
computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from dlcp.errors import ArgumentError
from dlcp.transport.schedule.packing import longest_first


class LayerNorms:
    """Norms of tensors of these lengths over the ranks of a group.

    `numels`: elements of each tensor, the same on all ranks. `group`: None: the default group; without one, or alone,
    this rank computes all. The largest tensors are given out first, each to the rank with the least so far. Raises
    ArgumentError: a group without this rank.
    """

    def __init__(self, numels: Sequence[int], group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.numels = tuple(numels)
        """As given."""
        ranks, self._rank = 1, 0
        if dist.is_initialized():
            ranks, self._rank = dist.get_world_size(group), dist.get_rank(group)
            if self._rank < 0:
                raise ArgumentError("this rank is not in the group; accepted: a group that it is in")
        owned: list[list[int]] = [[] for _ in range(ranks)]
        for index, owner in enumerate(longest_first(self.numels, ranks)):
            owned[owner].append(index)
        self._owned = owned
        self._most = max(map(len, owned))

    @property
    def owned(self) -> Sequence[Sequence[int]]:
        """By rank, the tensors that it computes."""
        return self._owned

    def of(self, *kinds: Sequence[Tensor]) -> Tensor:
        """float32 [kinds, tensors], on the first tensor's device: the norms of each list. A collective; blocks."""
        device = kinds[0][0].device
        found = torch.zeros(len(kinds), self._most, dtype=torch.float32, device=device)
        for kind, tensors in enumerate(kinds):
            for place, index in enumerate(self._owned[self._rank]):
                found[kind, place] = torch.linalg.vector_norm(tensors[index], dtype=torch.float32)
        norms = torch.empty(len(kinds), len(kinds[0]), dtype=torch.float32, device=device)
        parts = [found]
        if len(self._owned) > 1:
            parts = [torch.empty_like(found) for _ in self._owned]
            dist.all_gather(parts, found, group=self._group)
        for part, owned in zip(parts, self._owned, strict=True):
            norms[:, owned] = part[:, : len(owned)]
        return norms
