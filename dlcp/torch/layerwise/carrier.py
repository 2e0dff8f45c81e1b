"""How a slice's average is made: by an exact all-reduce, or, where the user has said so, by one that may lose some.

Either way the result is in the memory that was sent once the load is settled, the same bits on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span, Work
from dlcp.transport.layer_order import Slice

if TYPE_CHECKING:
    from dlcp.torch.gradient.exchange import GradientExchange
    from dlcp.torch.gradient.flight import Flight
    from dlcp.torch.gradient.state import GradientState


class Load(NamedTuple):
    """A slice under way."""

    piece: Slice
    work: Work
    flight: Flight | None = None
    """What remains to be done at the end, of one that may lose something."""

    def settle(self) -> None:
        """After the work ended well: the result is in its place. May be called again."""
        if self.flight is not None:
            self.flight.settle()


class Carrier(Protocol):
    """Starts what a sender sends."""

    @property
    def communicator(self) -> Communicator:
        """Whose numbers the slices take."""

    def start(self, piece: Slice, memory: torch.Tensor, label: str, sequence: int) -> Load:
        """Averages a slice of a layer's memory over all ranks, in place."""


class ExactCarrier:
    """All gradients arrive. `types`: of the layers' elements; `algorithm`: of the all-reduce, None: by size."""

    def __init__(
        self, communicator: Communicator, types: Sequence[DataType], algorithm: str | None = None
    ) -> None:
        self.communicator = communicator
        """Whose numbers the slices take."""
        self._types = types
        self._algorithm = algorithm

    def start(self, piece: Slice, memory: torch.Tensor, label: str, sequence: int) -> Load:
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
        return Load(piece, work)


class BoundedCarrier:
    """Gradients may lose something, within the state's budget. `layouts`: of the layers, with the state's names."""

    def __init__(self, state: GradientState, exchange: GradientExchange, layouts: Sequence[Layout]) -> None:
        self.communicator = exchange.communicator
        """Whose numbers the slices take."""
        self._state = state
        self._exchange = exchange
        self._layouts = layouts
        # What the state knows a buffer by, from step to step.
        self._of_slice: dict[int, Layout] = {}

    def start(self, piece: Slice, memory: torch.Tensor, label: str, sequence: int) -> Load:
        """Averages a slice of a layer's memory over all ranks, in place."""
        itemsize = memory.element_size()
        begin, end = piece.offset // itemsize, (piece.offset + piece.nbytes) // itemsize
        part = memory[begin:end]
        flight = self._exchange.start_all_reduce(
            part,
            self._layout_of(piece, begin, end),
            average=True,
            traffic_class=piece.traffic_class,
            sequence=sequence,
            into=part,
        )
        assert isinstance(flight.operation, Work)
        return Load(piece, flight.operation, flight)

    def _layout_of(self, piece: Slice, begin: int, end: int) -> Layout:
        if piece.number not in self._of_slice:
            segments = tuple(
                Segment(one.segment.name, one.offset, one.begin - begin, one.end - one.begin)
                for one in self._layouts[piece.layer].pieces(begin, end)
            )
            self._of_slice[piece.number] = Layout(segments, end - begin)
        return self._of_slice[piece.number]
