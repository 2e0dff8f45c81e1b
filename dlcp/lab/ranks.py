"""A command on every host of a lab, as ranks of a job: started, its output marked by rank, ended together.

The variables are torchrun's, so that a script that runs under it runs here. Invariant: when `run_ranks` returns or
raises, none of the processes it started is left; the first that fails ends the rest.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from dlcp.lab.fault import FabricError
from dlcp.lab.namespaces import INTERFACE
from dlcp.lab.switched_lab import SwitchedLab
from dlcp.signals import fate

MASTER_PORT = 29500
NOTHING: Mapping[str, str] = {}
# Between being asked to end and being killed.
GRACE_S = 3.0


def environment(
    lab: SwitchedLab, hosts: Sequence[int], rank: int, more: Mapping[str, str] = NOTHING
) -> dict[str, str]:
    """The variables of a rank; those that are set outside stay, unless they say which rank this is and where."""
    return {
        "OMP_NUM_THREADS": "1",  # the ranks together have few cores
        "PYTHONUNBUFFERED": "1",
        "DLCP_SHM": "0",  # a network is what there is to see
        **more,
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": lab.addresses[hosts[0]],
        "MASTER_PORT": os.environ.get("MASTER_PORT", str(MASTER_PORT)),
        "DLCP_INTERFACE": INTERFACE,
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "DLCP_LAB": lab.name,
    }


def parse_hosts(text: str, count: int) -> list[int]:
    """Numbers of hosts from words such as "0-2,5" or "h0,h3". FabricError: one is not there, or comes twice."""
    found: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"h?(\d+)(?:-h?(\d+))?", word.strip())
        if match is None:
            raise FabricError(f"hosts has {word!r}; accepted: numbers and ranges, such as 0-2,5")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    for host in found:
        if host >= count:
            raise FabricError(f"hosts has {host}; accepted: 0 to {count - 1}")
    if not found or len(set(found)) != len(found):
        raise FabricError(f"hosts is {text!r}; accepted: each host once")
    return found


@dataclass
class _Rank:
    number: int
    host: int
    process: subprocess.Popen[bytes]
    unread: dict[int, bytes]

    def show(self, got: bytes, source: int, target: IO[str], prefix: str) -> None:
        """Writes whole lines, marked; what is left of one at the end as well."""
        *lines, self.unread[source] = (self.unread[source] + got).split(b"\n")
        if not got and self.unread[source]:
            lines, self.unread[source] = [self.unread[source]], b""
        for line in lines:
            print(f"{prefix}{line.decode(errors='replace')}", file=target, flush=True)


def run_ranks(
    lab: SwitchedLab,
    words: Sequence[str],
    hosts: Iterable[int] | None = None,
    variables: Mapping[str, str] = NOTHING,
) -> int:
    """Runs a command on the hosts, all of them if None. Returns 0, or the status of the first that failed.

    variables: besides those of the ranks; what is set outside stays.

    A rank that a signal ended counts as 128 and the signal's number. Blocks until all are over.
    """
    chosen = list(range(lab.hosts) if hosts is None else hosts)
    ranks: list[_Rank] = []
    with selectors.DefaultSelector() as selector:
        try:
            for number, host in enumerate(chosen):
                process = subprocess.Popen(
                    lab.command(host, words),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment(lab, chosen, number, variables),
                    start_new_session=True,
                )
                rank = _Rank(number, host, process, {})
                ranks.append(rank)
                for pipe, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                    assert pipe is not None
                    rank.unread[pipe.fileno()] = b""
                    selector.register(pipe, selectors.EVENT_READ, (rank, target))
            return _watch(ranks, selector)
        finally:
            _end(ranks)


def _watch(ranks: list[_Rank], selector: selectors.BaseSelector) -> int:
    failed: _Rank | None = None
    while selector.get_map():
        # A rank's children may hold its pipes open, so it is looked at too.
        for key, _ in selector.select(0.1):
            rank, target = key.data
            got = os.read(key.fd, 1 << 16)
            rank.show(got, key.fd, target, f"[{rank.number}] ")
            if not got:
                selector.unregister(key.fileobj)
        over = [rank for rank in ranks if rank.process.poll() is not None]
        if failed is None and (failed := next((r for r in over if r.process.returncode), None)) is not None:
            if len(ranks) > 1:
                text = f"rank {failed.number} on h{failed.host} {fate(failed.process.returncode)}"
                print(f"{text}; the others are ended", file=sys.stderr, flush=True)
            _end(ranks)
        if len(over) == len(ranks) and not selector.select(0.1):
            break
    for rank in ranks:
        rank.process.wait()
    if failed is None:
        failed = next((rank for rank in ranks if rank.process.returncode), None)
    return 0 if failed is None else exit_status(failed.process.returncode)


def exit_status(returncode: int) -> int:
    """As shells say it: 128 and the signal's number for what a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


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
