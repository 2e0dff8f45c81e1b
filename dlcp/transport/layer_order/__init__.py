"""In which order the gradients of a step leave: schedulers that compare, behind one interface.

Backward makes the gradients of the last layer first; the next forward needs those of the first layer first. The caller
says which layers are ready and which slices are finished, and an order answers what leaves next. It reads no clock,
starts no thread, holds no gradient and knows no torch, so the trainer (dlcp.torch.LayerwiseOptimizer) and a simulator
drive the same code:

    order.handle_ready(layer)
    while (piece := order.poll_slice()) is not None:
        start(piece)
    …
    order.handle_finished(piece)     # then poll again until None

Layers are numbered as forward needs them, from 0. Same events, same answers. Four are here: `Fifo` (as backward makes
them), `P3` and `ByteScheduler` (the papers': slices, by priority, few at a time), and `LayerPriority` (ours: everything
leaves at once, and packets of front layers overtake).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlcp.transport.layer_order.byte_scheduler import ByteScheduler
from dlcp.transport.layer_order.fifo import Fifo
from dlcp.transport.layer_order.interface import Order
from dlcp.transport.layer_order.layer_priority import LayerPriority
from dlcp.transport.layer_order.p3 import P3
from dlcp.transport.layer_order.slices import Slice

__all__ = ["ORDERS", "P3", "ByteScheduler", "Fifo", "LayerPriority", "Order", "OrderMaker", "Slice"]

OrderMaker = Callable[[Sequence[int]], Order]
"""Makes an order for layers of so many bytes each, in the order of forward."""

ORDERS: Mapping[str, OrderMaker] = {
    "fifo": Fifo,
    "p3": P3,
    "byte_scheduler": ByteScheduler,
    "layer_priority": LayerPriority,
}
