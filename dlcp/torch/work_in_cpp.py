"""Works that are given to torch's C++ from Python.

A work has a C++ half and a Python half, and what it does is in the Python half. A call from C++ that returns a work
keeps both. A work that is *given* to C++ is kept as its C++ half alone: once Python lets go of its half, `wait` in C++
is the base class's, which waits for ever. tests/torch/test_cpp_virtuals.py lists torch's functions that take a work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


class _Bearer(dist.ProcessGroup):
    """A group for one call, whose barrier is a work that exists already."""

    def __init__(self, work: dist.Work) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]
        self._work = work

    def barrier(self, opts: Any = None) -> dist.Work:
        return self._work


def whole(work: dist.Work) -> dist.Work:
    """A work of C++ that waits as `work` does, has its future, and keeps it alive."""
    return dist.ProcessGroup.barrier(_Bearer(work), dist.BarrierOptions())


def register(work: dist.Work, result: Sequence[torch.Tensor]) -> None:
    """Has wait_tensor() of a result wait for the work, where torch asks for that; torch's own groups do so in C++."""
    if c10d._allow_inflight_collective_as_graph_input():
        for tensor in result:
            if tensor.layout is torch.strided:
                c10d._register_work(tensor, whole(work))
