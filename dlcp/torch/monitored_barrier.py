"""dlcp.torch.monitored_barrier: torch's own asks for Gloo by name and refuses every other backend."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from dlcp.torch.process_group import ProcessGroup

# What new_group gives ranks that are not in the group; torch's stubs call it an int.
NON_MEMBER: Any = dist.GroupMember.NON_GROUP_MEMBER


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Blocks until every rank of the group has called it.

    `group`: of the backend dlcp; None: the default group. `timeout`: None, the group's; a number, seconds.
    `wait_all_ranks`: name all ranks that did not come within the time, not the first one alone.
    Raises CollectiveTimeoutError naming the missing ranks, on every rank that came; TypeError: another backend's group.
    """
    group = dist.group.WORLD if group is None else group
    if group == NON_MEMBER:
        return
    if (inner := ProcessGroup.within(group)) is None:
        raise TypeError(f"group is a {type(group).__name__}; accepted: a group of the backend dlcp")
    if isinstance(timeout, int | float):
        timeout = timedelta(seconds=timeout)
    inner.monitored_barrier(timeout, wait_all_ranks)
