"""A barrier that names the missing ranks, as torch.distributed.monitored_barrier does for Gloo.

Rank 0 collects a message from each rank, then sends every rank the list of missing ranks. Unlike with Gloo, every rank
that came raises an error with their names, not rank 0 alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import torch

from dlcp.errors import CollectiveTimeoutError, DlcpError, WaitTimeoutError
from dlcp.torch.checks import USER_TAGS
from dlcp.torch.failures import for_torch
from dlcp.torch.tensors import span

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator
    from dlcp.transport.communicator import Work as Operation

ARRIVED_TAG = USER_TAGS
VERDICT_TAG = USER_TAGS + 1
# The part of the timeout that rank 0 reserves for its verdict to reach the other ranks.
VERDICT_SHARE = 0.1


def monitored_barrier(communicator: Communicator, group: str, timeout_s: float, wait_all_ranks: bool) -> None:
    """Blocks until every rank has called it, for `timeout_s` at most. `group`: its name, for errors.

    `wait_all_ranks`: name all ranks that did not come within the time, not the first one alone. Raises
    CollectiveTimeoutError naming the missing ranks, on every rank that came.
    """
    if communicator.size == 1:
        return
    try:
        if communicator.rank == 0:
            missing = _collect(communicator, timeout_s, wait_all_ranks)
        else:
            missing = _report(communicator, timeout_s)
    except DlcpError as error:
        raise for_torch(error) from None
    if missing:
        ranks = ", ".join(str(rank) for rank in missing)
        of_job = ", ".join(str(communicator.members[rank]) for rank in missing)
        raise for_torch(
            CollectiveTimeoutError(
                f"monitored_barrier of group {group!r}: ranks [{ranks}] did not come within {timeout_s:g} s (timeout; "
                f"ranks [{of_job}] of the job); look at what they are doing, for example with py-spy dump"
            )
        )


def _collect(communicator: Communicator, timeout_s: float, wait_all_ranks: bool) -> list[int]:
    """Rank 0: waits for the other ranks, then sends the ranks that came the list of missing ones."""
    end_s = time.monotonic() + timeout_s * (1 - VERDICT_SHARE)
    others = range(1, communicator.size)
    tokens = torch.zeros(communicator.size, dtype=torch.uint8)
    arrivals = {
        rank: communicator.receive(span(tokens[rank : rank + 1]), rank, ARRIVED_TAG, keep=tokens)
        for rank in others
    }
    missing: list[int] = []
    for rank in others:
        # Once a rank is missing the verdict is certain; the remaining ranks are only polled.
        left_s = max(0.0, end_s - time.monotonic()) if wait_all_ranks or not missing else 0.0
        if not _has_come(arrivals[rank], left_s):
            missing.append(rank)
    verdict = torch.zeros(communicator.size, dtype=torch.uint8)
    verdict[missing if wait_all_ranks else missing[:1]] = 1
    sent = [
        communicator.send(span(verdict), rank, VERDICT_TAG, keep=verdict)
        for rank in others
        if rank not in missing
    ]
    for work in sent:
        work.wait(max(timeout_s * VERDICT_SHARE, 1.0))
    return cast("list[int]", verdict.nonzero().flatten().tolist())


def _report(communicator: Communicator, timeout_s: float) -> list[int]:
    """Other ranks: send rank 0 a message, and receive its verdict."""
    end_s = time.monotonic() + timeout_s
    token = torch.ones(1, dtype=torch.uint8)
    verdict = torch.zeros(communicator.size, dtype=torch.uint8)
    arrived = communicator.send(span(token), 0, ARRIVED_TAG, keep=token)
    verdict_here = communicator.receive(span(verdict), 0, VERDICT_TAG, keep=verdict)
    for work in (arrived, verdict_here):
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
