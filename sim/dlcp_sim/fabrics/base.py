"""What all fabrics have in common: names of nodes and links, and what a host sees of the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dlcp import checks
from dlcp.errors import ArgumentError
from dlcp.units import PS_PER_S
from dlcp_sim.plain import table_of

if TYPE_CHECKING:
    from dlcp_sim import _core

BITS = 8


class FabricError(ArgumentError):
    """A fabric that cannot be built, or a node or link that it does not have."""


def refuse(name: str, value: object, accepted: str) -> NoReturn:
    """Raises FabricError."""
    raise FabricError(checks.refusal(name, value, accepted))


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raises FabricError unless it is a number of nodes."""
    checks.integer(name, value, least, 65535, error=FabricError)


def check_rate(name: str, value: object) -> None:
    """Raises FabricError unless it is a link's rate."""
    if not checks.is_number(value, 1e3, 1e14):
        refuse(name, value, "1e3 to 1e14 bits per second")


def check_delay(name: str, value: object) -> None:
    """Raises FabricError unless it is a link's delay."""
    if not checks.is_number(value, 1e-12, 10):
        refuse(name, value, "1e-12 to 10 seconds")


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
            check_rate(f"link_rates[{name!r}]", rate_bps)
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
        own = self._own_names()
        if name in own:
            return own[name]
        kind, _, number = name.partition(" ")
        kinds = [(known, count) for known, count in self._kinds() if count]
        first = 0
        for known, count in kinds:
            if kind == known and number.isascii() and number.isdigit() and int(number) < count:
                return first + int(number)
            first += count
        last, count = kinds[-1]
        examples = list(own)[:3] or [f"{kinds[0][0]} 0", f"{kinds[1][0]} 0", f"{last} {count - 1}"]
        refuse("node", name, f"a node of the fabric, such as {', '.join(map(repr, examples))}")

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

    @abstractmethod
    def _kinds(self) -> Sequence[tuple[str, int]]:
        """Kinds of nodes, hosts first, and how many of each; a node is named by its kind and its number in it."""

    # Names that a file gave; others have their kind and number.
    def _own_names(self) -> Mapping[str, int]:
        return {}


def _port_between(core: _core.Fabric, fabric: Fabric, source: str, target: str) -> int:
    port = core.port_between(fabric.node(source), fabric.node(target))
    if not 0 <= port < core.ports:
        refuse("link", f"{source} -> {target}", "two neighbours")
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
    node = fabric.node(link)
    own = list(range(core.first_port(node), core.first_port(node + 1)))
    return [*own, *(int(core.reverse(port)) for port in own)] if both else own
