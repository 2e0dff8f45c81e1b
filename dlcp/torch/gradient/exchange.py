"""A flat buffer of gradients, reduced over a group by the state's pipeline: where hooks and contexts come in.

The buffer is changed in place up to the collective and read from then on; the result is the buffer itself or other
memory, and stays valid until the next step begins. All ranks call with the same buffers in the same order, as for any
collective. A buffer on CUDA is copied to pinned memory, where the collective and everything after it run; but recipes
that code or choose do so on the device, and only what they made crosses (crossing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from dlcp.torch.backend_name import BACKEND_NAME
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall, GradientBuffer
from dlcp.torch.gradient.buffer.peers import Peers, is_peers
from dlcp.torch.gradient.buffer.pending_buffer import GradientWork, PendingBuffer
from dlcp.torch.gradient.layout import Layout, Range
from dlcp.torch.groups_within import groups_within
from dlcp.torch.tensors import DATA_TYPES, FLOATING_DTYPES
from dlcp.transport.communicator import Communicator

if TYPE_CHECKING:
    from dlcp.torch.futures import CollectiveFuture
    from dlcp.torch.gradient.state import GradientState


def exchange_of(
    state: GradientState,
    group: dist.ProcessGroup | None = None,
    communicator: Communicator | None = None,
) -> GradientExchange:
    """The state's gradients over a group; None: over the state's own, or the default group.

    `communicator`: of the group's ranks, for callers that number collectives themselves; None: the group's own. Raises
    TypeError: a group of another backend; ValueError: there is none.
    """
    group = group or state.group or dist.group.WORLD
    if group is None:
        raise ValueError("there is no process group; accepted: after init_process_group")
    if (inner := next((one for one in groups_within(group) if is_peers(one)), None)) is None:
        raise TypeError(f"the group's backend is {group.name()}; accepted for gradients: {BACKEND_NAME}")
    exchange = GradientExchange(inner, state, communicator)
    exchange.group.communicator.job.metrics.include("gradients", state.ledger)
    return exchange


class GradientExchange:
    """The gradients of one state over one group; made by `exchange_of`. Holds no state of its own."""

    def __init__(self, group: Peers, state: GradientState, communicator: Communicator | None = None) -> None:
        self.group = group
        self._state = state
        self.communicator = communicator or group.communicator
        """The communicator that numbers its collectives."""

    @property
    def sequences(self) -> int:
        """How many collectives a buffer has; a call's `sequence` is the number of the first."""
        return self._state.pipeline.sequences

    def all_reduce(self, buffer: torch.Tensor, layout: Layout, call: BufferCall) -> CollectiveFuture:
        """A future of the sum or mean over all ranks; a tensor like the buffer, the same bits on all ranks.

        `buffer`: 1-D, contiguous, one of FLOATING_DTYPES, CPU or CUDA; changed, and in use until the future is
        complete. Does not block, but for the first message to a peer and for the end of the step before. Raises
        ValueError, TypeError; the future raises the collective's errors.
        """
        pending = self.start_all_reduce(buffer, layout, call)
        future = GradientWork([pending], [pending.result]).tensor_future()
        if call.last_of_step:
            self._state.verify_replicas()
        return future

    def start_all_reduce(self, buffer: torch.Tensor, layout: Layout, call: BufferCall) -> PendingBuffer:
        """As all_reduce; the pending buffer, for a GradientWork."""
        _check(buffer, layout)
        itemsize = buffer.element_size()
        parts = [
            (begin // itemsize, end // itemsize)
            for begin, end in self.communicator.parts(buffer.nbytes, DATA_TYPES[buffer.dtype])
        ]
        return self._start(buffer, layout, parts, call, scattered=False)

    def start_reduce_scatter(self, buffer: torch.Tensor, layout: Layout, call: BufferCall) -> PendingBuffer:
        """As start_all_reduce; the result is this rank's part of the sum. The buffer has one equal part per rank."""
        _check(buffer, layout)
        size = self.group.size()
        if buffer.numel() % size:
            raise ValueError(
                f"the buffer has {buffer.numel()} elements; accepted: a multiple of {size}, the group's size"
            )
        count = buffer.numel() // size
        parts = [(rank * count, (rank + 1) * count) for rank in range(size)]
        return self._start(buffer, layout, parts, call, scattered=True)

    def _start(
        self,
        buffer: torch.Tensor,
        layout: Layout,
        parts: Sequence[Range],
        call: BufferCall,
        *,
        scattered: bool,
    ) -> PendingBuffer:
        # Ends the step before, if this is the first buffer of a new one.
        own = self.communicator
        key = ((own.name, own.size, own.rank), scattered, layout, buffer.dtype)
        step = self._state.enter(key, call.last_of_step)
        try:
            pending = self._state.pipeline.start(
                GradientBuffer(
                    key=key,
                    values=buffer.detach(),
                    layout=layout,
                    parts=parts,
                    scattered=scattered,
                    step=step.number,
                    call=call,
                    group=self.group,
                    communicator=self.communicator,
                )
            )
            step.buffers.append(pending)
        except BaseException:
            self._state.cancel(step, key)
            raise
        finally:
            step.end_start()
        return pending


def _check(buffer: torch.Tensor, layout: Layout) -> None:
    if buffer.dtype not in FLOATING_DTYPES:
        accepted = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATING_DTYPES)
        raise TypeError(f"the buffer's dtype is {buffer.dtype}; accepted: {accepted}")
    if buffer.dim() != 1 or not buffer.is_contiguous():
        raise ValueError(
            f"the buffer has shape {tuple(buffer.shape)}, strides {buffer.stride()}; accepted: one dimension, "
            "contiguous"
        )
    if layout.numel != buffer.numel():
        raise ValueError(
            f"the layout is of {layout.numel} elements; accepted: {buffer.numel()}, the buffer's"
        )
