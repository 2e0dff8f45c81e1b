"""A command as every rank of a job: processes of this machine, their output marked by rank, ended together.

The variables are torchrun's, so that a script that runs under it runs here. Invariant: when `run_ranks` returns or
raises, none of the processes it started is left; the first that fails ends the rest. Where a rank runs, such as in a
namespace, is its command line's affair.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from dlcp.signals import fate

LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables by which a launcher says who a process is and where the ranks meet."""
# Between being asked to end and being killed.
GRACE_S = 3.0


@dataclass(frozen=True)
class RankCommand:
    """What runs as a rank."""

    words: Sequence[str]
    environment: Mapping[str, str]
    name: str
    """Such as "rank 1 on h1"."""


def launched() -> bool:
    """Whether this process is a rank of a launcher."""
    return all(map(os.environ.get, LAUNCHER))


def variables(rank: int, ranks: int, address: str, port: int | str, *, of_one_host: bool) -> dict[str, str]:
    """What torchrun sets for a rank. `of_one_host`: all ranks are; otherwise each has one of its own."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank if of_one_host else 0),
        "LOCAL_WORLD_SIZE": str(ranks if of_one_host else 1),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def run_ranks(commands: Sequence[RankCommand], *, marked: bool = True, answer: int | None = None) -> int:
    """Runs a command per rank, in their order. Returns 0, or the status of the first that failed.

    `marked`: what they print is, by rank; otherwise they write where this process does. `answer`: a status that is an
    answer: about it nothing is said. A rank that a signal ended counts as 128 and the signal's number. Blocks until all
    are over.
    """
    ranks: list[_Rank] = []
    pipe = subprocess.PIPE if marked else None
    with selectors.DefaultSelector() as selector:
        try:
            for number, command in enumerate(commands):
                process = subprocess.Popen(
                    command.words,
                    stdin=subprocess.DEVNULL,
                    stdout=pipe,
                    stderr=pipe,
                    env=command.environment,
                    start_new_session=True,
                )
                rank = _Rank(number, command.name, process)
                ranks.append(rank)
                for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                    if source is not None:
                        rank.unread[source.fileno()] = b""
                        selector.register(source, selectors.EVENT_READ, (rank, target))
            return _watch(ranks, selector, answer)
        finally:
            _end(ranks)


def exit_status(returncode: int) -> int:
    """As shells say it: 128 and the signal's number for what a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


@dataclass
class _Rank:
    number: int
    name: str
    process: subprocess.Popen[bytes]
    unread: dict[int, bytes] = field(default_factory=dict)

    def show(self, got: bytes, source: int, target: IO[str], prefix: str) -> None:
        """Writes whole lines, marked; what is left of one at the end as well."""
        *lines, self.unread[source] = (self.unread[source] + got).split(b"\n")
        if not got and self.unread[source]:
            lines, self.unread[source] = [self.unread[source]], b""
        for line in lines:
            print(f"{prefix}{line.decode(errors='replace')}", file=target, flush=True)


def _watch(ranks: list[_Rank], selector: selectors.BaseSelector, answer: int | None) -> int:
    failed: _Rank | None = None
    over: list[_Rank] = []
    while selector.get_map() or len(over) < len(ranks):
        # A rank's children may hold its pipes open, so it is looked at too.
        for key, _ in selector.select(0.1):
            rank, target = key.data
            got = os.read(key.fd, 1 << 16)
            rank.show(got, key.fd, target, f"[{rank.number}] ")
            if not got:
                selector.unregister(key.fileobj)
        over = [rank for rank in ranks if rank.process.poll() is not None]
        if failed is None and (failed := next((r for r in over if r.process.returncode), None)) is not None:
            if len(ranks) > 1 and failed.process.returncode != answer:
                text = f"{failed.name} {fate(failed.process.returncode)}"
                print(f"{text}; the others are ended", file=sys.stderr, flush=True)
            _end(ranks)
        if len(over) == len(ranks) and not selector.select(0.1):
            break
    return 0 if failed is None else exit_status(failed.process.returncode)


def _end(ranks: list[_Rank]) -> None:
    """Asks all that are left to end, with their children, and kills those that do not."""
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        left = [rank for rank in ranks if rank.process.poll() is None]
        for rank in left:
            with contextlib.suppress(OSError):
                os.killpg(rank.process.pid, number)
        end_s = time.monotonic() + wait_s
        for rank in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(max(0.0, end_s - time.monotonic()))
