"""Workloads of plain flows: permutation, incast, all-to-all, Poisson arrivals of given sizes, several together.

Flows start by the clock and depend on nothing. What is random is drawn by NumPy's generator from the scenario's seed,
but for the permutation, which is drawn as the reference programs do it (docs/simulator/validation.md).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.units import PS_PER_S
from dlcp_sim.workloads.load import Array, Load, Workload, host_numbers, picoseconds

if TYPE_CHECKING:
    from dlcp_sim.fabrics import Fabric

SEGMENT_BYTES = 1460
DURATION_S = 0.01
"""Of random arrivals, if nothing else is said."""
MAX_FLOWS = 50_000_000
"""Of a Poisson process: some gigabytes of memory."""
# By name: packets of 1460 bytes, and the share of flows that are not longer.
_TABLES: Mapping[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    # Web search: Alizadeh et al., "Data Center TCP", SIGCOMM 2010, figure 4, as tabulated for pFabric's simulations
    # (SIGCOMM 2013). Mean 1138 packets.
    "web_search": (
        (6, 6, 13, 19, 33, 53, 133, 667, 1333, 3333, 6667, 20000),
        (0.0, 0.15, 0.2, 0.3, 0.4, 0.53, 0.6, 0.7, 0.8, 0.9, 0.97, 1.0),
    ),
    # Data mining: Greenberg et al., "VL2", SIGCOMM 2009, figure 2, tabulated likewise. Mean 5117 packets.
    "data_mining": (
        (1, 1, 2, 3, 7, 267, 2107, 66667, 666667),
        (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0),
    ),
}
SIZES: Mapping[str, tuple[tuple[float, float], ...]] = {
    name: tuple((count * SEGMENT_BYTES, share) for count, share in zip(packets, shares, strict=True))
    for name, (packets, shares) in _TABLES.items()
}
"""Published distributions of flow sizes: (bytes, share of flows up to this size), straight lines between."""


@dataclass(frozen=True)
class SizeDistribution:
    """Sizes of flows by a table of (bytes, share of flows up to this size), straight lines between."""

    table: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        """Raises ArgumentError if the table is no distribution."""
        sizes, shares = self._columns()
        if len(sizes) < 2 or shares[0] != 0 or shares[-1] != 1 or (np.diff(shares) < 0).any():
            raise ArgumentError(
                f"sizes are {self.table!r}; accepted: rows of (bytes, share), shares rising from 0 to 1"
            )
        if sizes[0] < 0 or (np.diff(sizes) < 0).any():
            raise ArgumentError(f"sizes are {self.table!r}; accepted: bytes that rise from 0 or more")

    @classmethod
    def of(cls, sizes: str | float | Sequence[Sequence[float]]) -> SizeDistribution:
        """By name, as one size, or as a table."""
        if isinstance(sizes, str):
            if sizes not in SIZES:
                raise ArgumentError(f"sizes is {sizes!r}; accepted: {', '.join(SIZES)}, or a table")
            return cls(SIZES[sizes])
        if isinstance(sizes, int | float):
            return cls(((float(sizes), 0.0), (float(sizes), 1.0)))
        return cls(tuple((float(size), float(share)) for size, share in sizes))

    def _columns(self) -> tuple[Array, Array]:
        return np.array([size for size, _ in self.table]), np.array([share for _, share in self.table])

    @property
    def mean_bytes(self) -> float:
        """Of the distribution, exactly."""
        sizes, shares = self._columns()
        return float(np.sum(np.diff(shares) * (sizes[1:] + sizes[:-1]) / 2))

    def draw(self, generator: np.random.Generator, count: int) -> Array:
        """So many sizes, whole bytes, at least one."""
        sizes, shares = self._columns()
        drawn = np.interp(generator.random(count), shares, sizes)
        return np.maximum(1, np.round(drawn)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class FlowWorkload(Workload):
    """What flows have in common."""

    traffic_class: int = 0
    """0 to 6; higher ones go first, in transports that know classes."""
    loss_ratio: float = 0.0
    """How much of a flow may be abandoned; only dlcp does."""
    critical_ratio: float = 1.0
    """How much of it is critical."""
    patience_s: float | None = None
    """After this time the sender abandons droppable blocks that it has not sent; only dlcp does."""
    label: str = ""

    def _add(self, load: Load, **columns: Any) -> None:
        for name in ("loss_ratio", "critical_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise ArgumentError(f"{name} is {getattr(self, name)!r}; accepted: 0 to 1")
        if not 0 <= self.traffic_class <= 6:
            raise ArgumentError(f"traffic_class is {self.traffic_class!r}; accepted: 0 to 6")
        load.flows.append(
            traffic_class=self.traffic_class,
            loss_ratio=self.loss_ratio,
            critical_ratio=self.critical_ratio,
            patience_ps=-1 if self.patience_s is None else picoseconds(self.patience_s, "patience_s"),
            label=load.label(self.label or self.kind),
            **columns,
        )


def _check_bytes(name: str, value: int) -> None:
    if isinstance(value, bool) or value != int(value) or value < 0:
        raise ArgumentError(f"{name} is {value!r}; accepted: 0 bytes or more")


@dataclass(frozen=True, kw_only=True)
class Permutation(FlowWorkload):
    """Every host sends to one other: hosts are shuffled, and each sends to the next in the ring."""

    kind: ClassVar[str] = "permutation"
    bytes: int = 2_000_000
    hosts: tuple[int, ...] | int | None = None
    start_s: float = 0.0

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """As the reference: Python's generator, seeded with the scenario's seed, shuffles the hosts."""
        _check_bytes("bytes", self.bytes)
        hosts = [int(host) for host in host_numbers(fabric, self.hosts)]
        if len(hosts) < 2:
            raise ArgumentError(f"hosts is {self.hosts!r}; accepted: two or more")
        random.Random(seed).shuffle(hosts)
        source = np.array(hosts)
        self._add(
            load,
            source=source,
            destination=np.roll(source, -1),
            bytes=self.bytes,
            start_ps=picoseconds(self.start_s, "start_s"),
        )


@dataclass(frozen=True, kw_only=True)
class Incast(FlowWorkload):
    """Many hosts send to one at the same time.

    `senders`: how many, spread over the fabric as the reference does: (37 i mod (N - 1)) + 1; or which hosts.
    """

    kind: ClassVar[str] = "incast"
    senders: int | tuple[int, ...] = 32
    bytes: int = 2_000_000
    to: int = 0
    start_s: float = 0.0
    spread_s: float = 0.0
    """Starts are drawn evenly from this long."""

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """Senders' flows, all to `to`."""
        _check_bytes("bytes", self.bytes)
        if not 0 <= self.to < fabric.hosts:
            raise ArgumentError(f"to is {self.to!r}; accepted: hosts 0 to {fabric.hosts - 1}")
        if isinstance(self.senders, int):
            others = fabric.hosts - 1
            if not 1 <= self.senders <= others:
                raise ArgumentError(f"senders is {self.senders}; accepted: 1 to {others}")
            step = next(step for step in (37, 41, 43, 47, 53, 1) if np.gcd(step, others) == 1)
            source = step * np.arange(1, self.senders + 1) % others + 1
            source = (source + self.to) % fabric.hosts
        else:
            source = host_numbers(fabric, self.senders, "senders")
            if self.to in source:
                raise ArgumentError(f"senders is {self.senders!r}; accepted: hosts other than {self.to}")
        start_ps = np.full(len(source), picoseconds(self.start_s, "start_s"))
        if self.spread_s:
            generator = np.random.default_rng((seed, 1))
            start_ps += generator.integers(
                0, picoseconds(self.spread_s, "spread_s"), len(source), endpoint=True
            )
        self._add(load, source=source, destination=self.to, bytes=self.bytes, start_ps=start_ps)


@dataclass(frozen=True, kw_only=True)
class AllToAll(FlowWorkload):
    """Every host sends to every other at once; in the order of the next host first, so nobody is everyone's first."""

    kind: ClassVar[str] = "all_to_all"
    bytes: int = 100_000
    """From each to each."""
    hosts: tuple[int, ...] | int | None = None
    start_s: float = 0.0

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """As many flows as there are ordered pairs."""
        _check_bytes("bytes", self.bytes)
        hosts = host_numbers(fabric, self.hosts)
        place = np.arange(len(hosts))
        distance = np.arange(1, len(hosts))
        target = (place[:, None] + distance[None, :]) % len(hosts)
        self._add(
            load,
            source=np.repeat(hosts, len(hosts) - 1),
            destination=hosts[target].reshape(-1),
            bytes=self.bytes,
            start_ps=picoseconds(self.start_s, "start_s"),
        )


@dataclass(frozen=True, kw_only=True)
class Poisson(FlowWorkload):
    """Flows that arrive at random, of sizes from a distribution, between hosts drawn evenly.

    `load`: what they ask for, of the links of the sources or of the destinations, whichever are fewer.
    """

    kind: ClassVar[str] = "poisson"
    load: float = 0.5
    sizes: str | float | tuple[tuple[float, float], ...] = "web_search"
    """"web_search", "data_mining", one size in bytes, or rows of (bytes, share of flows up to it)."""
    duration_s: float | None = None
    """Flows start within this time; None: 10 ms, unless `flows` says how many."""
    flows: int | None = None
    """So many flows, however long it takes."""
    sources: tuple[int, ...] | int | None = None
    destinations: tuple[int, ...] | int | None = None
    start_s: float = 0.0

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """Arrivals of one Poisson process, each between a source and another host."""
        if not 0 < self.load <= 10:
            raise ArgumentError(f"load is {self.load!r}; accepted: above 0, up to 10")
        if self.duration_s is not None and self.flows is not None:
            raise ArgumentError(
                f"duration_s is {self.duration_s!r} and flows is {self.flows!r}; accepted: one of them"
            )
        sizes = SizeDistribution.of(self.sizes)
        if not sizes.mean_bytes > 0:
            raise ArgumentError(f"sizes is {self.sizes!r}; accepted: sizes of more than 0 bytes")
        sources = host_numbers(fabric, self.sources, "sources")
        destinations = host_numbers(fabric, self.destinations, "destinations")
        if len(np.union1d(sources, destinations)) < 2:
            raise ArgumentError("sources and destinations are one host; accepted: two or more")
        rate_bps = sum_of_rates(fabric, min((sources, destinations), key=len))
        per_second = self.load * rate_bps / 8 / sizes.mean_bytes
        generator = np.random.default_rng((seed, 2))
        if self.flows is not None:
            if self.flows < 1:
                raise ArgumentError(f"flows is {self.flows}; accepted: 1 or more")
            start_s = np.cumsum(generator.exponential(1 / per_second, self.flows))
        else:
            duration_s = DURATION_S if self.duration_s is None else self.duration_s
            if not 0 <= per_second * duration_s <= MAX_FLOWS:
                raise ArgumentError(
                    f"duration_s is {duration_s!r}, {per_second * duration_s:.3g} flows; accepted: 0 to "
                    f"{MAX_FLOWS / per_second:.3g} seconds"
                )
            count = int(generator.poisson(per_second * duration_s))
            start_s = np.sort(generator.random(count)) * duration_s
        source = generator.choice(sources, len(start_s))
        destination = generator.choice(destinations, len(start_s))
        while (same := source == destination).any():
            source[same] = generator.choice(sources, same.sum())
            destination[same] = generator.choice(destinations, same.sum())
        self._add(
            load,
            source=source,
            destination=destination,
            bytes=sizes.draw(generator, len(start_s)),
            start_ps=np.round(start_s * PS_PER_S).astype(np.int64) + picoseconds(self.start_s, "start_s"),
        )


def sum_of_rates(fabric: Fabric, hosts: Array) -> float:
    """Of the hosts' own links."""
    core = fabric.core
    return float(sum(core.link(int(host))[2] for host in hosts))


@dataclass(frozen=True, kw_only=True)
class CrossTraffic(FlowWorkload):
    """Others' traffic between given pairs of hosts: one size, random times, a share of the sender's link."""

    kind: ClassVar[str] = "cross_traffic"
    pairs: tuple[tuple[int, int], ...] = ()
    load: float = 0.3
    """Per pair, of its source's link."""
    bytes: int = 1_000_000
    duration_s: float = 0.01
    start_s: float = 0.0

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """A Poisson process per pair."""
        _check_bytes("bytes", self.bytes)
        if not self.pairs or any(a == b for a, b in self.pairs):
            raise ArgumentError(f"pairs is {self.pairs!r}; accepted: one or more of (source, destination)")
        for index, (source, destination) in enumerate(self.pairs):
            host_numbers(fabric, (source, destination), "pairs")
            generator = np.random.default_rng((seed, 3, index))
            rate_bps = sum_of_rates(fabric, np.array([source]))
            count = int(generator.poisson(self.load * rate_bps / 8 / max(self.bytes, 1) * self.duration_s))
            start_s = np.sort(generator.random(count)) * self.duration_s + self.start_s
            self._add(
                load,
                source=np.full(count, source),
                destination=np.full(count, destination),
                bytes=self.bytes,
                start_ps=np.round(start_s * PS_PER_S).astype(np.int64),
            )


@dataclass(frozen=True, kw_only=True)
class Flows(FlowWorkload):
    """Flows one by one: rows of (source, destination, bytes) or (source, destination, bytes, start in seconds)."""

    kind: ClassVar[str] = "flows"
    rows: tuple[tuple[float, ...], ...] = ()

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """The rows as they are."""
        for row in self.rows:
            if len(row) not in (3, 4) or row[2] != int(row[2]):
                raise ArgumentError(
                    f"row {row!r}: accepted: source, destination, bytes, start_s if it is not 0"
                )
            if row[0] == row[1]:
                raise ArgumentError(f"row {row!r}: accepted: a destination that is not the source")
            host_numbers(fabric, (int(row[0]), int(row[1])), "source, destination")
        self._add(
            load,
            source=np.array([int(row[0]) for row in self.rows], np.int64),
            destination=np.array([int(row[1]) for row in self.rows], np.int64),
            bytes=np.array([int(row[2]) for row in self.rows], np.int64),
            start_ps=np.array(
                [picoseconds(row[3] if len(row) > 3 else 0, "start_s") for row in self.rows], np.int64
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Together(Workload):
    """Several workloads at once: jobs side by side, a job and others' traffic."""

    kind: ClassVar[str] = "together"
    workloads: tuple[Workload, ...] = ()

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """Each with a seed of its own; the first with the scenario's."""
        if not self.workloads:
            raise ArgumentError("workloads is empty; accepted: one or more")
        for index, workload in enumerate(self.workloads):
            workload.add_to(load, fabric, seed + 1000 * index)


def together(*workloads: Workload) -> Together:
    """Several workloads at once."""
    return Together(workloads=workloads)
