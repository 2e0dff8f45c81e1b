"""One all-reduce by each exchange on simulated networks: time, and what a host's port and an up-link carry.

The executor and the engine that ship run on the simulator's hosts, so times are exact for a seed and do not depend on
this machine. So do the worker and the slots of switches that add, where a network's switches could: with at most 32
ranks at each. Their time includes what ranks agree on before and after. Adding takes no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.report import Report, progress
from dlcp.transport.schedule import estimate

if TYPE_CHECKING:
    from dlcp_sim import Result
    from dlcp_sim.fabrics import Fabric

SUMMARY = "simulated: ring, by hosts, direct, hub and switch on a star, behind hosts' links and in oversubscribed racks"
NEEDS_LAB = False
NEEDS_PROGRAMS = False

NBYTES, QUICK_NBYTES = 8 << 20, 4 << 20
# The first opens sessions; the last is timed.
TIMES = 2


@dataclass(frozen=True)
class Network:
    """Workers in groups of `group_size`, each group below an up-link; 0: all on one switch."""

    workers: int
    rate_bps: float
    group_size: int = 0
    uplink_bps: float = 0.0
    exchanges: tuple[str, ...] = ("ring", "halving_doubling", "direct")
    servers: tuple[int, ...] = field(default=())
    """Of a hub, in all: hosts of their own, as many in each group."""
    server_bps: float = 0.0
    """Of a server's link; 0: as a worker's."""
    adds: bool = False
    """Its switches add too; not where a group is a host."""
    times: int = TIMES
    delay_s: float = 1e-6
    """Of each link."""

    @property
    def groups(self) -> int:
        return self.workers // self.group_size if self.group_size else 1

    def fabric(self, servers: int) -> Fabric:
        from dlcp_sim import fabrics

        if not self.group_size:
            return fabrics.Star(
                self.workers + servers,
                rate_bps=self.rate_bps,
                delay_s=self.delay_s,
                link_rates=self._links(servers),
            )
        return fabrics.LeafSpine(
            self.groups,
            1,
            self.group_size + servers // self.groups,
            rate_bps=self.rate_bps,
            delay_s=self.delay_s,
            uplink_rate_bps=self.uplink_bps,
            link_rates=self._links(servers),
        )

    def _links(self, servers: int) -> dict[str, float]:
        """Links of another rate."""
        if not servers or not self.server_bps:
            return {}
        return {f"host {number}": self.server_bps for number in self.places(servers)["servers"]}

    def between(self, group_size: int) -> estimate.Network:
        """What the library would know of it, with `group_size` ranks on a machine; 0: one."""
        from dlcp_sim.workloads.collectives import network_of

        return network_of(self.fabric(0), np.array(self.places(0)["hosts"]), group_size)

    def places(self, servers: int) -> dict[str, Any]:
        """Which hosts are workers, and which are a hub's servers."""
        each = servers // self.groups
        size = (self.group_size or self.workers) + each
        firsts = [group * size for group in range(self.groups)]
        workers = tuple(first + i for first in firsts for i in range(size - each))
        if not servers:
            return {"hosts": workers}
        return {
            "hosts": workers,
            "servers": tuple(first + size - each + i for first in firsts for i in range(each)),
        }


_PLACED = ("ring", "hierarchical", "halving_doubling")
NETWORKS: Mapping[str, Network] = {
    "one switch, 4 workers, 1 Gb/s, hub 4 Gb/s": Network(4, 1e9, servers=(1,), server_bps=4e9, adds=True),
    "one switch, 16 workers, 25 Gb/s, hub 400 Gb/s": Network(16, 25e9, servers=(1,), server_bps=400e9),
    **{
        f"one switch, {workers} workers, {rate} Gb/s": Network(
            workers, rate * 1e9, servers=(workers // 4, workers), adds=workers <= 32
        )
        for workers, rate in ((16, 25), (16, 100), (16, 400), (64, 100))
    },
    # Inside a host as fast as memory is; a host's link is the group's up-link.
    "2 hosts of 8 workers, 25 Gb/s a host": Network(16, 200e9, 8, 25e9, _PLACED, (4, 16)),
    "8 hosts of 8 workers, 25 Gb/s a host": Network(64, 200e9, 8, 25e9, _PLACED, (8,)),
    "8 hosts of 8 workers, 100 Gb/s a host": Network(64, 200e9, 8, 100e9, _PLACED, (8,)),
    "4 racks of 16 workers, 100 Gb/s, 4:1": Network(64, 100e9, 16, 400e9, _PLACED, (16, 64), adds=True),
    "4 racks of 8 workers, 25 Gb/s, 8:1": Network(
        32, 25e9, 8, 25e9, (*_PLACED, "direct"), (8, 32), adds=True
    ),
    # Schedules of so many ranks take minutes, so it is for switches alone, and once.
    "32 racks of 32 workers, 100 Gb/s, 4:1": Network(1024, 100e9, 32, 800e9, (), adds=True, times=1),
}
QUICK = ("one switch, 16 workers, 100 Gb/s", "4 racks of 8 workers, 25 Gb/s, 8:1")


def run(*, quick: bool) -> Report:
    nbytes = QUICK_NBYTES if quick else NBYTES
    report = Report("exchanges", {"bytes": nbytes, "simulated": "exact for the seed"})
    for name in QUICK if quick else NETWORKS:
        network = NETWORKS[name]
        progress(name)
        columns = ["", "ms", "of the ring's", "host's port", "up-link"]
        table = report.table(f"{name}: bytes per byte of the tensor", columns)
        ring_s = 0.0
        for exchange, servers in (
            *((exchange, 0) for exchange in network.exchanges),
            *(("hub", servers) for servers in network.servers),
            *((("switch", 0),) if network.adds else ()),
        ):
            took_s, host, uplink = simulate(network, exchange, servers, nbytes)
            ring_s = took_s if exchange == "ring" else ring_s
            label = f"hub, servers: {servers}" if servers else exchange
            shown = f"{uplink / nbytes:.2f}" if network.group_size else ""
            table.add(
                label,
                f"{took_s * 1e3:.3f}",
                f"{took_s / ring_s:.2f}" if ring_s else "",
                f"{host / nbytes:.2f}",
                shown,
            )
    return report


def simulate(network: Network, exchange: str, servers: int, nbytes: int) -> tuple[float, float, float]:
    """Seconds of an all-reduce, and bytes that the busiest worker and the busiest up-link send in one."""
    import dlcp_sim
    from dlcp_sim.transports import Dlcp

    grouped = exchange == "hierarchical" or (servers and network.group_size)
    load = dlcp_sim.collective(
        algorithm=exchange,
        bytes=nbytes,
        times=network.times,
        executor=True,
        group_size=network.group_size if grouped else 0,
        **network.places(servers),
    )
    scenario = dlcp_sim.Scenario(fabric=network.fabric(servers), transport=Dlcp(), workload=load, seed=1)
    result = scenario.run()
    parts = np.split(np.asarray(result.tasks.finish_s), network.times)
    ends = [0.0, *(float(np.max(part)) for part in parts)]
    workers = {f"host {number}" for number in network.places(servers)["hosts"]}
    host = _busiest(result, lambda source, _: source in workers)
    uplink = _busiest(result, lambda _, target: target.startswith("aggregation"))
    return ends[-1] - ends[-2], host / network.times, uplink / network.times


def _busiest(result: Result, is_meant: Any) -> float:
    """What the port that sent the most sent, of those whose ends are meant."""
    sent = np.asarray(result.ports.bytes_sent).sum(axis=1)
    names = [result.ports.name(port).split(" → ") for port in range(len(sent))]
    return max(
        (float(count) for count, ends in zip(sent, names, strict=True) if is_meant(*ends)), default=0.0
    )
