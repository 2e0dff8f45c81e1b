"""The functions of torch that dlcp replaces, each by one that does the same for groups and works of C++.

tests/torch/test_cpp_virtuals.py says which functions there are that torch does not let a group in Python override.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from dlcp.torch.hooks import fp16_compress_hook
from dlcp.torch.work_in_cpp import whole


def install(within: Callable[[object], dist.ProcessGroup | None]) -> None:
    """Replaces them. `within`: the group of dlcp in one of torch's, or None."""
    keep_work = c10d.Reducer._set_forward_pass_work_handle
    set_timeout = distributed_c10d._set_pg_timeout
    register_hook = DistributedDataParallel._register_builtin_comm_hook

    # Under Join the reducer waits for a work that Python has let go of by then.
    @functools.wraps(keep_work)
    def keep_whole_work(reducer: c10d.Reducer, work: dist.Work, *arguments: Any, **named: Any) -> None:
        is_of_python = type(work).__module__ != c10d.Work.__module__
        keep_work(reducer, whole(work) if is_of_python else work, *arguments, **named)

    # torch asks for ProcessGroupGloo and ProcessGroupNCCL by type, and only warns of others.
    @functools.wraps(set_timeout)
    def set_any_timeout(timeout: timedelta, group: dist.ProcessGroup | None = None) -> None:
        given = within(group or distributed_c10d._get_default_group())
        if given is not None:
            given.set_timeout(timeout)
        if given is None or given is not group:  # what else is in a mixed group
            set_timeout(timeout, group)

    # torch's hook in C++ takes no future that Python has completed; this one computes the same.
    @functools.wraps(register_hook)
    def register_any_hook(model: DistributedDataParallel, hook: Any) -> None:
        group = within(model.process_group)
        if group is not None and hook is c10d.BuiltinCommHookType.FP16_COMPRESS:
            model.register_comm_hook(model.process_group, fp16_compress_hook)
        else:
            register_hook(model, hook)  # type: ignore[no-untyped-call]

    DistributedDataParallel._register_builtin_comm_hook = register_any_hook  # type: ignore[method-assign]
    c10d.Reducer._set_forward_pass_work_handle = keep_whole_work  # type: ignore[method-assign, assignment]
    distributed_c10d._set_pg_timeout = set_any_timeout
