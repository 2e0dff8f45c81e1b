"""Folded Clos networks of up to three tiers, and their usual shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlcp.checks import is_integer
from dlcp_sim.fabrics.base import Fabric, Hop, check_count, check_delay, check_rate, picoseconds, refuse

if TYPE_CHECKING:
    from dlcp_sim import _core


@dataclass(frozen=True, kw_only=True)
class ThreeTier(Fabric):
    """A folded Clos network of pods.

    A pod has `edges` switches with `hosts_per_edge` hosts each, and `aggregations` above them; above all pods are
    `cores`, each aggregation switch linked to cores / aggregations of them. Without cores there is one pod: leaf and
    spine. Without aggregations one edge switch: a star.
    """

    kind = "three_tier"
    pods: int = 1
    edges: int = 1
    """Per pod."""
    hosts_per_edge: int = 2
    aggregations: int = 0
    """Per pod."""
    cores: int = 0
    """All together; a multiple of `aggregations`."""
    rate_bps: float = 100e9
    edge_rate_bps: float | None = None
    """Between edge and aggregation; None: `rate_bps`."""
    core_rate_bps: float | None = None
    """Between aggregation and core; None: `edge_rate_bps`."""
    delay_s: float = 1e-6
    """Of host links."""
    edge_delay_s: float | None = None
    core_delay_s: float | None = None
    link_rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("pods", "edges", "hosts_per_edge"):
            check_count(name, getattr(self, name))
        for name in ("aggregations", "cores"):
            check_count(name, getattr(self, name), 0)
        if self.edges > 1 and self.aggregations == 0:
            refuse("aggregations", 0, "1 or more: a pod has several edge switches")
        if self.pods > 1 and self.cores == 0:
            refuse("cores", 0, "1 or more: there are several pods")
        if self.cores and (self.aggregations == 0 or self.cores % self.aggregations):
            refuse("cores", self.cores, f"a multiple of aggregations, {self.aggregations}")
        if not 2 <= self.hosts < 2**24:
            refuse("hosts", self.hosts, "2 to 2^24 - 1")
        for tier, (rate_bps, delay_s) in zip(("", "edge_", "core_"), self._tiers(), strict=True):
            check_rate(f"{tier}rate_bps", rate_bps)
            check_delay(f"{tier}delay_s", delay_s)

    def _tiers(self) -> list[tuple[float, float]]:
        """Rate and delay of each tier's links, hosts' first."""
        edge = self.rate_bps if self.edge_rate_bps is None else self.edge_rate_bps
        core = edge if self.core_rate_bps is None else self.core_rate_bps
        edge_delay = self.delay_s if self.edge_delay_s is None else self.edge_delay_s
        core_delay = edge_delay if self.core_delay_s is None else self.core_delay_s
        return [(self.rate_bps, self.delay_s), (edge, edge_delay), (core, core_delay)]

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.pods * self.edges * self.hosts_per_edge

    def path(self) -> list[Hop]:
        """From the first pod to the last, or as far up as there are switches."""
        tiers = 3 if self.pods > 1 else 2 if self.edges > 1 else 1
        up = [Hop(*tier) for tier in self._tiers()[:tiers]]
        return [*up, *reversed(up)]

    def oversubscription(self) -> float:
        """What hosts could send over what leaves their edge switch or pod, whichever is scarcer."""
        (host, _), (edge, _), (core, _) = self._tiers()
        pod_bps = self.edges * self.hosts_per_edge * host
        ratios = [1.0]
        if self.aggregations:
            ratios.append(self.hosts_per_edge * host / (self.aggregations * edge))
        if self.cores:
            ratios.append(pod_bps / (self.cores * core))
        return max(ratios)

    def _kinds(self) -> Sequence[tuple[str, int]]:
        edges, aggregations = self.pods * self.edges, self.pods * self.aggregations
        return ("host", self.hosts), ("edge", edges), ("aggregation", aggregations), ("core", self.cores)

    def _make(self) -> _core.Fabric:
        from dlcp_sim import _core

        rates, delays = zip(*self._tiers(), strict=True)
        shape = (self.pods, self.edges, self.hosts_per_edge, self.aggregations, self.cores)
        return _core.Fabric(_core.Clos(*shape, *map(round, rates), *map(picoseconds, delays)))


def FatTree(  # noqa: N802  a fabric, as the others
    k: int,
    *,
    rate_bps: float = 100e9,
    delay_s: float = 1e-6,
    oversubscription: float = 1,
    edge_rate_bps: float | None = None,
    core_rate_bps: float | None = None,
    edge_delay_s: float | None = None,
    core_delay_s: float | None = None,
    link_rates: Mapping[str, float] | None = None,
) -> ThreeTier:
    """A k-ary fat-tree (Al-Fares et al., SIGCOMM 2008): k pods of k/2 edge and k/2 aggregation switches, k²/4 cores.

    With `oversubscription`, each edge switch has that many times the k/2 hosts.
    """
    if not is_integer(k, 2, 510) or k % 2:
        refuse("k", k, "an even integer from 2 to 510")
    hosts_per_edge = k // 2 * oversubscription
    if oversubscription < 1 or hosts_per_edge != int(hosts_per_edge):
        refuse(
            "oversubscription", oversubscription, f"1 or more, and a whole number of hosts times it: {k // 2}"
        )
    return ThreeTier(
        pods=k,
        edges=k // 2,
        hosts_per_edge=int(hosts_per_edge),
        aggregations=k // 2,
        cores=k * k // 4,
        rate_bps=rate_bps,
        edge_rate_bps=edge_rate_bps,
        core_rate_bps=core_rate_bps,
        delay_s=delay_s,
        edge_delay_s=edge_delay_s,
        core_delay_s=core_delay_s,
        link_rates=link_rates or {},
    )


def LeafSpine(  # noqa: N802
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    *,
    rate_bps: float = 100e9,
    uplink_rate_bps: float | None = None,
    delay_s: float = 1e-6,
    uplink_delay_s: float | None = None,
    link_rates: Mapping[str, float] | None = None,
) -> ThreeTier:
    """Two tiers: every leaf ("edge 0", …) linked to every spine ("aggregation 0", …). `uplink_rate_bps` None: rate_bps.

    The fabric of pFabric (Alizadeh et al., SIGCOMM 2013) is `LeafSpine(9, 4, 16, rate_bps=10e9, uplink_rate_bps=40e9)`.
    """
    return ThreeTier(
        pods=1,
        edges=leaves,
        hosts_per_edge=hosts_per_leaf,
        aggregations=spines,
        rate_bps=rate_bps,
        edge_rate_bps=uplink_rate_bps,
        delay_s=delay_s,
        edge_delay_s=uplink_delay_s,
        link_rates=link_rates or {},
    )


def Star(  # noqa: N802
    hosts: int,
    *,
    rate_bps: float = 100e9,
    delay_s: float = 1e-6,
    link_rates: Mapping[str, float] | None = None,
) -> ThreeTier:
    """All hosts on one switch, "edge 0"."""
    return ThreeTier(hosts_per_edge=hosts, rate_bps=rate_bps, delay_s=delay_s, link_rates=link_rates or {})
