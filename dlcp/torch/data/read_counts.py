"""Where samples came from: counts that DataLoader workers add to as well.

The counts lie in shared memory, one row per worker and the first for the process that made the cache. So nobody waits
for a lock of another process, which may have been killed. Two DataLoaders whose workers read one cache at the same time
share rows, and may lose a count.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch

COUNTS = (
    "memory",
    "peer",
    "disk",
    "remote",
    "torn",
    "served",
    "peer_failed",
)
"""`memory`, `peer` (another rank's memory or disk), `disk`, `remote` (the data set): reads that this level answered,
for this rank or for one that asked it. `torn`: entries of the disk that could not be used. `served`: samples that other
ranks were sent. `peer_failed`: samples that another rank did not give in time, and that were read here."""

_ROWS = 129


class ReadCounts:
    """Counts by name, added up over this rank's processes. Any thread may use it."""

    def __init__(self) -> None:
        self._shared = torch.zeros(_ROWS, len(COUNTS), dtype=torch.int64)
        self._shared.share_memory_()  # type: ignore[no-untyped-call]
        self.use_row(0)

    def use_row(self, number: int) -> None:
        """Counts in a row of this process from now on: 0 for the maker of the cache, i + 1 for worker i."""
        self._row: np.ndarray[Any, np.dtype[np.int64]] = self._shared[min(number, _ROWS - 1)].numpy()
        # A forked child must not wait for a lock that a thread of its parent held.
        self._lock = threading.Lock()

    def add(self, name: str, count: int = 1) -> None:
        """Adds to one count."""
        column = COUNTS.index(name)
        with self._lock:
            self._row[column] += count

    def totals(self) -> dict[str, int]:
        """The sums over this rank's processes."""
        return dict(zip(COUNTS, self._shared.sum(0).tolist(), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return {"_shared": self._shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._shared = state["_shared"]
        self.use_row(0)
