"""Fabrics to simulate: trees of up to three tiers, a bottleneck, two sites, or any graph from a file.

A fabric is a description, in seconds and bits per second; it says at once what is wrong with it (ArgumentError: the
field, its value, what is accepted) and costs nothing until `build` makes the simulator's own from it. Hosts are
"host 0", "host 1", …; switches of a tree "edge 3", "aggregation 1", "core 0", of other graphs "switch 2", or as the
file calls them. Every link has two directions, each with a queue of its own at the sending end.
"""

from __future__ import annotations

import json
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dlcp.errors import ArgumentError
from dlcp_sim.plain import table_of

if TYPE_CHECKING:
    from dlcp_sim import _core

PS_PER_S = 10**12
BITS = 8


class FabricError(ArgumentError):
    """A fabric that cannot be built, or a node or link that it does not have."""


def _refuse(name: str, value: object, accepted: str) -> NoReturn:
    raise FabricError(f"{name} is {value!r}; accepted: {accepted}")


def _check_count(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 65535:
        _refuse(name, value, f"an integer from {least} to 65535")


def _check_rate(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e3 <= value <= 1e14:
        _refuse(name, value, "1e3 to 1e14 bits per second")


def _check_delay(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-12 <= value <= 10:
        _refuse(name, value, "1e-12 to 10 seconds")


def picoseconds(seconds: float) -> int:
    """The simulator's unit of time."""
    return round(seconds * PS_PER_S)


def transmit_ps(size_bytes: int, rate_bps: float) -> int:
    """How long `size_bytes` take on a link, as the simulator rounds it: to 1/65536 ps per byte, then to 1 ps."""
    per_byte = round(BITS * PS_PER_S * 65536 / rate_bps)
    return (size_bytes * per_byte + 0x8000) >> 16


@dataclass(frozen=True)
class Hop:
    """One directed link of a path."""

    rate_bps: float
    delay_s: float


class Fabric(ABC):
    """What all fabrics have in common."""

    kind: ClassVar[str] = ""
    """In a scenario's file."""
    rate_bps: float
    """Of host links. Policies and transports are tuned to it."""
    link_rates: Mapping[str, float]
    """Rates of single links that differ: "host 3" (both directions of the host's cable), "edge 0 - aggregation 1" (both
    directions), "edge 0 -> aggregation 1" (one)."""

    @property
    @abstractmethod
    def hosts(self) -> int:
        """How many hosts there are."""

    @abstractmethod
    def path(self) -> list[Hop]:
        """The links of a longest path between two hosts, in order; without regard to `link_rates`."""

    @abstractmethod
    def _make(self) -> _core.Fabric: ...

    def build(self) -> _core.Fabric:
        """The simulator's fabric. Another one at each call: a simulation takes it over."""
        core = self._make()
        for name, rate_bps in self.link_rates.items():
            _check_rate(f"link_rates[{name!r}]", rate_bps)
            for port in ports_of(core, self, name):
                core.set_rate(port, round(rate_bps))
        return core

    @cached_property
    def core(self) -> _core.Fabric:
        """A built one to look things up in: `.ports`, `.link(port)`, `.name(node)`. Not for a simulation."""
        return self.build()

    def __getstate__(self) -> dict[str, Any]:
        return {
            key: value for key, value in self.__dict__.items() if key != "core"
        }  # what is built stays here

    def node(self, name: str) -> int:
        """The number of a node; FabricError if there is none of that name."""
        return node_of(self.core, self, name)

    def name(self, node: int) -> str:
        """What a node is called."""
        return str(self.core.name(node))

    def port(self, source: str, target: str) -> int:
        """The port at which `source` sends to its neighbour `target`."""
        return _port_between(self.core, self, source, target)

    def base_rtt_s(self, data_bytes: int, ack_bytes: int = 64) -> float:
        """Round trip of a data packet and its answer on a longest path, store-and-forward, all queues empty."""
        path = self.path()
        each_way = sum(transmit_ps(size, h.rate_bps) for h in path for size in (data_bytes, ack_bytes))
        return (each_way + 2 * sum(picoseconds(h.delay_s) for h in path)) / PS_PER_S

    def bandwidth_delay_bytes(self, data_bytes: int, ack_bytes: int = 64) -> int:
        """What is in flight when one host's link is just full, on a longest path."""
        return round(self.rate_bps * self.base_rtt_s(data_bytes, ack_bytes) / BITS)

    def as_dict(self) -> dict[str, Any]:
        """The table of a scenario's file that makes it; what is None is left out. ArgumentError if there is none."""
        if not self.kind:
            raise ArgumentError(f"{self!r} has no form as a table: it is made in Python")
        return table_of(self.kind, self)

    # Names that a file gave; others have their kind and number.
    def _own_names(self) -> Mapping[str, int]:
        return {}


def node_of(core: _core.Fabric, fabric: Fabric, name: str) -> int:
    """The number of the node of this name in a built fabric."""
    own = fabric._own_names()
    if name in own:
        return own[name]
    kind, _, number = name.partition(" ")
    nodes = core.hosts + core.switches
    if number.isascii() and number.isdigit():
        # A name is its kind's first node and a number; look where it must be, then see whether it is there.
        first = _first_of_kind(core, kind)
        node = first + int(number)
        if first >= 0 and node < nodes and core.name(node) == f"{kind} {int(number)}":
            return int(node)
    examples = ", ".join(repr(str(core.name(n))) for n in (0, core.hosts, nodes - 1))
    _refuse("node", name, f"a node of the fabric, such as {', '.join(list(map(repr, own))[:3]) or examples}")


def _first_of_kind(core: _core.Fabric, kind: str) -> int:
    nodes = core.hosts + core.switches
    if kind == "host":
        return 0
    # Kinds follow each other; there are at most three, so halving finds where one begins.
    order = ["edge", "aggregation", "core"] if str(core.name(core.hosts)).startswith("edge") else ["switch"]
    if kind not in order:
        return -1
    low, high = core.hosts, nodes
    while low < high:
        middle = (low + high) // 2
        if order.index(str(core.name(middle)).split()[0]) < order.index(kind):
            low = middle + 1
        else:
            high = middle
    return int(low) if low < nodes else -1


def _port_between(core: _core.Fabric, fabric: Fabric, source: str, target: str) -> int:
    port = core.port_between(node_of(core, fabric, source), node_of(core, fabric, target))
    if not 0 <= port < core.ports:
        _refuse("link", f"{source} -> {target}", "two neighbours")
    return int(port)


def ports_of(core: _core.Fabric, fabric: Fabric, link: str, both: bool = True) -> list[int]:
    """The ports that a link's name means: "a -> b" one, "a - b" two; "host 3" its cable's two; "switch 2" all of its.

    Of a single node, and if not `both`, only those that it sends at. Of several cables between the same two nodes, the
    first.
    """
    for separator, directions in (("->", 1), (" - ", 2)):
        if separator in link:
            source, target = (part.strip() for part in link.split(separator, 1))
            ends = [(source, target), (target, source)][:directions]
            return [_port_between(core, fabric, *pair) for pair in ends]
    node = node_of(core, fabric, link)
    own = list(range(core.first_port(node), core.first_port(node + 1)))
    return [*own, *(int(core.reverse(port)) for port in own)] if both else own


# --- trees ---------------------------------------------------------------------------------------------------


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
            _check_count(name, getattr(self, name))
        for name in ("aggregations", "cores"):
            _check_count(name, getattr(self, name), 0)
        if self.edges > 1 and self.aggregations == 0:
            _refuse("aggregations", 0, "1 or more: a pod has several edge switches")
        if self.pods > 1 and self.cores == 0:
            _refuse("cores", 0, "1 or more: there are several pods")
        if self.cores and (self.aggregations == 0 or self.cores % self.aggregations):
            _refuse("cores", self.cores, f"a multiple of aggregations, {self.aggregations}")
        if not 2 <= self.hosts < 2**24:
            _refuse("hosts", self.hosts, "2 to 2^24 - 1")
        for tier, (rate_bps, delay_s) in zip(("", "edge_", "core_"), self._tiers(), strict=True):
            _check_rate(f"{tier}rate_bps", rate_bps)
            _check_delay(f"{tier}delay_s", delay_s)

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
    if isinstance(k, bool) or not isinstance(k, int) or not 2 <= k <= 510 or k % 2:
        _refuse("k", k, "an even integer from 2 to 510")
    hosts_per_edge = k // 2 * oversubscription
    if oversubscription < 1 or hosts_per_edge != int(hosts_per_edge):
        _refuse(
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


# --- other graphs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cable:
    """Two links between two nodes."""

    a: int
    b: int
    rate_bps: float
    delay_s: float


class _Graph(Fabric):
    """A fabric of cables. `_switches` and `_cables` describe it; routes are shortest paths, by number of links."""

    @property
    @abstractmethod
    def _switches(self) -> int: ...

    @abstractmethod
    def _cables(self) -> Iterator[Cable]: ...

    def _pods(self) -> Sequence[int]:
        """Per switch, which part of the fabric one thread simulates; empty: each switch is one."""
        return ()

    def _make(self) -> _core.Fabric:
        from dlcp_sim import _core

        cables = [(c.a, c.b, round(c.rate_bps), picoseconds(c.delay_s)) for c in self._cables()]
        return _core.Fabric(self.hosts, self._switches, cables, list(self._pods()))

    def path(self) -> list[Hop]:
        """The longest of the shortest paths, found from a host that is farthest from the first."""
        neighbours: dict[int, list[tuple[int, Hop]]] = {}
        for c in self._cables():
            neighbours.setdefault(c.a, []).append((c.b, Hop(c.rate_bps, c.delay_s)))
            neighbours.setdefault(c.b, []).append((c.a, Hop(c.rate_bps, c.delay_s)))
        _, farthest = self._farthest(neighbours, 0)
        path, _ = self._farthest(neighbours, farthest)
        return path

    def _farthest(
        self, neighbours: Mapping[int, list[tuple[int, Hop]]], source: int
    ) -> tuple[list[Hop], int]:
        """The path with most links, then most delay, from a host to any other, and that host."""
        before: dict[int, tuple[int, Hop]] = {}
        rank = {source: (0, 0.0)}
        queue = [source]
        for node in queue:
            for other, hop in neighbours.get(node, []):
                links, delay_s = rank[node]
                if other not in rank:
                    rank[other] = (links + 1, delay_s + hop.delay_s)
                    before[other] = (node, hop)
                    queue.append(other)
        reached = max((h for h in range(self.hosts) if h in rank), key=lambda h: (rank[h], -h))
        path: list[Hop] = []
        node = reached
        while node != source:
            node, hop = before[node]
            path.append(hop)
        return path[::-1], reached


@dataclass(frozen=True)
class Dumbbell(_Graph):
    """`left` hosts on "switch 0", `right` hosts on "switch 1", and one cable between them: the bottleneck."""

    kind = "dumbbell"
    left: int
    right: int
    rate_bps: float = 100e9
    bottleneck_bps: float | None = None
    """None: `rate_bps`."""
    delay_s: float = 1e-6
    bottleneck_delay_s: float | None = None
    link_rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_count("left", self.left)
        _check_count("right", self.right)
        for cable in self._cables():
            _check_rate("rate_bps", cable.rate_bps)
            _check_delay("delay_s", cable.delay_s)

    @property
    def hosts(self) -> int:
        """How many hosts there are: 0 … left - 1 on the left, the others on the right."""
        return self.left + self.right

    @property
    def _switches(self) -> int:
        return 2

    def _pods(self) -> Sequence[int]:
        return [0, 1]

    def _cables(self) -> Iterator[Cable]:
        for host in range(self.hosts):
            yield Cable(host, self.hosts + (host >= self.left), self.rate_bps, self.delay_s)
        rate_bps = self.rate_bps if self.bottleneck_bps is None else self.bottleneck_bps
        delay_s = self.delay_s if self.bottleneck_delay_s is None else self.bottleneck_delay_s
        yield Cable(self.hosts, self.hosts + 1, rate_bps, delay_s)


@dataclass(frozen=True)
class TwoSites(_Graph):
    """Two equal leaf-spine sites, joined by long cables between their border switches.

    A site has `leaves` switches with `hosts_per_leaf` hosts each, `spines` above them, and one border switch above
    those. Numbered are a site's leaves, its spines, its border; site 0 first, hosts too. All links but host links and
    the long ones have `uplink_rate_bps`.
    """

    kind = "two_sites"
    leaves: int
    spines: int
    hosts_per_leaf: int
    rate_bps: float = 100e9
    uplink_rate_bps: float | None = None
    long_rate_bps: float | None = None
    """Of each long cable; None: `rate_bps`."""
    long_cables: int = 1
    delay_s: float = 1e-6
    long_delay_s: float = 5e-3
    """5 ms is some 1,000 km of fibre."""
    link_rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("leaves", "spines", "hosts_per_leaf", "long_cables"):
            _check_count(name, getattr(self, name))
        _check_rate("rate_bps", self.rate_bps)
        for name in ("uplink_rate_bps", "long_rate_bps"):
            if getattr(self, name) is not None:
                _check_rate(name, getattr(self, name))
        _check_delay("delay_s", self.delay_s)
        _check_delay("long_delay_s", self.long_delay_s)

    @property
    def hosts(self) -> int:
        """How many hosts there are, at both sites."""
        return 2 * self.leaves * self.hosts_per_leaf

    @property
    def _switches(self) -> int:
        return 2 * (self.leaves + self.spines + 1)

    def _pods(self) -> Sequence[int]:
        site = self._switches // 2
        return [switch // site for switch in range(self._switches)]

    def border(self, site: int) -> str:
        """The name of a site's border switch."""
        return f"switch {(site + 1) * (self.leaves + self.spines + 1) - 1}"

    def _cables(self) -> Iterator[Cable]:
        uplink_bps = self.rate_bps if self.uplink_rate_bps is None else self.uplink_rate_bps
        borders = []
        for site in range(2):
            first = self.hosts + site * (self.leaves + self.spines + 1)
            border = first + self.leaves + self.spines
            borders.append(border)
            for leaf in range(self.leaves):
                for i in range(self.hosts_per_leaf):
                    host = (site * self.leaves + leaf) * self.hosts_per_leaf + i
                    yield Cable(host, first + leaf, self.rate_bps, self.delay_s)
                for spine in range(self.spines):
                    yield Cable(first + leaf, first + self.leaves + spine, uplink_bps, self.delay_s)
            for spine in range(self.spines):
                yield Cable(first + self.leaves + spine, border, uplink_bps, self.delay_s)
        long_bps = self.rate_bps if self.long_rate_bps is None else self.long_rate_bps
        for _ in range(self.long_cables):
            yield Cable(borders[0], borders[1], long_bps, self.long_delay_s)


@dataclass(frozen=True)
class Graph(_Graph):
    """Any graph: hosts with one cable each, switches, cables between their numbers (hosts first, then switches)."""

    kind = "graph"
    host_names: Sequence[str]
    switch_names: Sequence[str]
    cables: Sequence[Cable]
    pods: Sequence[int] = ()
    rate_bps: float = 0.0
    """Of host links, for tuning; 0: the slowest of them."""
    link_rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [*self.host_names, *self.switch_names]
        if len(self.host_names) < 2:
            _refuse("hosts", len(self.host_names), "2 or more")
        if not self.switch_names:
            _refuse("switches", 0, "1 or more")
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            _refuse("name", twice, "a name that no other node has")
        degree = [0] * len(names)
        for cable in self.cables:
            where = f"cable {names[cable.a]} - {names[cable.b]}"
            if cable.a == cable.b:
                _refuse("cable", where, "two nodes")
            if max(cable.a, cable.b) < self.hosts:
                _refuse("cable", where, "hosts hang on switches")
            _check_rate(f"rate_bps of {where}", cable.rate_bps)
            _check_delay(f"delay_s of {where}", cable.delay_s)
            degree[cable.a] += 1
            degree[cable.b] += 1
        for host in range(self.hosts):
            if degree[host] != 1:
                _refuse(f"cables of {names[host]}", degree[host], "1: a host has one link")
        if self.rate_bps == 0:
            slowest = min(c.rate_bps for c in self.cables if min(c.a, c.b) < self.hosts)
            object.__setattr__(self, "rate_bps", slowest)
        object.__setattr__(self, "_numbers", {name: number for number, name in enumerate(names)})

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self.host_names)

    @property
    def _switches(self) -> int:
        return len(self.switch_names)

    def _pods(self) -> Sequence[int]:
        return self.pods

    def _cables(self) -> Iterator[Cable]:
        return iter(self.cables)

    def name(self, node: int) -> str:
        """What the file, or whoever made the graph, calls a node."""
        return [*self.host_names, *self.switch_names][node]

    def as_dict(self) -> dict[str, Any]:
        """The tables that `graph_from_table` reads."""
        names = list(self._own_names())
        cables = [
            {"from": names[c.a], "to": names[c.b], "rate_bps": c.rate_bps, "delay_s": c.delay_s}
            for c in self.cables
        ]
        nodes = {"hosts": list(self.host_names), "switches": list(self.switch_names)}
        rates = {"link_rates": dict(self.link_rates)} if self.link_rates else {}
        return {"kind": self.kind, **nodes, "pods": list(self.pods), **rates, "cable": cables}

    def _own_names(self) -> Mapping[str, int]:
        numbers: Mapping[str, int] = self.__dict__["_numbers"]
        return numbers


def GraphFile(path: Path | str) -> Graph:  # noqa: N802
    """The graph in a TOML or JSON file.

    ```toml
    hosts = 4                        # or names: ["alice", "bob"]
    switches = ["left", "right"]     # or how many
    pods = [0, 1]                    # optional: what one thread simulates, per switch
    rate_bps = 100e9                 # of cables that say nothing else
    delay_s = 1e-6
    [[cable]]
    from = "host 0"
    to = "left"
    rate_bps = 25e9
    ```
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise FabricError(f"{path}: {error}") from None
    try:
        return graph_from_table(table)
    except FabricError as error:
        raise FabricError(f"{path}: {error}") from None


GRAPH_KEYS = ("hosts", "switches", "pods", "rate_bps", "delay_s", "cable", "link_rates")


def graph_from_table(table: Mapping[str, Any]) -> Graph:
    """The graph in tables, as `tomllib` and `json` give them; GraphFile shows the form."""
    if not isinstance(table, Mapping):
        _refuse("file", type(table).__name__, "a table")
    for key in table:
        if key not in GRAPH_KEYS:
            raise FabricError(f"{key} is unknown; accepted: {', '.join(GRAPH_KEYS)}")
    names = {kind: _names(table, kind, word) for kind, word in (("hosts", "host"), ("switches", "switch"))}
    number = {name: i for i, name in enumerate([*names["hosts"], *names["switches"]])}
    cables = []
    tables = table.get("cable", [])
    if not isinstance(tables, list):
        _refuse("cable", tables, "tables")
    for index, cable in enumerate(tables):
        where = f"cable[{index}]"
        if not isinstance(cable, Mapping):
            _refuse(where, cable, "a table")
        for key in cable:
            if key not in {"from", "to", "rate_bps", "delay_s"}:
                raise FabricError(f"{where}.{key} is unknown; accepted: from, to, rate_bps, delay_s")
        values = {key: cable.get(key, table.get(key)) for key in ("from", "to", "rate_bps", "delay_s")}
        for key in ("from", "to"):
            if not isinstance(values[key], str) or values[key] not in number:
                _refuse(
                    f"{where}.{key}", values[key], f"a node, such as {', '.join(map(repr, list(number)[:3]))}"
                )
        _check_rate(f"{where}.rate_bps", values["rate_bps"])
        _check_delay(f"{where}.delay_s", values["delay_s"])
        cables.append(
            Cable(number[values["from"]], number[values["to"]], values["rate_bps"], values["delay_s"])
        )
    pods = table.get("pods", [])
    if not isinstance(pods, list) or len(pods) not in (0, len(names["switches"])):
        _refuse("pods", pods, f"one number per switch, {len(names['switches'])}")
    for pod in pods:
        if isinstance(pod, bool) or not isinstance(pod, int) or not 0 <= pod < len(pods):
            _refuse("pods", pod, f"0 to {len(pods) - 1}")
    rates = table.get("link_rates", {})
    if not isinstance(rates, Mapping):
        _refuse("link_rates", rates, "a table of links and rates")
    return Graph(names["hosts"], names["switches"], tuple(cables), tuple(pods), link_rates=rates)


def _names(table: Mapping[str, Any], kind: str, word: str) -> tuple[str, ...]:
    value = table.get(kind)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**24:
        return tuple(f"{word} {i}" for i in range(value))
    if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
        return tuple(value)
    _refuse(kind, value, "how many, or a list of names")


__all__ = [
    "Dumbbell",
    "Fabric",
    "FatTree",
    "Graph",
    "GraphFile",
    "LeafSpine",
    "Star",
    "ThreeTier",
    "TwoSites",
]
