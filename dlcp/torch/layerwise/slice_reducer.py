"""How a slice is averaged: by an exact all-reduce, or by the recipe of a gradient state.

In both cases the result is in the memory that was sent once the slice is settled, the same bits on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span, Work
from dlcp.transport.layer_order import Slice
from dlcp.transport.work import ManyWorks

if TYPE_CHECKING:
    from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer
    from dlcp.torch.gradient.exchange import GradientExchange
    from dlcp.torch.layerwise.bucket import Bucket


class PendingSlice(NamedTuple):
    """A slice whose average is pending."""

    piece: Slice
    work: Work
    buffer: PendingBuffer | None = None
    """The pending buffer of a gradient state, to be settled at the end; None: an exact all-reduce."""

    def settle(self) -> None:
        """After the work ended well: puts the result in its place. May be called again."""
        if self.buffer is not None:
            self.buffer.settle()


class SliceReducer(Protocol):
    """Starts the averages that a sender asks for."""

    @property
    def communicator(self) -> Communicator:
        """The communicator that numbers the slices."""

    @property
    def sequences(self) -> int:
        """How many numbers of collectives a slice has; `sequence` is the first of them."""

    def start(self, piece: Slice, memory: torch.Tensor, label: str, sequence: int) -> PendingSlice:
        """Averages a slice of a layer's memory over all ranks, in place."""


class ExactReducer:
    """All gradients arrive. `types`: of the layers' elements; `algorithm`: of the all-reduce, None: the quickest."""

    sequences = 1

    def __init__(
        self, communicator: Communicator, types: Sequence[DataType], algorithm: str | None = None
    ) -> None:
        self.communicator = communicator
        """The communicator that numbers the slices."""
        self._types = types
        self._algorithm = algorithm

    def start(self, piece: Slice, memory: torch.Tensor, label: str, sequence: int) -> PendingSlice:
        """Averages a slice of a layer's memory over all ranks, in place."""
        work = self.communicator.all_reduce(
            Span(memory.data_ptr() + piece.offset, piece.nbytes),
            self._types[piece.layer],
            Reduction.AVG,
            algorithm=self._algorithm,
            sequence=sequence,
            traffic_class=piece.traffic_class,
            keep=memory,
            label=label,
        )
        return PendingSlice(piece, work)


class GradientReducer:
    """Gradients are reduced by the state's recipe. `layouts`: of the layers' buckets, with the state's names."""

    def __init__(
        self, exchange: GradientExchange, buckets: Sequence[Bucket], layouts: Sequence[Layout]
    ) -> None:
        self.communicator = exchange.communicator
        """The communicator that numbers the slices."""
        self.sequences = exchange.sequences
        self._exchange = exchange
        self._buckets = buckets
        self._layouts = layouts
        # How the state identifies a buffer from step to step.
        self._of_slice: dict[int, Layout] = {}

    def start(self, piece: Slice, memory: torch.Tensor, label: str, sequence: int) -> PendingSlice:
        """Averages a slice of a layer's memory over all ranks, in place."""
        itemsize = memory.element_size()
        begin, end = piece.offset // itemsize, (piece.offset + piece.nbytes) // itemsize
        part = memory[begin:end]
        given = zip(self._layouts[piece.layer].segments, self._buckets[piece.layer].given, strict=True)
        unused = frozenset(segment.name for segment, one in given if not one)
        call = BufferCall(
            average=True,
            traffic_class=piece.traffic_class,
            sequence=sequence,
            into=part,
            unused=unused,
        )
        pending = self._exchange.start_all_reduce(part, self._layout_of(piece, begin, end), call)
        works = pending.operations
        return PendingSlice(piece, works[0] if len(works) == 1 else ManyWorks(works), pending)

    def _layout_of(self, piece: Slice, begin: int, end: int) -> Layout:
        if piece.number not in self._of_slice:
            segments = tuple(
                Segment(one.segment.name, one.offset, one.begin - begin, one.end - one.begin)
                for one in self._layouts[piece.layer].pieces(begin, end)
            )
            self._of_slice[piece.number] = Layout(segments, end - begin)
        return self._of_slice[piece.number]
