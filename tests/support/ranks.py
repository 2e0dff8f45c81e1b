"""Ranks as threads of the test's process, each with a job and an endpoint of its own on loopback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dlcp.transport.closeable import Closeable
from dlcp.transport.communicator import Communicator
from dlcp.transport.job import Job
from dlcp.transport.store import MemoryStore

# Ends what would hang; far above what anything here takes.
PATIENCE_S = 60.0


# Groups that fail on purpose leave no traces in the folder for temporary files.
_QUIET: dict[str, Any] = {"timeout_s": PATIENCE_S, "flight_recorder_entries": 0}


class World(Closeable):
    """`size` ranks that find each other in a store. `settings`: of every rank; `per_rank(rank)`: more of them."""

    def __init__(
        self, size: int, *, per_rank: Callable[[int], dict[str, Any]] | None = None, **settings: Any
    ) -> None:
        self.size = size
        self.store = MemoryStore(PATIENCE_S)
        self._pool = ThreadPoolExecutor(size)
        self._groups = 0
        more = {} if per_rank is None else {rank: per_rank(rank) for rank in range(size)}
        self.jobs: list[Job] = self.run(
            lambda rank: Job(self.store, rank, size, **(_QUIET | settings | more.get(rank, {})))
        )

    def run(self, function: Callable[[int], Any], ranks: Sequence[int] | None = None) -> list[Any]:
        """What `function(rank)` returns on each rank, all at once. Raises what the first of them raised."""
        ranks = range(self.size) if ranks is None else ranks
        futures = [self._pool.submit(function, rank) for rank in ranks]
        return [future.result(PATIENCE_S) for future in futures]

    def open(self, members: Sequence[int] | None = None, **arguments: Any) -> list[Communicator]:
        """A fresh group: the communicator of each member, by rank in the group."""
        self._groups += 1
        name = f"group {self._groups}"
        ranks = list(range(self.size) if members is None else members)
        return self.run(lambda rank: self.jobs[rank].open_communicator(name, members, **arguments), ranks)

    def each(self, groups: Sequence[Communicator], function: Callable[[Communicator], Any]) -> list[Any]:
        """What `function(group)` returns on each member, all at once."""
        by_rank = {group.job.rank: group for group in groups}
        return self.run(lambda rank: function(by_rank[rank]), [group.job.rank for group in groups])

    def close(self) -> None:
        """Closes all jobs."""
        self.run(lambda rank: self.jobs[rank].close())
        self._pool.shutdown()
