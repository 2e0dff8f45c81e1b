"""The metrics of one rank: its groups, its peers, its paths, its endpoint.

    json.dumps(Metrics(job).snapshot())

Nothing is sampled or kept here: a snapshot reads the counts that the endpoint and the flight recorder keep anyway.
Counts only grow, from the start of the job or the opening of a group; closed groups are left out. A rank that this one
has not talked to yet is no peer. prometheus.py writes the same for Prometheus.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import Counter
from dataclasses import asdict
from typing import Any, Protocol

from dlcp import __version__, _native, errors
from dlcp.transport.aggregation.account import AggregationAccount
from dlcp.transport.endpoint import Endpoint
from dlcp.transport.flight_recorder import FlightRecorder
from dlcp.transport.operation_counts import DURATION_BOUNDS_S
from dlcp.transport.recorder_entry import Entry, RecordedGroup

PACKET_OVERHEAD_BYTES: int = _native.HEADER_BYTES + _native.TAG_BYTES
"""The most that a data packet carries beside payload, under a job key: long header and tag, without UDP's and IP's."""


class Observed(Protocol):
    """The source of metrics; a Job."""

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def endpoint(self) -> Endpoint:
        """This rank's endpoint."""

    @property
    def recorder(self) -> FlightRecorder:
        """What counts this rank's operations."""


class GradientAccount(Protocol):
    """What keeps an account of gradients; a Ledger."""

    def snapshot(self) -> dict[str, Any]:
        """Its numbers, JSON-able."""


class Metrics:
    """The numbers of one rank. Any thread may ask."""

    def __init__(self, job: Observed) -> None:
        self._job = job
        self._lock = threading.Lock()
        self.aggregation: AggregationAccount | None = None
        """Set by who reduces through a switch that adds."""
        self._accounts: weakref.WeakValueDictionary[str, GradientAccount] = weakref.WeakValueDictionary()

    def include(self, name: str, account: GradientAccount) -> str:
        """Adds this account to snapshots under `gradients`, as long as other code keeps a reference to it.

        Returns its name there: another one if `name` is taken.
        """
        with self._lock:
            taken, number = name, 1
            while self._accounts.get(name, account) is not account:
                number += 1
                name = f"{taken} #{number}"
            self._accounts[name] = account
            return name

    def snapshot(self) -> dict[str, Any]:
        """All of it, JSON-able. Ranks are the job's, times seconds, bytes payload unless the name says otherwise.

        `groups` (by name) → `operations` (by kind): how many were started, completed and failed, payload moved, time
        from start to end; `waited_for`: how many failed while something of a rank was missing; `under_way`,
        `under_way_s_max`: operations that are not over, and the age of the oldest. `peers` (by rank) → the peer's
        state, its packets over all paths, and `paths`. `endpoint`: everything counted since it was opened. `driver`:
        what this driver alone counts, by its names.
        `gradients` (by name) → what Ledger.snapshot() says. `aggregation`: what
        AggregationAccount.snapshot() says of all-reduces that a switch was asked for; None: there is no switch to ask.

        Of a closed job there are no peers. Raises ForkError.
        """
        job = self._job
        endpoint = job.endpoint
        groups: dict[str, Any] = {}
        for group, under_way in job.recorder.groups:
            # Groups of other members may have the same name.
            name = f"{group.name} #{group.id}" if group.name in groups else group.name
            groups[name] = _describe_group(group, under_way)
        with self._lock:
            accounts = sorted(self._accounts.items())
        return {
            "time_s": time.time(),
            "version": __version__,
            "rank": job.rank,
            "size": job.size,
            "address": endpoint.address,
            "duration_bounds_s": list(DURATION_BOUNDS_S),
            "groups": groups,
            "peers": {} if endpoint.closed else _describe_peers(endpoint),
            "endpoint": asdict(endpoint.stats()),
            "driver": endpoint.driver_statistics(),
            "gradients": {name: account.snapshot() for name, account in accounts},
            "aggregation": None if self.aggregation is None else self.aggregation.snapshot(),
        }


def _describe_group(group: RecordedGroup, under_way: list[Entry]) -> dict[str, Any]:
    begun = Counter(entry.operation for entry in under_way)
    operations = {
        operation: counts.describe(begun[operation]) for operation, counts in sorted(group.counts.items())
    }
    waited_for: dict[str, int] = {}
    for counts in group.counts.values():
        for rank, times in counts.waited_for.items():
            member = str(group.members[rank])
            waited_for[member] = waited_for.get(member, 0) + times
    now_ns = time.time_ns()
    return {
        "rank": group.own,
        "members": list(group.members),
        "failure": group.failure,
        "collectives": group.enqueued + 1,
        "under_way": len(under_way),
        "under_way_s_max": max((max(0, now_ns - entry.started_ns) for entry in under_way), default=0) / 1e9,
        "operations": operations,
        "sent_bytes": sum(counts["sent_bytes"] for counts in operations.values()),
        "received_bytes": sum(counts["received_bytes"] for counts in operations.values()),
        "waited_for": waited_for,
    }


# What of a path is summed up over the paths to a peer.
_PATH_COUNTS = ("packets_sent", "packets_acked", "packets_lost", "ce_packets")


def _describe_peers(endpoint: Endpoint) -> dict[str, Any]:
    peers = {}
    for rank in endpoint.peers:
        # A peer may leave while the snapshot is made.
        with contextlib.suppress(errors.UnknownPeerError, errors.ClosedError):
            paths = {str(path.path): asdict(path) for path in endpoint.path_stats(rank)}
            described = asdict(endpoint.peer_stats(rank))
            described["address"] = endpoint.peer_address(rank)
            described |= {name: sum(path[name] for path in paths.values()) for name in _PATH_COUNTS}
            described["paths_down"] = sum(not path["up"] for path in paths.values())
            described["paths"] = paths
            peers[str(rank)] = described
    return peers
