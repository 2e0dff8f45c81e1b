"""One pending buffer of gradients, and what happens when its collectives are over.

A pending buffer is settled once, before a caller sees its result: settling gives back to the memory what did not
arrive, enters the buffer in the ledger, and copies the result where the caller wants it. Settling never waits, so any
thread that finds the collectives over may do it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from dlcp.torch.futures import CollectiveFuture
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.tensors import CopyBack
from dlcp.torch.work import CollectiveWork
from dlcp.transport.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBuffer:
    """What is known of a buffer when its collectives start; constant from then on. Pipelines add to it."""

    key: Hashable
    """Identifies the buffer among those of its step, on this rank."""
    layout: Layout
    step: int
    """Number of the step."""
    memory: torch.Tensor
    """What was prepared to be sent, 1-D; on the CPU, or where it is worked on (crossing.py). Stays as it is until the
    buffer is settled."""
    output: torch.Tensor
    """What the pipeline fills, 1-D; on the CPU, or on the buffer's device."""
    result: torch.Tensor
    """What the caller gets: the output itself, or a tensor it is copied to."""
    back: CopyBack
    """The copy from output to result, where they differ."""
    factor: float | None
    """Of the result, on top of the reduction; None: 1."""

    @classmethod
    def of(
        cls,
        buffer: GradientBuffer,
        memory: torch.Tensor,
        opened: tuple[torch.Tensor, torch.Tensor, CopyBack],
        **more: Any,
    ) -> Self:
        """What a pipeline makes of a buffer. `opened`: output, result and back, as BufferPool.output has them."""
        output, result, back = opened
        return cls(
            key=buffer.key,
            layout=buffer.layout,
            step=buffer.step,
            memory=memory,
            output=output,
            result=result,
            back=back,
            factor=buffer.call.factor,
            **more,
        )

    @property
    def name(self) -> str:
        """For people: the first parameter in it, and how many more."""
        names = self.layout.names()
        if not names:
            return "padding"
        return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")


class PendingBuffer:
    """A prepared buffer whose collectives have started.

    `finish`: what is to be done with the buffer, now that its collectives are over, before the result is copied back;
    returns the squared L2 norm of the result, or None if it is not wanted.
    """

    def __init__(
        self, prepared: PreparedBuffer, operations: Sequence[Work], finish: Callable[[], float | None]
    ) -> None:
        self.prepared = prepared
        self.operations = operations
        """The collectives."""
        self.square: float | None = None
        """Squared L2 norm of the result, once it is settled and where it is wanted."""
        self.settled = False
        self._error: BaseException | None = None
        # A caller and the end of the step may settle it at the same time.
        self._lock = threading.RLock()
        self._finish: Callable[[], float | None] | None = finish

    @property
    def result(self) -> torch.Tensor:
        """What the caller gets; there once the buffer is settled."""
        return self.prepared.result

    def wait(self) -> None:
        """Blocks until it is settled. Raises the collective's error, or that of settling."""
        for operation in self.operations:
            operation.wait()
        self.settle()

    def settle(self) -> None:
        """Its collectives have ended well. May be called again; raises each time what settling it raised."""
        with self._lock:
            if not self.settled:
                assert self._finish is not None
                finish, self._finish = self._finish, None
                try:
                    self.square = finish()
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
    """The work of buffers: over when they are settled."""

    def __init__(self, buffers: Sequence[PendingBuffer], result: list[torch.Tensor]) -> None:
        super().__init__(
            [operation for buffer in buffers for operation in buffer.operations], result, _Settling(buffers)
        )

    def tensor_future(self) -> CollectiveFuture:
        """A future of the one result, which is settled even if no caller waits for it."""
        (result,) = self._result
        future = CollectiveFuture([result.device] if result.is_cuda else ())

        def complete() -> None:
            self._settle()
            future.complete(lambda: self._outcome()[0])

        self.when_over(complete)
        return future
