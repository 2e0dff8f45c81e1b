"""A c10d Backend over a group of dlcp: one device's half of a group of torch's own, such as "cpu:gloo,cuda:dlcp".

Only from torch 2.14 on a Backend can be written in Python. It adds no behaviour: every call is the group's of the same
name. A group of dlcp alone stays a ProcessGroup, since torch hands out a Backend's works as works of C++, which reach
Python for `wait` and `get_future` alone: is_completed() stays False, source_rank() raises, and callbacks of a future
run on whichever thread completes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from dlcp.torch.backend_name import BACKEND_NAME
from dlcp.torch.process_group import ProcessGroup

# What C++ asks a Backend for, by torch's names, and of a group under the same name.
_CALLS = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "allgather", "allgather_coalesced"),
    *("all_gather_single", "all_gather_single_coalesced", "gather", "scatter", "reduce_scatter"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced", "alltoall", "all_to_all_single"),
    *("send", "recv", "recv_anysource", "barrier", "set_timeout", "abort"),
    *("_get_sequence_number_for_group", "_set_sequence_number_for_group"),
)


class Backend(c10d.Backend):
    """A group of dlcp for `_register_backend`, and for whatever takes a c10d Backend; torch 2.14 or later.

    `group`: dlcp's, which it serves and whose shutdown is its own.
    """

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def __init__(self, group: ProcessGroup) -> None:
        if torch.__version__ < "2.14":
            raise ImportError(
                f"dlcp.torch.Backend needs torch 2.14 or later, here is {torch.__version__}; before, a group of dlcp is"
                " a process group of its own"
            )
        super().__init__(group.rank(), group.size())
        self.group = group
        """The group of dlcp: what functions of dlcp.torch take."""

    def getBackendName(self) -> str:  # noqa: N802
        return BACKEND_NAME

    name = getBackendName

    def allreduce_sparse(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        return self.group.allreduce(tensors, opts)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool) -> None:
        self.group.monitored_barrier(opts.timeout, wait_all_ranks)

    def shutdown(self) -> None:
        self.group.shutdown()

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<dlcp.torch.Backend of {self.group!r}>"


def _call(name: str) -> Callable[..., Any]:
    def call(self: Backend, *arguments: Any) -> Any:
        return getattr(self.group, name)(*arguments)

    return call


for name in _CALLS:
    setattr(Backend, name, _call(name))
