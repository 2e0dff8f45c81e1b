"""CUDA tensors, through pinned memory of the host, in the order of the current stream.

Exact, but not fast: the caller blocks until the current stream has produced an input and the input has been copied to
the host. The result is copied back on a separate stream; the streams that use it wait for that copy, the host does not.
Nothing here runs, and CUDA is not initialised, before a collective gets a CUDA tensor.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import torch

_lock = threading.Lock()
# One stream per device for copies from the host: results do not wait for work on the user's streams.
_streams: dict[torch.device, Any] = {}


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A pinned contiguous copy, complete on return. Blocks until the current stream has produced the tensor."""
    memory = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    memory.copy_(tensor.detach(), non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    return memory


def now(device: torch.device) -> Any:
    """An event after everything queued on the device's current stream so far."""
    return torch.cuda.current_stream(device).record_event()


def fill(tensor: torch.Tensor, memory: torch.Tensor, before: Any) -> tuple[torch.device, Any]:
    """Starts the copy of pinned memory to a tensor of the device, after the event `before`. Returns its end's event.

    Between the call of the collective and wait() the user's streams must not touch the tensor, as with every backend.
    """
    stream = stream_of(tensor.device)
    with torch.cuda.stream(stream), torch.no_grad():
        stream.wait_event(before)
        tensor.detach().copy_(memory, non_blocking=True)
        # The allocator must not hand the memory out again while this stream may still write it.
        tensor.record_stream(stream)
        return tensor.device, stream.record_event()


def make_stream_wait(device: torch.device, event: Any) -> None:
    """Makes the device's current stream wait for the event."""
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
