"""What crosses between a buffer's device and the memory that the transport reads.

A pipeline that can works where the buffer is: it codes or chooses there in torch operations, keeps what waits there,
and only codes, chosen values and what travels exactly cross, through pinned memory. Such a buffer is on CUDA.

Order. Down: the current stream first waits for all that has returned to the device, then the caller for the copies; so
whatever a pipeline made on the device until then is there, and pinned memory that went up in an earlier step is free.
Up: results are made on the stream on which results return (cuda.py), once the buffer's own stream had reached the
collective's start; who waits for the work waits for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dlcp.torch import cuda
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.tensors import CopyBack

_forced: bool | None = None
"""For tests and benchmarks, which compare the ways: all buffers go that of a device (True), or none does (False)."""


def is_on_device(buffer: GradientBuffer) -> bool:
    """Whether a buffer is worked on where it is, in torch operations; else on the host, in its native code."""
    values, into = buffer.values, buffer.call.into
    if type(values) is not Tensor or values.is_neg() or not values.is_contiguous():
        return False
    if into is not None and into.device != values.device:
        return False
    return values.is_cuda if _forced is None else _forced


def crossing_of(buffer: GradientBuffer) -> Crossing | None:
    """The way of a buffer that is worked on on its device; None: of another one."""
    return Crossing(buffer.values.device) if is_on_device(buffer) else None


class Crossing(CopyBack):
    """The way of one buffer: down, and, when its collectives are over, up again."""

    __slots__ = ("_before", "_downloads", "_is_cuda", "_output", "device")

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self._is_cuda = device.type == "cuda"
        self._before: Any = None
        self._downloads: list[tuple[Tensor, Tensor]] = []
        self._output: Tensor | None = None

    def output(self, account: Account, buffer: GradientBuffer) -> tuple[Tensor, Tensor, CopyBack]:
        """As BufferPool.output, on the device; where it can be, the output is what the caller gets.

        With the state's lock held. What is filled in place of the buffer is filled when all is over.
        """
        output = where_wanted(buffer)
        if output is not None and output.is_contiguous():
            self._output = output.detach().view(-1)
            return self._output, output, self
        self._output = account.buffers.take(buffer.output_numel, buffer.values.dtype, self.device)
        into = buffer.call.into
        if into is None:
            return self._output, self._output, self
        self.add(into, self._output.view(into.shape), "gradients")
        return self._output, into, self

    def down(self, tensor: Tensor, memory: Tensor | None = None) -> Tensor:
        """Host memory that holds the tensor once `wait` has returned: `memory`, or new."""
        if memory is None:
            memory = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._is_cuda)
        self._downloads.append((tensor, memory))
        return memory

    def wait(self) -> None:
        """Makes the copies down. Blocks until they are made, and all that the current stream had to do."""
        if self._is_cuda:
            returned = cuda.stream_of(self.device).record_event()
            cuda.make_stream_wait(self.device, returned)
        for tensor, memory in self._downloads:
            memory.copy_(tensor, non_blocking=True)
        if self._is_cuda:
            self._before = cuda.now(self.device)
            self._before.synchronize()
        self._downloads = []

    @contextlib.contextmanager
    def up(self, *others: Tensor) -> Iterator[None]:
        """`with` around what fills the output, and `others`, on the device: in the order of its streams."""
        if not self._is_cuda:
            yield
            return
        stream = cuda.stream_of(self.device)
        with torch.cuda.stream(stream):
            stream.wait_event(self._before)
            yield
            # The allocator must not hand the memory out again while this stream may still write it.
            for tensor in (self._output, *others):
                if tensor is not None and tensor.is_cuda:
                    tensor.record_stream(stream)
            self._events.append((self.device, stream.record_event()))

    def finish(self) -> None:
        """Within `up`: blocks until the device has done all so far."""
        if self._is_cuda:
            cuda.stream_of(self.device).synchronize()


def where_wanted(buffer: GradientBuffer) -> Tensor | None:
    """Where the caller wants the result, if it may be made there at once: its own tensor, or the buffer."""
    into = buffer.call.into
    if into is None and not buffer.scattered:
        into = buffer.values
    if (
        into is None
        or into.is_inference()
        or into.dtype != buffer.values.dtype
        or into.numel() != buffer.output_numel
    ):
        return None
    return into
