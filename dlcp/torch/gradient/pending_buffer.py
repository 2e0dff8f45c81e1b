"""One pending buffer of gradients, and what happens when its collective is over.

A pending buffer is settled once, before a caller sees its result: settling passes abandoned values to the fill and the
ledger, undoes a transform, and copies the result where the caller wants it. Settling never waits, so any thread that
finds the collective over may do it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.torch.callbacks import pool
from dlcp.torch.futures import CollectiveFuture
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.tensors import CopyBack
from dlcp.torch.work import CollectiveWork
from dlcp.transport.bounded import Outcome
from dlcp.transport.work import Work

Importance = Sequence[NDArray[np.uint8] | None] | None
"""Of blocks, by the rank that adds them; None: no other rank does."""


@dataclass(frozen=True, slots=True)
class PreparedBuffer:
    """Everything decided about a buffer before its collective starts; constant from then on."""

    key: Hashable
    """Identifies the buffer among those of its step, on this rank."""
    layout: Layout
    step: int
    """Number of the step."""
    memory: torch.Tensor
    """What the collective reads: CPU, 1-D. Stays as it is until the buffer is settled."""
    output: torch.Tensor
    """What the collective fills: CPU, 1-D."""
    result: torch.Tensor
    """What the caller gets: the output itself, or a tensor it is copied to."""
    back: CopyBack
    """The copy from output to result, where they differ."""
    importance: Importance
    transformed: Sequence[tuple[int, int]]
    """Ranges of elements of the memory that the fill has transformed."""
    origin: int
    """The element of the memory that the output begins with; not 0 where the result is one part of the buffer."""
    factor: float | None
    """Of the result, on top of the reduction; None: 1."""
    sent_bytes: int
    """Bytes of the buffer that other ranks add: the budget is a fraction of these."""
    critical_bytes: int
    """Of them, bytes that are never abandoned."""
    given_ratio: float
    """Fraction of sent_bytes that may be abandoned, 0 to 1."""
    block_bytes: int
    """Of messages to other ranks, the smallest if they differ."""

    @property
    def name(self) -> str:
        """For people: the first parameter in it, and how many more."""
        names = self.layout.names()
        if not names:
            return "padding"
        return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")


class PendingBuffer:
    """A prepared buffer whose collective has started.

    `finish`: what is to be done with the buffer and the collective's outcome before the result is copied back; returns
    the squared L2 norm of the result, or None if it is not wanted.
    """

    def __init__(
        self,
        prepared: PreparedBuffer,
        operation: Work,
        finish: Callable[[PreparedBuffer, Outcome], float | None],
    ) -> None:
        self.prepared = prepared
        self.operation = operation
        """The collective."""
        self.square: float | None = None
        """Squared L2 norm of the result, once it is settled and where it is wanted."""
        self.settled = False
        self._error: BaseException | None = None
        # A caller and the end of the step may settle it at the same time.
        self._lock = threading.RLock()
        self._finish: Callable[[PreparedBuffer, Outcome], float | None] | None = finish

    @property
    def result(self) -> torch.Tensor:
        """What the caller gets; there once the buffer is settled."""
        return self.prepared.result

    def wait(self) -> None:
        """Blocks until it is settled. Raises the collective's error, or that of settling."""
        self.operation.wait()
        self.settle()

    def settle(self) -> None:
        """Its collective has ended well. May be called again; raises each time what settling it raised."""
        with self._lock:
            if not self.settled:
                assert self._finish is not None
                finish, self._finish = self._finish, None
                try:
                    self.square = finish(self.prepared, self.operation.outcome)
                    self.prepared.back.run()
                except BaseException as error:
                    self._error = error
                self.settled = True
        if self._error is not None:
            raise self._error


class _Settling(CopyBack):
    """Settles buffers where a plain collective would only copy results back."""

    __slots__ = ("_buffers",)

    def __init__(self, buffers: Sequence[PendingBuffer]) -> None:
        super().__init__()
        self._buffers = buffers

    def __bool__(self) -> bool:
        return True

    def run(self) -> None:
        for buffer in self._buffers:
            buffer.settle()

    def make_streams_wait(self) -> None:
        for buffer in self._buffers:
            buffer.prepared.back.make_streams_wait()


class GradientWork(CollectiveWork):
    """The work of bounded collectives: over when their buffers are settled."""

    def __init__(self, buffers: Sequence[PendingBuffer], result: list[torch.Tensor]) -> None:
        super().__init__([buffer.operation for buffer in buffers], result, _Settling(buffers))

    def tensor_future(self) -> CollectiveFuture:
        """A future of the one result, which is settled even if no caller waits for it."""
        (result,) = self._result
        future = CollectiveFuture([result.device] if result.is_cuda else ())

        def complete() -> None:
            future.complete(lambda: self._outcome()[0])

        (operation,) = self._operations
        operation.add_done_callback(lambda _: pool.submit(complete))
        return future
