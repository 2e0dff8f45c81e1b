"""Named ranges for torch.profiler: "dlcp:all_reduce" from the call to the end of the collective.

Costs one question per collective when nobody profiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from dlcp.torch.work import CollectiveWork

# 50 ns; true while a profiler records on this thread.
is_recording: Callable[[], bool] = torch._C._autograd._profiler_enabled


def record(operation: str, work: CollectiveWork) -> None:
    """Opens a range on this thread, closed when the work is over."""
    span = torch.profiler.record_function(f"dlcp:{operation}")
    span.__enter__()  # type: ignore[no-untyped-call]
    # torch's own way to end a range on another thread than the one that began it.
    span._call_end_callbacks_on_future(work.get_future())
