"""Drives a layer order: lets a reducer start the slices that the order yields, and tracks which layers have arrived.

All numbers of a step are reserved at its start, so that ranks may start slices in different orders. Slices finish on
the endpoint's callback thread. There an order that limits pending slices is informed at once, and further slices start.
A waiting thread drives the transport itself, as everywhere.
"""

from __future__ import annotations

import contextlib
import functools
import threading

import torch

from dlcp.errors import CollectiveError, DlcpError
from dlcp.torch.failures import for_torch
from dlcp.torch.layerwise.slice_reducer import PendingSlice, SliceReducer
from dlcp.transport.communicator import DataType, Reduction, Span, Work
from dlcp.transport.layer_order import Order, Slice


class Sender:
    """One step after another: every layer is sent once, and waited for, before the next step's begin.

    `reducer`: makes the averages. `layers`: how many there are. Errors are the transport's, also as torch's; after the
    first one every call raises.
    """

    def __init__(self, reducer: SliceReducer, order: Order, layers: int) -> None:
        self._reducer = reducer
        self._communicator = reducer.communicator
        self._order = order
        self._pieces = [0] * layers
        for piece in order.slices:
            self._pieces[piece.layer] += 1
        self._lock = threading.RLock()
        self._pumping = False
        self._error: DlcpError | None = None
        self._first: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._first = None
        self._memory: list[torch.Tensor | None] = [None] * len(self._pieces)
        self._labels = [""] * len(self._pieces)
        # By layer: pending slices by number; and how many slices are not over, started or not.
        self._under_way: list[dict[int, PendingSlice]] = [{} for _ in self._pieces]
        self._left = list(self._pieces)

    def check(self) -> None:
        """Raises what the first failure was."""
        with self._lock:
            self._check()

    def send(self, layer: int, memory: torch.Tensor, label: str) -> None:
        """Averages the memory over all ranks, in place, when the order lets it leave."""
        with self._lock:
            self._check()
            self._open_step()
            self._memory[layer] = memory
            self._labels[layer] = label
            self._order.handle_ready(layer)
            self._pump()
            self._check()

    def agree(self, flags: torch.Tensor) -> Work:
        """Makes each of the bytes the largest that a rank has. Once a step, after everything was sent."""
        with self._lock:
            self._check()
            self._open_step()
            assert self._first is not None
            memory = Span(flags.data_ptr(), flags.nbytes)
            try:
                return self._communicator.all_reduce(
                    memory,
                    DataType.u8,
                    Reduction.MAX,
                    sequence=self._first + len(self._order.slices) * self._reducer.sequences,
                    traffic_class=6,
                    keep=flags,
                    label="which parameters have a gradient",
                )
            except DlcpError as error:
                raise for_torch(error) from None

    def is_in(self, layer: int) -> bool:
        """Whether waiting for a layer would not block. Of one that was sent."""
        with self._lock:
            if self._error is not None:
                return True
            for pending in list(self._under_way[layer].values()):
                if pending.work.done():
                    self._finish(pending)
            return self._left[layer] == 0 or self._error is not None

    def wait(self, layer: int) -> None:
        """Blocks until a layer that was sent is averaged. Raises the error of its failure."""
        while True:
            with self._lock:
                self._check()
                if self._left[layer] == 0:
                    return
                # If none of its slices is under way, slices of other layers are; each that finishes lets the next one
                # leave.
                pending = next(iter(self._under_way[layer].values()), None) or next(
                    other for others in self._under_way for other in others.values()
                )
            # That call records a failure, and the next iteration raises it.
            with contextlib.suppress(CollectiveError):
                pending.work.wait()
            with self._lock:
                self._finish(pending)

    def end_step(self) -> None:
        """After the last layer was waited for: the next `send` begins another step."""
        with self._lock:
            assert self._order.idle, "every layer is waited for before the step ends"
            self._begin()

    # --- helpers, with the lock held --------------------------------------------------------------------------

    def _open_step(self) -> None:
        if self._first is None:
            # One more, for the agreement over the ranks.
            self._first = self._communicator.reserve(len(self._order.slices) * self._reducer.sequences + 1)

    def _check(self) -> None:
        if self._error is not None:
            raise for_torch(self._error)

    def _pump(self) -> None:
        """Starts every slice that the order lets leave. A nested call (a slice was over at once) does nothing."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._error is None and (piece := self._order.poll_slice()) is not None:
                self._start(piece)
        except DlcpError as error:
            self._error = error
        finally:
            self._pumping = False

    def _start(self, piece: Slice) -> None:
        memory = self._memory[piece.layer]
        assert memory is not None
        assert self._first is not None
        sequence = self._first + piece.number * self._reducer.sequences
        pending = self._reducer.start(piece, memory, self._labels[piece.layer], sequence)
        self._under_way[piece.layer][piece.number] = pending
        if self._order.limits_what_is_under_way:
            pending.work.add_done_callback(functools.partial(self._at_end, pending))

    def _at_end(self, pending: PendingSlice, _: Work) -> None:
        """On the callback thread, or on the caller's if it was over at once."""
        with self._lock:
            self._finish(pending)

    def _finish(self, pending: PendingSlice) -> None:
        """A slice is over: the first thread that finds it so informs the order."""
        piece = pending.piece
        if self._under_way[piece.layer].get(piece.number) is not pending:
            return
        error = pending.work.exception()
        if error is not None:
            self._error = self._error or error
            return
        pending.settle()
        del self._under_way[piece.layer][piece.number]
        self._left[piece.layer] -= 1
        self._order.handle_finished(piece)
        self._pump()
