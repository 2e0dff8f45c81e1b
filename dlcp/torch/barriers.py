"""A barrier that says which ranks did not come, as torch.distributed.monitored_barrier does for Gloo.

torch's own function asks for Gloo by name and refuses every other backend, so this one is called instead. Rank 0
collects a message from each rank and then tells everybody who is missing: unlike Gloo's, every rank that came raises
with the names, not rank 0 alone.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from dlcp.errors import CollectiveTimeoutError, DlcpError, WaitTimeoutError
from dlcp.torch.checks import USER_TAGS
from dlcp.torch.failures import for_torch
from dlcp.torch.tensors import span

if TYPE_CHECKING:
    from dlcp.torch.process_group import ProcessGroup
    from dlcp.transport.communicator import Work as Operation

# What new_group gives ranks that are not in the group; torch's stubs call it an int.
NON_MEMBER: Any = dist.GroupMember.NON_GROUP_MEMBER

ARRIVED_TAG = USER_TAGS
VERDICT_TAG = USER_TAGS + 1
# Of the time, what rank 0 leaves for its verdict to reach the others before they give up on it.
VERDICT_SHARE = 0.1


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
    from dlcp.torch.process_group import ProcessGroup

    group = dist.group.WORLD if group is None else group
    if group == NON_MEMBER:
        return
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"group is a {type(group).__name__}; accepted: a group of the backend dlcp")
    run(group, timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout, wait_all_ranks)


def run(group: ProcessGroup, timeout: timedelta | None, wait_all_ranks: bool) -> None:
    """As monitored_barrier, for a group that is known."""
    timeout_s = timeout.total_seconds() if timeout else group.communicator.timeout_s
    if group.size() == 1:
        return
    try:
        missing = (
            _collect(group, timeout_s, wait_all_ranks) if group.rank() == 0 else _report(group, timeout_s)
        )
    except DlcpError as error:
        raise for_torch(error) from None
    if missing:
        members = group.communicator.members
        ranks = ", ".join(str(rank) for rank in missing)
        globally = ", ".join(str(members[rank]) for rank in missing)
        raise for_torch(
            CollectiveTimeoutError(
                f"monitored_barrier of group {group.getGroupName()!r}: ranks [{ranks}] did not come within "
                f"{timeout_s:g} s (ranks [{globally}] of the job); look at what they are doing, as with py-spy dump"
            )
        )


def _collect(group: ProcessGroup, timeout_s: float, wait_all_ranks: bool) -> list[int]:
    """Rank 0: waits for the others, then tells those that came who did not."""
    communicator = group.communicator
    end_s = time.monotonic() + timeout_s * (1 - VERDICT_SHARE)
    others = range(1, group.size())
    tokens = torch.zeros(group.size(), dtype=torch.uint8)
    arrivals = {
        rank: communicator.receive(span(tokens[rank : rank + 1]), rank, ARRIVED_TAG, keep=tokens)
        for rank in others
    }
    missing: list[int] = []
    for rank in others:
        # Once one is missing the verdict is sure; the rest is only asked whether it is there.
        left_s = max(0.0, end_s - time.monotonic()) if wait_all_ranks or not missing else 0.0
        if not _has_come(arrivals[rank], left_s):
            missing.append(rank)
    verdict = torch.zeros(group.size(), dtype=torch.uint8)
    verdict[missing if wait_all_ranks else missing[:1]] = 1
    sent = [
        communicator.send(span(verdict), rank, VERDICT_TAG, keep=verdict)
        for rank in others
        if rank not in missing
    ]
    for work in sent:
        work.wait(max(timeout_s * VERDICT_SHARE, 1.0))
    return cast("list[int]", verdict.nonzero().flatten().tolist())


def _report(group: ProcessGroup, timeout_s: float) -> list[int]:
    """The others: tell rank 0, and hear from it."""
    communicator = group.communicator
    end_s = time.monotonic() + timeout_s
    token = torch.ones(1, dtype=torch.uint8)
    verdict = torch.zeros(group.size(), dtype=torch.uint8)
    arrived = communicator.send(span(token), 0, ARRIVED_TAG, keep=token)
    told = communicator.receive(span(verdict), 0, VERDICT_TAG, keep=verdict)
    for work in (arrived, told):
        if not _has_come(work, max(0.0, end_s - time.monotonic())):
            return [0]
    return cast("list[int]", verdict.nonzero().flatten().tolist())


def _has_come(work: Operation, timeout_s: float) -> bool:
    """Whether it was over within the time. Raises what it failed with."""
    try:
        work.wait(timeout_s)
    except WaitTimeoutError:
        return False
    return True
