"""A command on every host of a lab, as ranks of a job (dlcp/rank_processes.py)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from dlcp import rank_processes
from dlcp.lab.fault import FabricError
from dlcp.lab.namespaces import INTERFACE
from dlcp.lab.switched_lab import SwitchedLab

MASTER_PORT = 29500
NOTHING: Mapping[str, str] = {}


def environment(
    lab: SwitchedLab, hosts: Sequence[int], rank: int, more: Mapping[str, str] = NOTHING
) -> dict[str, str]:
    """The variables of a rank; those that are set outside stay, unless they say which rank this is and where."""
    port = os.environ.get("MASTER_PORT", MASTER_PORT)
    return {
        "OMP_NUM_THREADS": "1",  # the ranks together have few cores
        "PYTHONUNBUFFERED": "1",
        "DLCP_SHM": "0",  # a network is what there is to see
        **more,
        **os.environ,
        **rank_processes.variables(rank, len(hosts), lab.addresses[hosts[0]], port, of_one_host=False),
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


def run_ranks(
    lab: SwitchedLab,
    words: Sequence[str],
    hosts: Iterable[int] | None = None,
    variables: Mapping[str, str] = NOTHING,
) -> int:
    """Runs a command on the hosts, all of them if None. Returns 0, or the status of the first that failed.

    variables: besides those of the ranks; what is set outside stays. Blocks until all are over.
    """
    chosen = list(range(lab.hosts) if hosts is None else hosts)
    return rank_processes.run_ranks(
        [
            rank_processes.RankCommand(
                lab.command(host, words),
                environment(lab, chosen, number, variables),
                f"rank {number} on h{host}",
            )
            for number, host in enumerate(chosen)
        ]
    )
