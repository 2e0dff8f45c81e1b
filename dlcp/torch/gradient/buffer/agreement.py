"""What the ranks of a group measured in a step, known to all of them a step later.

    figures = agreements.of_step(buffer, measure)       # with each buffer; figures of all ranks, once a step
    if figures is not None: …

A rank that decided by its own figures would call another collective than the others. So with the first buffer of each
step the ranks start to gather what they measured, in a collective that runs beside the step's buffers. They learn what
was gathered a step ago, which has nearly always come. Figures are plain floats: ranks that compute alike from them
decide alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.peers import Peers
from dlcp.torch.tensors import span

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator
    from dlcp.transport.work import Work

Figures = list[list[float]]
"""By rank of the group."""
T = TypeVar("T")


class Agreements(Generic[T]):
    """Decisions that each group's ranks take by what all of them measured.

    `purpose`: names the collectives. `measure`: this rank's figures, as many on all ranks. `decide`: the next decision,
    by the one before (None: none yet) and the figures of all ranks.
    """

    def __init__(
        self,
        purpose: str,
        measure: Callable[[Communicator], Sequence[float]],
        decide: Callable[[T | None, Figures], T],
    ) -> None:
        self._purpose = purpose
        self._measure = measure
        self._decide = decide
        self._lock = threading.Lock()
        self._groups: dict[Peers, _Group[T]] = {}

    def of_step(self, buffer: GradientBuffer) -> T | None:
        """The decision for the step that a buffer belongs to, the same on all ranks; None: there is none yet.

        Blocks if what was gathered a step ago is still pending. Raises the collective's errors.
        """
        with self._lock:
            group = self._groups.setdefault(buffer.group, _Group())
        with group.lock:
            if group.step < 0:
                # The collectives of the first step compare the options; ranks that have others do not come here.
                group.step = buffer.step
            elif group.step != buffer.step:
                communicator = buffer.group.private_communicator(self._purpose)
                if group.under_way is not None:
                    (work, gathered), group.under_way = group.under_way, None
                    work.wait()
                    group.decision = self._decide(group.decision, gathered.tolist())
                group.under_way = _gather(communicator, self._measure(communicator))
                group.step = buffer.step
            return group.decision


@dataclass(slots=True)
class _Group(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    step: int = -1
    """The last one that has its decision."""
    decision: T | None = None
    under_way: tuple[Work, torch.Tensor] | None = None


def _gather(communicator: Communicator, figures: Sequence[float]) -> tuple[Work, torch.Tensor]:
    own = torch.tensor(figures, dtype=torch.float64)
    gathered = torch.empty(communicator.size, len(figures), dtype=torch.float64)
    return communicator.all_gather(span(gathered.view(-1)), span(own), keep=(gathered, own)), gathered


def estimates(communicator: Communicator) -> list[tuple[float, int]]:
    """Round-trip time in seconds, and bytes in a window, of each peer with whom there is a session."""
    endpoint = communicator.job.endpoint
    known = set(endpoint.peers)
    peers = (endpoint.peer_stats(member) for member in communicator.members if member in known)
    return [(peer.rtt_s, peer.window_bytes) for peer in peers if peer.established]
