"""Fabrics that are no tree: a bottleneck, two sites, and any graph, from Python or a file."""

from __future__ import annotations

import json
import tomllib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.checks import is_integer
from dlcp_sim.fabrics.base import (
    Fabric,
    FabricError,
    Hop,
    check_count,
    check_delay,
    check_rate,
    picoseconds,
    refuse,
)

if TYPE_CHECKING:
    from dlcp_sim import _core


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

    def _kinds(self) -> Sequence[tuple[str, int]]:
        return ("host", self.hosts), ("switch", self._switches)

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
        check_count("left", self.left)
        check_count("right", self.right)
        for cable in self._cables():
            check_rate("rate_bps", cable.rate_bps)
            check_delay("delay_s", cable.delay_s)

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
            check_count(name, getattr(self, name))
        check_rate("rate_bps", self.rate_bps)
        for name in ("uplink_rate_bps", "long_rate_bps"):
            if getattr(self, name) is not None:
                check_rate(name, getattr(self, name))
        check_delay("delay_s", self.delay_s)
        check_delay("long_delay_s", self.long_delay_s)

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
            refuse("hosts", len(self.host_names), "2 or more")
        if not self.switch_names:
            refuse("switches", 0, "1 or more")
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            refuse("name", twice, "a name that no other node has")
        degree = [0] * len(names)
        for cable in self.cables:
            where = f"cable {names[cable.a]} - {names[cable.b]}"
            if cable.a == cable.b:
                refuse("cable", where, "two nodes")
            if max(cable.a, cable.b) < self.hosts:
                refuse("cable", where, "hosts hang on switches")
            check_rate(f"rate_bps of {where}", cable.rate_bps)
            check_delay(f"delay_s of {where}", cable.delay_s)
            degree[cable.a] += 1
            degree[cable.b] += 1
        for host in range(self.hosts):
            if degree[host] != 1:
                refuse(f"cables of {names[host]}", degree[host], "1: a host has one link")
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
CABLE_KEYS = ("from", "to", "rate_bps", "delay_s")


def graph_from_table(table: Mapping[str, Any]) -> Graph:
    """The graph in tables, as `tomllib` and `json` give them; GraphFile shows the form."""
    if not isinstance(table, Mapping):
        refuse("file", type(table).__name__, "a table")
    _check_keys("", table, GRAPH_KEYS)
    names = {kind: _names(table, kind, word) for kind, word in (("hosts", "host"), ("switches", "switch"))}
    number = {name: i for i, name in enumerate([*names["hosts"], *names["switches"]])}
    cables = []
    tables = table.get("cable", [])
    if not isinstance(tables, list):
        refuse("cable", tables, "tables")
    for index, cable in enumerate(tables):
        where = f"cable[{index}]"
        if not isinstance(cable, Mapping):
            refuse(where, cable, "a table")
        _check_keys(f"{where}.", cable, CABLE_KEYS)
        values = {key: cable.get(key, table.get(key)) for key in CABLE_KEYS}
        for key in ("from", "to"):
            if not isinstance(values[key], str) or values[key] not in number:
                examples = ", ".join(map(repr, list(number)[:3]))
                refuse(f"{where}.{key}", values[key], f"a node, such as {examples}")
        check_rate(f"{where}.rate_bps", values["rate_bps"])
        check_delay(f"{where}.delay_s", values["delay_s"])
        ends = number[values["from"]], number[values["to"]]
        cables.append(Cable(*ends, values["rate_bps"], values["delay_s"]))
    pods = table.get("pods", [])
    if not isinstance(pods, list) or len(pods) not in (0, len(names["switches"])):
        refuse("pods", pods, f"one number per switch, {len(names['switches'])}")
    for pod in pods:
        if not is_integer(pod, 0, len(pods) - 1):
            refuse("pods", pod, f"0 to {len(pods) - 1}")
    rates = table.get("link_rates", {})
    if not isinstance(rates, Mapping):
        refuse("link_rates", rates, "a table of links and rates")
    return Graph(names["hosts"], names["switches"], tuple(cables), tuple(pods), link_rates=rates)


def _check_keys(where: str, table: Mapping[str, Any], accepted: Sequence[str]) -> None:
    for key in table:
        if key not in accepted:
            raise FabricError(f"{where}{key} is unknown; accepted: {', '.join(accepted)}")


def _names(table: Mapping[str, Any], kind: str, word: str) -> tuple[str, ...]:
    value: Any = table.get(kind)
    if is_integer(value, 1, 2**24 - 1):
        return tuple(f"{word} {i}" for i in range(value))
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        refuse(kind, value, "how many, or a list of names")
    return tuple(value)
