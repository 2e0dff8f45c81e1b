"""First ready, first sent: whole layers, one class, nothing waits for anything. What DistributedDataParallel does."""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.transport.layer_order.queue import SliceQueue


class Fifo(SliceQueue):
    """Layers leave as backward makes them."""

    def __init__(self, layer_bytes: Sequence[int]) -> None:
        super().__init__(layer_bytes, key=lambda _, arrival: arrival)
