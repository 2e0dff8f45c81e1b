"""Whether a choice of elements is worth it: the time it takes, and the time it saves.

RedSync (arXiv 1808.04357) leaves values out only where choosing and gathering takes less time than a sum of all.
Latency and rate are the transport's own: half the smoothed round-trip time, and the window in a round trip, of the
slowest peer; the time of a choice is measured. All ranks take the largest of what they measured, a step later
(agreement.py). Until then nothing is left out.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcp.torch.gradient.agreement import Agreement

if TYPE_CHECKING:
    from dlcp.torch.gradient.pipeline import GradientBuffer
    from dlcp.torch.process_group import ProcessGroup
    from dlcp.transport.communicator import Communicator

_VALUE_BYTES = 4


class NetworkCosts:
    """What the ranks of each group agree on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[ProcessGroup, _Group] = {}
        self._choice_s = 0.0

    def begin_step(self, buffer: GradientBuffer) -> None:
        """Before each buffer; with the first of a group's step the ranks tell each other what they measured.

        Blocks if the collective that was started a step ago is still pending. Raises the collective's errors.
        """
        with self._lock:
            known = self._groups.get(buffer.group)
            if known is None:
                known = self._groups[buffer.group] = _Group(Agreement(buffer.group, "costs"))
            if known.step == buffer.step:
                return
            known.step = buffer.step
        if figures := known.agreement.learn():
            latency_s, byte_s, choice_s = map(max, zip(*figures, strict=True))
            known.costs = latency_s, byte_s, choice_s
        known.agreement.tell([*_measured(buffer.group.communicator), self._choice_s])

    def note_choice(self, numel: int, seconds: float) -> None:
        """So long a choice from so many elements took."""
        if numel:
            self._choice_s += 0.25 * (seconds / numel - self._choice_s)

    def dense_is_cheaper(self, group: ProcessGroup, numel: int, frame_bytes: int) -> bool:
        """Whether the sum of `numel` float32 takes less time than frames of this length. The same on all ranks."""
        known = self._groups.get(group)
        costs = None if known is None else known.costs
        return costs is None or dense_is_cheaper(costs, numel, frame_bytes, group.size())


Costs = tuple[float, float, float]
"""Seconds: of a message's way, of a byte, and of the choice from one element."""


def dense_is_cheaper(costs: Costs, numel: int, frame_bytes: int, ranks: int) -> bool:
    """Whether the sum of `numel` float32 over so many ranks takes less time than frames of `frame_bytes` from each."""
    latency_s, byte_s, choice_s = costs
    rounds_s = 2 * latency_s * math.ceil(math.log2(max(2, ranks)))
    dense_s = rounds_s + 2 * (ranks - 1) / ranks * numel * _VALUE_BYTES * byte_s
    # Two rounds as well: how long the frames are, and the frames.
    sparse_s = rounds_s + (ranks - 1) * frame_bytes * byte_s + numel * choice_s
    return dense_s <= sparse_s


@dataclass(slots=True)
class _Group:
    """What the ranks of one group know."""

    agreement: Agreement
    step: int = -1
    costs: Costs | None = None


def _measured(communicator: Communicator) -> tuple[float, float]:
    """Seconds that a message and a byte take to the slowest of the group's peers, by the transport's estimators."""
    latency_s = byte_s = 0.0
    endpoint = communicator.job.endpoint
    known = set(endpoint.peers)
    for member in communicator.members:
        if member not in known:
            continue
        peer = endpoint.peer_stats(member)
        if peer.established:
            latency_s = max(latency_s, peer.rtt_s / 2)
            byte_s = max(byte_s, peer.rtt_s / max(1, peer.window_bytes))
    return latency_s, byte_s
