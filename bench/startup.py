"""How long the ranks of a job need to find each other and meet in a first barrier, and what the store has to bear.

All ranks on this machine, forked from one interpreter whose own start counts too, as a launcher's workers would be.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import programs
from bench.report import Bar, Figure, Report, Table

SUMMARY = "time until 2 to 64 ranks on this machine have met in a first barrier"
NEEDS_LAB = False
SIZES = (2, 16, 64)
BAR_RANKS = 64
AT_MOST_S = 15.0


def run(*, quick: bool) -> Report:
    repeats = 1 if quick else 3
    table = Table("median (lowest–highest)", ["ranks", "seconds", "store entries per rank", "peers per rank"])
    bars = []
    for size in SIZES:
        answers = [_start(size) for _ in range(repeats)]
        times = Figure.of([answer[0] for answer in answers])
        entries = Figure.of([answer[1] / size for answer in answers])
        table.add(
            str(size), times.show(2), entries.show(1), Figure.of([answer[2] for answer in answers]).show(1)
        )
        if size == BAR_RANKS:
            bars.append(Bar(f"seconds to start {size} ranks", None, AT_MOST_S, times))
    return Report("startup", {"repeats": repeats}, [table], bars)


def _start(size: int) -> tuple[float, int, float]:
    """Seconds from nothing to the end of the barrier on every rank; entries in the store; peers of a rank."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        line = [sys.executable, "-m", "bench.startup", str(size), folder]
        done = subprocess.run(
            line, cwd=programs.ROOT, capture_output=True, text=True, check=False, timeout=600
        )
        taken_s = time.perf_counter() - begin
        if done.returncode:
            raise programs.ProgramError(
                f"{' '.join(line)} ended with {done.returncode}: {done.stderr.strip()}"
            )
        entries = sum(1 for path in Path(folder).iterdir() if not path.name.startswith("."))
        peers = [int(word) for word in done.stdout.split()]
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
