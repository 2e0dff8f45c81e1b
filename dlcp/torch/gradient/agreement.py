"""What the ranks of a group measured in a step, known to all of them a step later.

    figures = agreement.learn()             # with the first buffer of a step: what all ranks told a step ago
    agreement.tell([latency_s, byte_s])     # then: what this rank has measured since

A rank that decided by its own figures would call another collective than the others. So each step the ranks gather
their figures, in a collective that runs beside the step's buffers and counts from the next step on: no step waits for
it. Figures are plain floats, so that all ranks that compute alike from them decide alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from dlcp.torch.tensors import span

if TYPE_CHECKING:
    from dlcp.torch.process_group import ProcessGroup
    from dlcp.transport.work import Work

Figures = list[list[float]]
"""By rank of the group."""


class Agreement:
    """The figures of one group's ranks. Not thread-safe."""

    def __init__(self, group: ProcessGroup, purpose: str) -> None:
        # Apart from the group's own collectives, so that no number of theirs is taken.
        self._communicator = group.private_communicator(purpose)
        self._under_way: tuple[Work, torch.Tensor] | None = None

    def tell(self, figures: Sequence[float]) -> None:
        """Starts to gather; all ranks call it in the same steps, with as many figures."""
        gathered = torch.empty(self._communicator.size, len(figures), dtype=torch.float64)
        own = torch.tensor(figures, dtype=torch.float64)
        work = self._communicator.all_gather(span(gathered.view(-1)), span(own), keep=(gathered, own))
        self._under_way = work, gathered

    def learn(self) -> Figures | None:
        """What all ranks told last; None: nothing since. Blocks if that is still pending; raises its errors."""
        if self._under_way is None:
            return None
        (work, gathered), self._under_way = self._under_way, None
        work.wait()
        return gathered.tolist()
