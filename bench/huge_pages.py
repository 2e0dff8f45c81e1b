"""Huge pages of 2 MB for as long as they are needed, for benchmarks and tests alike.

The number is the machine's, so who wants some waits for those who have some, makes only what is missing, and takes away
as many at the end: what others made meanwhile stays. The number is that of this size, for /proc/sys/vm/nr_hugepages is
of the default size, 1 GB on some machines (kernel.org, admin-guide/mm/hugetlbpage).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dlcp import own_files

PLACE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
LOCK = Path("/tmp/dlcp-huge-pages.lock")
PATIENCE_S = 600.0
"""For others to give back theirs."""


@contextlib.contextmanager
def reserve(count: int, *, place: Path = PLACE, lock: Path = LOCK) -> Iterator[str | None]:
    """At least `count` free pages until the end of `with`; what it yields is why there are none, or None.

    0 keeps others from making any meanwhile. Blocks while another process has some, at most PATIENCE_S.
    """
    with contextlib.ExitStack() as exits:
        try:
            # Only root makes pages, so another user's lock is a trap.
            held = exits.enter_context(os.fdopen(own_files.open_file(lock, os.O_RDWR | os.O_CREAT)))
            own_files.lock(held.fileno(), PATIENCE_S)
            made = _add(max(0, count - free(place)), place)
        except OSError as error:
            yield f"no pages of 2 MB: {error}"
            return
        exits.callback(_add, -made, place)
        there = free(place)
        yield None if there >= count else f"no pages of 2 MB: {there} of {count} are free"


def free(place: Path = PLACE) -> int:
    """Pages that nobody uses; 0 where the kernel has none of this size."""
    file = place / "free_hugepages"
    return int(file.read_text()) if file.exists() else 0


def _add(count: int, place: Path) -> int:
    """So many pages more, or less if negative; how many it became, for the kernel makes what it has room for."""
    if count == 0:
        return 0
    file = place / "nr_hugepages"
    before = int(file.read_text())
    file.write_text(f"{max(0, before + count)}\n")
    return int(file.read_text()) - before
