"""CUDA tensors, through pinned memory of the host, in the order of the current stream.

Exact, and slow on purpose for now: the caller waits until what the current stream was doing to an input is done and
the input has reached the host; the result goes back on a stream of its own, and the streams that use it wait for that
copy, not the host. Nothing here is called, and CUDA not touched, before a CUDA tensor turns up.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import torch

_lock = threading.Lock()
# One stream per device for copies from the host, so that results wait for nothing that the user's streams do.
_streams: dict[torch.device, Any] = {}


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A pinned contiguous copy, complete on return. Blocks until the current stream has produced the tensor."""
    memory = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    memory.copy_(tensor.detach(), non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    return memory


def now(device: torch.device) -> Any:
    """An event after everything that the device's current stream has been given so far."""
    return torch.cuda.current_stream(device).record_event()


def fill(tensor: torch.Tensor, memory: torch.Tensor, before: Any) -> tuple[torch.device, Any]:
    """Starts the copy of pinned memory to a tensor of the device, after the event `before`; the event of its end.

    Work that the user gives a stream between the call of the collective and wait() must not touch the tensor, as with
    every backend: an output belongs to the collective until then.
    """
    stream = stream_of(tensor.device)
    with torch.cuda.stream(stream), torch.no_grad():
        stream.wait_event(before)
        tensor.detach().copy_(memory, non_blocking=True)
        # The allocator must not hand the memory out again while this stream may still write it.
        tensor.record_stream(stream)
        return tensor.device, stream.record_event()


def make_stream_wait(device: torch.device, event: Any) -> None:
    """Lets the device's current stream go on only after the event."""
    torch.cuda.current_stream(device).wait_event(event)


def stream_of(device: torch.device) -> Any:
    """The stream on which results return to this device."""
    with _lock:
        if device not in _streams:
            _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return _streams[device]


def on_streams_of(devices: Sequence[torch.device]) -> contextlib.AbstractContextManager[Any]:
    """Makes the streams on which results return the current ones of these devices."""
    if not devices:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    for device in devices:
        stack.enter_context(torch.cuda.stream(stream_of(device)))
    return stack
