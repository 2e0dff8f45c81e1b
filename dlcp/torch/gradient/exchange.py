"""A flat buffer of gradients, summed over a group within the loss budget.

    fill.before -> marker.mark -> bounded collective -> state.settle (fill.lost, account) -> fill.after -> the result

The buffer is changed in place up to the collective and read from then on; the result is other memory, which stays valid
until the next step begins. All ranks call with the same buffers in the same order, as for any collective; each rank
adds, marks and keeps on its own. A buffer on CUDA is copied to pinned memory, where the collective and everything after
it run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from dlcp.torch.backend_name import BACKEND_NAME
from dlcp.torch.gradient.fills.fill import BufferPlan, Range
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.pending_buffer import GradientWork, Importance, PendingBuffer, PreparedBuffer
from dlcp.torch.tensors import DATA_TYPES, FLOATING_DTYPES, CopyBack, readable, span
from dlcp.transport.bounded import CRITICAL, Outcome
from dlcp.transport.communicator import Communicator, Reduction
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.futures import CollectiveFuture
    from dlcp.torch.gradient.state import GradientState
    from dlcp.torch.gradient.step import Step
    from dlcp.torch.process_group import ProcessGroup

DTYPES = FLOATING_DTYPES
"""Types that may be lost in part; other types travel as plain collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferCall:
    """Options for the exchange of one buffer."""

    average: bool
    """The mean over all ranks; False: the sum."""
    traffic_class: int | None = None
    """0 to 6, 6 leaves first; None: by the layers in the buffer."""
    last_of_step: bool | None = None
    """Whether it ends the step; None: not known, then the step ends with state.end_step(), or when a buffer of this
    layout comes again."""
    sequence: int | None = None
    """The collective's number, one that Communicator.reserve took; None: the next one."""
    factor: float | None = None
    """Of the result, on top of the reduction."""
    into: torch.Tensor | None = None
    """Where the result goes, such as where the buffer came from; None: to memory of its own."""
    opts: Any = None
    """torch's options of the call."""


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
    if group.name() != BACKEND_NAME:
        raise TypeError(f"the group's backend is {group.name()}; accepted for gradients: {BACKEND_NAME}")
    exchange = GradientExchange(group, state, communicator)  # type: ignore[arg-type]
    exchange.group.communicator.job.metrics.include("gradients", state.ledger)
    return exchange


class GradientExchange:
    """The gradients of one state over one group; made by `exchange_of`. Holds no state of its own."""

    def __init__(
        self, group: ProcessGroup, state: GradientState, communicator: Communicator | None = None
    ) -> None:
        self.group = group
        self._state = state
        self.communicator = communicator or group.communicator
        """The communicator that numbers its collectives."""

    # --- what callers start ---------------------------------------------------------------------------------

    def all_reduce(self, buffer: torch.Tensor, layout: Layout, call: BufferCall) -> CollectiveFuture:
        """A future of the sum or mean over all ranks; a tensor like the buffer, the same bits on all ranks.

        `buffer`: 1-D, contiguous, one of DTYPES, CPU or CUDA; changed, and in use until the future is complete. Does
        not block, but for the first message to a peer and for the end of the step before. Raises ValueError, TypeError;
        the future raises the collective's errors.
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
        return self._start("bounded_all_reduce", buffer, layout, parts, buffer.numel(), call)

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
        return self._start("bounded_reduce_scatter", buffer, layout, parts, count, call)

    # --- one buffer -----------------------------------------------------------------------------------------

    def _start(
        self,
        collective: str,
        buffer: torch.Tensor,
        layout: Layout,
        parts: Sequence[Range],
        output_numel: int,
        call: BufferCall,
    ) -> PendingBuffer:
        # Ends the step before, if this is the first buffer of a new one.
        key = (id(self.communicator), collective, layout)
        step = self._state.enter(key, call.last_of_step, self.group)
        try:
            prepared = self._prepare(key, buffer.detach(), layout, parts, output_numel, call, step)
            pending = PendingBuffer(
                prepared, self._start_collective(collective, prepared, call), self._finish
            )
            step.buffers.append(pending)
        except BaseException:
            self._state.cancel(step, key)
            raise
        finally:
            step.end_start()
        return pending

    def _prepare(
        self,
        key: Hashable,
        buffer: torch.Tensor,
        layout: Layout,
        parts: Sequence[Range],
        output_numel: int,
        call: BufferCall,
        step: Step,
    ) -> PreparedBuffer:
        """All that comes before the collective."""
        state, own, itemsize = self._state, self.group.rank(), buffer.element_size()
        rules = state.rules.of(layout)
        block_bytes = self._block_bytes()
        with torch.no_grad(), state.lock:
            transformed = state.fill.before(buffer, BufferPlan(layout, rules.critical, parts, step.number))
            importance: Importance = None
            if self.group.size() > 1:
                importance = state.marker.mark(buffer, layout, rules.critical, parts, block_bytes, own)
            memory = readable(buffer, "gradients")
            output, result, back = self._output(memory, buffer.device, output_numel, call.into)
            sent_bytes = (buffer.numel() - parts[own][1] + parts[own][0]) * itemsize
            return PreparedBuffer(
                key=key,
                layout=layout,
                step=step.number,
                memory=memory,
                output=output,
                result=result,
                back=back,
                importance=importance,
                transformed=transformed,
                # Under reduce_scatter the result is one part of the buffer.
                origin=0 if output_numel == buffer.numel() else parts[own][0],
                factor=call.factor,
                sent_bytes=sent_bytes,
                critical_bytes=_critical_bytes(importance, parts, block_bytes, itemsize),
                given_ratio=state.give(key, sent_bytes, rules.loss_ratio),
                block_bytes=min(block_bytes),
            )

    def _output(
        self, memory: torch.Tensor, device: torch.device, numel: int, into: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, CopyBack]:
        """What the collective fills, what the caller gets, and the copy from one to the other."""
        pool, on_cpu, back = self._state.buffers, device.type == "cpu", CopyBack()
        output = pool.take(numel, memory.dtype, memory.device, pinned=not on_cpu)
        if into is None:
            into = output if on_cpu else pool.take(numel, memory.dtype, device)
        if into is not output:
            back.add(into, output.view(into.shape), "gradients")
        return output, into, back

    def _start_collective(self, collective: str, prepared: PreparedBuffer, call: BufferCall) -> Work:
        loss, agree = self._state.loss_rules(prepared, self.group)
        traffic_class = call.traffic_class
        if traffic_class is None:
            traffic_class = self._state.rules.of(prepared.layout).traffic_class
        keep = prepared.memory, prepared.output
        with self.group.starting(collective, call.opts, keep, on=self.communicator) as (communicator, how):
            if call.sequence is not None:
                how["sequence"] = call.sequence
            if traffic_class is not None:
                how["traffic_class"] = traffic_class
            start = communicator.bounded_all_reduce
            if collective == "bounded_reduce_scatter":
                start = communicator.bounded_reduce_scatter
            return start(
                span(prepared.output),
                span(prepared.memory),
                DATA_TYPES[prepared.memory.dtype],
                Reduction.AVG if call.average else Reduction.SUM,
                loss=loss,
                agree=agree,
                **how,
            )

    def _finish(self, prepared: PreparedBuffer, outcome: Outcome) -> float | None:
        """All that comes after the collective, before its result goes where the caller wants it."""
        state, output = self._state, prepared.output
        with torch.no_grad():
            state.settle(prepared, outcome, self.group)
            state.fill.after(output, prepared.transformed, prepared.origin, prepared.step)
            if prepared.factor is not None:
                output.mul_(prepared.factor)
            return state.note_result(prepared, self.group)

    def _block_bytes(self) -> list[int]:
        """By rank, of messages to it; this rank's own part, of which only statistics are made, is cut as the others."""
        own = self.group.rank()
        others = {
            rank: self.communicator.block_bytes(rank) for rank in range(self.group.size()) if rank != own
        }
        return [others.get(rank, max(others.values(), default=0)) for rank in range(self.group.size())]


def _check(buffer: torch.Tensor, layout: Layout) -> None:
    if buffer.dtype not in DTYPES:
        accepted = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
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


def _critical_bytes(
    importance: Importance,
    parts: Sequence[Range],
    block_bytes: Sequence[int],
    itemsize: int,
) -> int:
    """Bytes of blocks that may not be lost."""
    return sum(
        min(int(np.count_nonzero(marks == CRITICAL)) * size, (end - begin) * itemsize)
        for marks, (begin, end), size in zip(importance or (), parts, block_bytes, strict=False)
        if marks is not None
    )
