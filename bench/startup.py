"""How long the ranks of a job need to find each other and meet in a first barrier, and what the store has to bear.

All ranks on this machine, forked from one interpreter whose own start counts too, as a launcher's workers would be.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from bench import programs
from bench.report import Figure, Report, spread

SUMMARY = "time until 2 to 64 ranks on this machine have met in a first barrier"
NEEDS_LAB = False
SIZES = (2, 16, 64)
BAR_RANKS = 64
AT_MOST_S = 15.0


def run(*, quick: bool) -> Report:
    repeats = 1 if quick else 3
    report = Report("startup", {"repeats": repeats})
    table = report.table(
        "median (lowest–highest)", ["ranks", "seconds", "store entries per rank", "peers per rank"]
    )
    for size in SIZES:
        times_s, entries, peers = zip(*(_start(size) for _ in range(repeats)), strict=True)
        per_rank = spread((count / size for count in entries), 1)
        table.add(str(size), spread(times_s, 2), per_rank, spread(peers, 1))
        if size == BAR_RANKS:
            report.at_most(AT_MOST_S, f"seconds to start {size} ranks", Figure.of(times_s))
    return report


def _start(size: int) -> tuple[float, int, float]:
    """Seconds from nothing to the end of the barrier on every rank; entries in the store; peers of a rank."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        line = [sys.executable, "-m", "bench.startup", str(size), folder]
        peers = [int(word) for word in programs.run(line, timeout_s=600).split()]
        taken_s = time.perf_counter() - begin
        entries = sum(1 for path in Path(folder).iterdir() if not path.name.startswith("."))
        return taken_s, entries, sum(peers) / len(peers)


def _launch(size: int, folder: str) -> int:
    """Forks the ranks and waits for them; 1 if one of them failed."""
    # Imported before the fork, so that it is done once; opened after it, since a job belongs to its process.
    import dlcp.transport.job

    children = []
    for rank in range(size):
        if (pid := os.fork()) == 0:
            status = 1
            try:
                with dlcp.transport.job.Job(dlcp.transport.store.FileStore(folder), rank, size) as job:
                    job.open_communicator("all").barrier().wait()
                    os.write(
                        1, f"{len(job.endpoint.peers)}\n".encode()
                    )  # in one piece: all ranks write there
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Starts ranks once; used by `python -m bench startup`.")
    parser.add_argument("size", type=int)
    parser.add_argument("folder")
    arguments = parser.parse_args()
    sys.exit(_launch(arguments.size, arguments.folder))
