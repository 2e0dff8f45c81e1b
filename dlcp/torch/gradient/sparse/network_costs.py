"""Whether a choice of elements is worth it: the time it takes, and the time it saves.

RedSync (arXiv 1808.04357) leaves values out only where choosing and gathering takes less time than a sum of all.
Latency and rate are the transport's own: half the smoothed round-trip time, and the window in a round trip, of the
slowest peer; the time of a choice is measured. All ranks take the largest of what they measured, a step later
(agreement.py). Until then nothing is left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlcp.torch.gradient.buffer.agreement import Agreements, Figures, estimates

if TYPE_CHECKING:
    from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
    from dlcp.transport.communicator import Communicator

_VALUE_BYTES = 4


Costs = tuple[float, float, float]
"""Seconds: of a message's way, of a byte, and of the choice from one element."""


class NetworkCosts:
    """What the ranks of each group agree on."""

    def __init__(self) -> None:
        self._choice_s = 0.0
        self._agreements = Agreements[Costs](
            "costs", lambda communicator: [*_measured(communicator), self._choice_s], _largest
        )

    def begin_step(self, buffer: GradientBuffer) -> None:
        """Before each buffer, on all ranks; may block, and raise: see Agreements.of_step."""
        self._agreements.of_step(buffer)

    def note_choice(self, numel: int, seconds: float) -> None:
        """So long a choice from so many elements took."""
        if numel:
            self._choice_s += 0.25 * (seconds / numel - self._choice_s)

    def dense_is_cheaper(self, buffer: GradientBuffer, numel: int, frame_bytes: int) -> bool:
        """Whether the sum of `numel` float32 takes less time than frames of this length. The same on all ranks."""
        costs = self._agreements.of_step(buffer)
        return costs is None or dense_is_cheaper(costs, numel, frame_bytes, buffer.group.size())


def dense_is_cheaper(costs: Costs, numel: int, frame_bytes: int, ranks: int) -> bool:
    """Whether the sum of `numel` float32 over so many ranks takes less time than frames of `frame_bytes` from each."""
    latency_s, byte_s, choice_s = costs
    rounds_s = 2 * latency_s * math.ceil(math.log2(max(2, ranks)))
    dense_s = rounds_s + 2 * (ranks - 1) / ranks * numel * _VALUE_BYTES * byte_s
    # Two rounds as well: how long the frames are, and the frames.
    sparse_s = rounds_s + (ranks - 1) * frame_bytes * byte_s + numel * choice_s
    return dense_s <= sparse_s


def _largest(_: Costs | None, figures: Figures) -> Costs:
    latency_s, byte_s, choice_s = map(max, zip(*figures, strict=True))
    return latency_s, byte_s, choice_s


def _measured(communicator: Communicator) -> tuple[float, float]:
    """Seconds that a message and a byte take to the slowest of the group's peers, by the transport's estimators."""
    latency_s = byte_s = 0.0
    for rtt_s, window_bytes in estimates(communicator):
        latency_s, byte_s = max(latency_s, rtt_s / 2), max(byte_s, rtt_s / max(1, window_bytes))
    return latency_s, byte_s
