"""Named ranges for torch.profiler: "dlcp:all_reduce" where a collective starts, "dlcp:all_reduce wait" where one waits.

Every range begins and ends on the thread that recorded it. torch can also end a range on another thread, when a future
completes; but if the profiler has stopped by then, that writes to events which are gone, and the process crashes.

Costs one question per collective when no profiler records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch._C._profiler import _RecordFunctionFast

# 0.1 us; true while a profiler records on this thread.
is_recording: Callable[[], bool] = torch._C._autograd._profiler_enabled


def started(operation: str, keep: object) -> contextlib.AbstractContextManager[object]:
    """The range of starting an operation. Its input shapes are those of the tensors in `keep`."""
    return _RecordFunctionFast(f"dlcp:{operation}", tuple(_tensors(keep)), {})


def waited(operation: str) -> contextlib.AbstractContextManager[object]:
    """The range of waiting for an operation."""
    return _RecordFunctionFast(f"dlcp:{operation} wait", (), {})


def _tensors(keep: object) -> Iterator[torch.Tensor]:
    if isinstance(keep, torch.Tensor):
        yield keep
    elif isinstance(keep, list | tuple):
        for each in keep:
            yield from _tensors(each)
