"""A flat buffer of gradients, summed over a group within the loss budget.

    residual.add_to -> (Hadamard) -> marker.mark -> bounded collective -> keep what was given up -> (inverse Hadamard)

The buffer is changed in place up to the collective and read from then on; the result is other memory, which stays valid
until the next step begins. All ranks call with the same buffers in the same order, as of any collective; what each of
them adds, marks and keeps is its own affair. A buffer on CUDA goes through pinned memory, in which the collective, and
all that comes after it, works.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from dlcp.torch.gradient.flight import Flight, GradientWork
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.replicas import digest
from dlcp.torch.process_group import ProcessGroup
from dlcp.torch.tensors import DATA_TYPES, FLOATING_DTYPES, readable, span
from dlcp.transport.bounded import CRITICAL, LossRules, Outcome
from dlcp.transport.communicator import Communicator, Reduction

if TYPE_CHECKING:
    from dlcp.torch.futures import CollectiveFuture
    from dlcp.torch.gradient.state import GradientState
    from dlcp.torch.gradient.step import Step

Range = tuple[int, int]
"""First element and end."""

Importance = Sequence[NDArray[np.uint8] | None] | None
"""Of blocks, by the rank that adds them; None: nobody else does."""

DTYPES = FLOATING_DTYPES
"""What may be lost in part; other types travel as plain collectives."""


class GradientExchange:
    """The gradients of one state over one group. Made by GradientState.exchange."""

    def __init__(
        self, group: dist.ProcessGroup, state: GradientState, communicator: Communicator | None = None
    ) -> None:
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"the group's backend is {group.name()}; accepted for gradients: dlcp")
        self.group = group
        self._state = state
        self.communicator = communicator or group.communicator
        """Whose numbers its collectives take."""

    # --- what callers start ---------------------------------------------------------------------------------

    def all_reduce(
        self,
        buffer: torch.Tensor,
        layout: Layout,
        *,
        average: bool,
        traffic_class: int | None = None,
        last_of_step: bool | None = None,
        sequence: int | None = None,
    ) -> CollectiveFuture:
        """A future of the sum or mean over all ranks; a tensor like the buffer, the same bits on all ranks.

        `buffer`: 1-D, contiguous, one of DTYPES, CPU or CUDA; changed, and not to be touched until the future is
        complete. `traffic_class`: None: by the layers in it. `last_of_step`: whether it ends the step; None: not
        known, then the step ends with state.end_step(), or when a buffer of this layout comes again. `sequence`: as of
        the communicator's collectives. Does not block, but for the first message to a peer and for the end of the step
        before. Raises ValueError, TypeError; the future raises the collective's errors.
        """
        flight = self.start_all_reduce(
            buffer,
            layout,
            average=average,
            traffic_class=traffic_class,
            last_of_step=last_of_step,
            sequence=sequence,
        )
        future = GradientWork([flight], [flight.result]).tensor_future()
        if last_of_step and self._state.verify:
            self._state.verify_replicas()
        return future

    def start_all_reduce(
        self,
        buffer: torch.Tensor,
        layout: Layout,
        *,
        average: bool,
        traffic_class: int | None = None,
        last_of_step: bool | None = None,
        sequence: int | None = None,
        factor: float | None = None,
        into: torch.Tensor | None = None,
        opts: Any = None,
    ) -> Flight:
        """As all_reduce; the flight, for a GradientWork.

        `factor`: of the result. `into`: where the result goes, such as where the buffer came from; None: to memory of
        its own. `opts`: torch's, of the call.
        """
        self._check(buffer, layout)
        itemsize = buffer.element_size()
        parts = [
            (begin // itemsize, end // itemsize)
            for begin, end in self.communicator.parts(buffer.nbytes, DATA_TYPES[buffer.dtype])
        ]
        return self._start(
            "bounded_all_reduce",
            buffer,
            layout,
            parts,
            buffer.numel(),
            average=average,
            traffic_class=traffic_class,
            last_of_step=last_of_step,
            sequence=sequence,
            factor=factor,
            into=into,
            opts=opts,
        )

    def start_reduce_scatter(
        self,
        buffer: torch.Tensor,
        layout: Layout,
        *,
        average: bool,
        traffic_class: int | None = None,
        last_of_step: bool | None = None,
        factor: float | None = None,
        into: torch.Tensor | None = None,
        opts: Any = None,
    ) -> Flight:
        """As start_all_reduce; the result is this rank's part of the sum. The buffer has one equal part per rank."""
        self._check(buffer, layout)
        size = self.group.size()
        if buffer.numel() % size:
            raise ValueError(
                f"the buffer has {buffer.numel()} elements; accepted: a multiple of {size}, the group's size"
            )
        count = buffer.numel() // size
        parts = [(rank * count, (rank + 1) * count) for rank in range(size)]
        return self._start(
            "bounded_reduce_scatter",
            buffer,
            layout,
            parts,
            count,
            average=average,
            traffic_class=traffic_class,
            last_of_step=last_of_step,
            sequence=None,
            factor=factor,
            into=into,
            opts=opts,
        )

    # --- one flight -----------------------------------------------------------------------------------------

    def _check(self, buffer: torch.Tensor, layout: Layout) -> None:
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

    def _start(
        self,
        collective: str,
        buffer: torch.Tensor,
        layout: Layout,
        parts: Sequence[Range],
        output_numel: int,
        *,
        average: bool,
        traffic_class: int | None,
        last_of_step: bool | None,
        sequence: int | None,
        factor: float | None,
        into: torch.Tensor | None,
        opts: Any,
    ) -> Flight:
        state = self._state
        # Ends the step before, if this is the first buffer of a new one.
        step = state.enter((id(self.communicator), collective, layout), last_of_step, self.group)
        flight = None
        try:
            flight, importance = self._prepare(
                buffer.detach(), collective, layout, parts, output_numel, into, step
            )
            flight.factor = factor
            if traffic_class is None:
                traffic_class = state.facts.of(layout).traffic_class
            agree = ""
            if flight.runs:
                # The ranks transform alike or not at all. Not the whole number: plans are kept by these words.
                agree = f"Hadamard {step.number % 256} {zlib.crc32(repr(flight.runs).encode()):08x}"
            loss = LossRules(
                flight.given_ratio,
                importance,
                state.options.fill == "rescale",
                state.options.deadline_s,
                state.patience.of(self.group, layout.place),
            )
            keep = flight.memory, flight.output
            with self.group.starting(collective, opts, keep, on=self.communicator) as (communicator, call):
                if sequence is not None:
                    call["sequence"] = sequence
                if traffic_class is not None:
                    call["traffic_class"] = traffic_class
                start = communicator.bounded_all_reduce
                if collective == "bounded_reduce_scatter":
                    start = communicator.bounded_reduce_scatter
                flight.operation = start(
                    span(flight.output),
                    span(flight.memory),
                    DATA_TYPES[flight.memory.dtype],
                    Reduction.AVG if average else Reduction.SUM,
                    loss=loss,
                    agree=agree,
                    **call,
                )
        except BaseException:
            state.cancel(step, flight)
            raise
        finally:
            step.end_start()
        return flight

    def _prepare(
        self,
        buffer: torch.Tensor,
        collective: str,
        layout: Layout,
        parts: Sequence[Range],
        output_numel: int,
        into: torch.Tensor | None,
        step: Step,
    ) -> tuple[Flight, Importance]:
        """All that comes before the collective; the flight, and what its blocks are worth."""
        state, own, itemsize = self._state, self.group.rank(), buffer.element_size()
        critical, loss_ratio, _ = state.facts.of(layout)
        block_bytes = self._block_bytes()
        with torch.no_grad(), state.lock:
            state.before_exchange(buffer, layout, critical)
            runs = _runs_of(layout, critical, parts) if state.hadamard is not None else []
            for begin, end in runs:
                assert state.hadamard is not None
                state.hadamard.forward_(buffer[begin:end], step.number)
            importance: Importance = None
            if self.group.size() > 1:
                importance = state.marker.mark(buffer, layout, critical, parts, block_bytes, own)
            memory = readable(buffer, collective)
            flight = self._flight(layout, memory, buffer.device, output_numel, into)
            flight.key = (id(self.communicator), collective, layout)
            flight.step, flight.runs = step.number, runs
            # Under reduce_scatter the result is one part of the buffer.
            flight.origin = 0 if output_numel == buffer.numel() else parts[own][0]
            flight.sent_bytes = (buffer.numel() - parts[own][1] + parts[own][0]) * itemsize
            flight.critical_bytes = _critical_bytes(importance, parts, block_bytes, itemsize)
            flight.block_bytes = min(block_bytes)
            flight.given_ratio = state.give(flight, loss_ratio)
            step.flights.append(flight)
        return flight, importance

    def _flight(
        self,
        layout: Layout,
        memory: torch.Tensor,
        device: torch.device,
        numel: int,
        into: torch.Tensor | None,
    ) -> Flight:
        pool, on_cpu = self._state.buffers, device.type == "cpu"
        output = pool.take(numel, memory.dtype, memory.device, pinned=not on_cpu)
        if into is None:
            into = output if on_cpu else pool.take(numel, memory.dtype, device)
        flight = Flight(self.group, layout, memory, output, into, self._finish)
        if into is not output:
            flight.back.add(into, output.view(into.shape), "gradients")
        return flight

    def _finish(self, flight: Flight, outcome: Outcome) -> None:
        """All that comes after the collective, before its result goes where the caller wants it."""
        state, output = self._state, flight.output
        runs_lost = [abandoned.runs() for abandoned in outcome.sent]
        lost = np.concatenate(runs_lost) // flight.memory.element_size() if runs_lost else None
        with torch.no_grad():
            with state.lock:
                state.after_exchange(flight, outcome, lost)
            for begin, end in flight.runs:
                begin, end = begin - flight.origin, end - flight.origin
                if state.hadamard is not None and begin >= 0 and end <= output.numel():
                    state.hadamard.inverse_(output[begin:end], flight.step)
            if flight.factor is not None:
                output.mul_(flight.factor)
            if state.phase.rule is not None:
                flight.square = float(torch.linalg.vector_norm(output, dtype=torch.float64)) ** 2
            if state.verify and output.numel() == flight.memory.numel():
                with state.lock:
                    state.note_digest(self.group, flight, digest(output))

    def _block_bytes(self) -> list[int]:
        """Of messages to each rank; of this rank's own part, of which only statistics are made, as to others."""
        own = self.group.rank()
        others = {
            rank: self.communicator.block_bytes(rank) for rank in range(self.group.size()) if rank != own
        }
        return [others.get(rank, max(others.values(), default=0)) for rank in range(self.group.size())]


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


def _runs_of(layout: Layout, critical: frozenset[str], parts: Sequence[Range]) -> list[Range]:
    """Elements in a row that may be lost, cut where parts meet: each is transformed by itself."""
    runs: list[Range] = []
    for first, last in parts:
        begin = None
        end = first
        for piece in layout.pieces(first, last):
            if piece.segment.name in critical:
                continue
            if begin is not None and piece.begin == end:
                end = piece.end
                continue
            if begin is not None:
                runs.append((begin, end))
            begin, end = piece.begin, piece.end
        if begin is not None:
            runs.append((begin, end))
    return runs
