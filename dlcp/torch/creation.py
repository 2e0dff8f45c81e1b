"""dlcp.torch.create: a group from a store alone, for tools that make their groups themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store
from torch.distributed.constants import default_pg_timeout

from dlcp.torch.options import Options
from dlcp.torch.process_group import ProcessGroup


def create(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta | float = default_pg_timeout,
    *,
    pg_options: Any = None,
    name: str = "created",
) -> ProcessGroup:
    """A group of the ranks that share this store. It needs no default group and does not become it.

    `store`: torch's, for this group alone: a PrefixStore will do. `rank` of `size`. `timeout`: of this call and of the
    group's operations; a number is seconds. `pg_options`: as init_process_group's. `name`: for errors.
    Blocks until all ranks have called it. Raises what the transport's Job does, such as StoreTimeoutError with the
    ranks that did not come, and ArgumentError.

    Use it as any group (`dist.all_reduce(tensor, group=group)`, DDP's `process_group`). torch does not list it: close
    it with `shutdown()` or, without waiting for other ranks, `abort()`. One that is dropped open is closed on another
    thread, and operations of other ranks that wait for this one fail. torchft's wrapper:

        class ProcessGroupDlcp(torchft.process_group.ProcessGroupWrapper):
            def _create_pg(self, store, rank, world_size):
                return dlcp.torch.create(store, rank, world_size, self._timeout)
    """
    timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    group = ProcessGroup.of_store(store, rank, size, timeout_s, Options.of(pg_options), name)
    group.close_when_dropped()
    return group
