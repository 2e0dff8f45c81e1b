"""What goes wrong in a fabric, and when: cut links, dead switches, flapping, and gray links that lose, slow or delay.

A link is named as in `fabrics.base.ports_of`: "edge 0 - aggregation 1" both directions, "edge 0 -> aggregation 1" one,
"host 3" its cable. A cut link loses what is sent into it until all switches know, `reroute_s` later, and use other
routes; one that has come back waits as long for its traffic. Gray links go unnoticed: no routes change for them. Times
are seconds of the simulation. A fault is a description; `events` makes the simulator's list of a set of them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dlcp.errors import ArgumentError
from dlcp_sim.fabrics.base import Fabric, picoseconds, ports_of
from dlcp_sim.plain import table_of

if TYPE_CHECKING:
    from dlcp_sim import _core

# (at_ps, port, kind, value, value2, value3), as Simulation.add_faults takes it.
Event = tuple[int, int, str, float, float, float]
# (kind, value, …): of an event, what is not its time and place.
Change = tuple[Any, ...]

FOREVER = None
MAX_FLAPS = 10_000


class FaultError(ArgumentError):
    """A fault that cannot be: a time, ratio or rate out of range."""


def _within(least: float, most: float, words: str, *, or_none: bool = False) -> dict[str, Any]:
    """What a field's number may be, and the same in words for an error."""
    return {"range": (least, most, f"{words}, or none" if or_none else words), "or_none": or_none}


_RATIO = _within(0, 1, "0 to 1")
_CYCLE = _within(1e-9, 1e4, "1e-9 to 1e4 seconds")
_REROUTE = _within(0, 1e4, "0 to 1e4 seconds", or_none=True)


def _refuse(name: str, value: object, accepted: str) -> NoReturn:
    raise FaultError(f"{name} is {value!r}; accepted: {accepted}")


def _event(at_s: float, port: int, kind: str, *values: float) -> Event:
    value, value2, value3 = (*values, 0.0, 0.0, 0.0)[:3]
    return picoseconds(at_s), port, kind, value, value2, value3


@dataclass(frozen=True)
class Fault:
    """Something that happens to a link at `at_s` and is over at `until_s`."""

    kind: ClassVar[str] = ""
    """In a scenario's file."""

    link: str
    at_s: float = field(default=0.0, kw_only=True, metadata=_within(0, 1e6, "0 to 1e6 seconds"))
    until_s: float | None = field(
        default=FOREVER, kw_only=True, metadata=_within(0, 1e6, "0 to 1e6 seconds", or_none=True)
    )
    """None: for good."""

    def __post_init__(self) -> None:
        if not isinstance(self.link, str) or not self.link:
            _refuse("link", self.link, "the name of a link or node")
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if "range" not in one.metadata or (value is None and one.metadata["or_none"]):
                continue
            least, most, words = one.metadata["range"]
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                _refuse(one.name, value, words)
        if self.until_s is not None and self.until_s <= self.at_s:
            _refuse("until_s", self.until_s, f"more than at_s, {self.at_s}")

    def events(self, core: _core.Fabric, fabric: Fabric) -> Iterator[Event]:
        """The native simulator's events."""
        for port in ports_of(core, fabric, self.link):
            begin, end = self._changes(core, port)
            yield _event(self.at_s, port, *begin)
            if self.until_s is not None:
                yield _event(self.until_s, port, *end)

    def _changes(self, core: _core.Fabric, port: int) -> tuple[Change, Change]:
        """What begins at a port, and what ends it; not asked of a fault with events of its own."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """Kind and fields as a scenario's file has them; what is None is left out."""
        return table_of(self.kind, self)


# --- what switches notice ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkDown(Fault):
    """The link carries nothing; with a switch's or host's name, none of its links does, in either direction."""

    kind = "link_down"
    reroute_s: float | None = field(default=1e-3, metadata=_REROUTE)
    """How long all switches take to use other routes, after it went and after it came back; None: they never do.
    1 ms: what a fabric with fast failure detection takes; routing protocols alone take 0.1 to several seconds."""

    def events(self, core: _core.Fabric, fabric: Fabric) -> Iterator[Event]:
        """The native simulator's events."""
        yield from super().events(core, fabric)
        if self.reroute_s is not None:
            yield _event(self.at_s + self.reroute_s, 0, "reroute")
            if self.until_s is not None:
                yield _event(self.until_s + self.reroute_s, 0, "reroute")

    def _changes(self, core: _core.Fabric, port: int) -> tuple[Change, Change]:
        return ("down",), ("up",)


def SwitchDown(  # noqa: N802  a fault, as the others
    switch: str, *, at_s: float = 0.0, until_s: float | None = FOREVER, reroute_s: float | None = 1e-3
) -> LinkDown:
    """All links of a switch are down, in both directions."""
    if "->" in switch or " - " in switch:
        _refuse("switch", switch, "the name of a switch")
    return LinkDown(switch, reroute_s, at_s=at_s, until_s=until_s)


@dataclass(frozen=True)
class Flapping(Fault):
    """The link is down for `down_s`, up for `up_s`, and so on; at `until_s` it is up for good."""

    kind = "flapping"
    down_s: float = field(default=1e-3, metadata=_CYCLE)
    up_s: float = field(default=1e-3, metadata=_CYCLE)
    reroute_s: float | None = field(default=None, metadata=_REROUTE)
    """As in LinkDown, after each change; None: too short for routes to follow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.until_s is None:
            _refuse("until_s", self.until_s, "a time: flapping ends")
        if (self.until_s - self.at_s) / (self.down_s + self.up_s) > MAX_FLAPS:
            _refuse("until_s", self.until_s, f"a time after {MAX_FLAPS} flaps at most")

    def events(self, core: _core.Fabric, fabric: Fabric) -> Iterator[Event]:
        """The native simulator's events: the link is cut again and again."""
        assert self.until_s is not None
        down_s, index = self.at_s, 0
        while down_s < self.until_s:
            up_s = min(down_s + self.down_s, self.until_s)
            yield from LinkDown(self.link, self.reroute_s, at_s=down_s, until_s=up_s).events(core, fabric)
            index += 1
            down_s = self.at_s + index * (self.down_s + self.up_s)


# --- gray links ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomLoss(Fault):
    """The link loses each packet with probability `ratio`."""

    kind = "random_loss"
    ratio: float = field(default=0.01, metadata=_RATIO)

    def _changes(self, core: _core.Fabric, port: int) -> tuple[Change, Change]:
        return ("loss", self.ratio), ("loss", 0.0)


@dataclass(frozen=True)
class BurstLoss(Fault):
    """The link loses packets in bursts (Gilbert 1960, Elliott 1963).

    Before each packet the link enters a burst with `enter_ratio`, or leaves the one it is in with `exit_ratio`, so that
    bursts are 1 / exit_ratio packets long in the mean; inside, a packet is lost with `loss_ratio`.
    """

    kind = "burst_loss"
    enter_ratio: float = field(default=1e-4, metadata=_RATIO)
    exit_ratio: float = field(default=0.1, metadata=_RATIO)
    loss_ratio: float = field(default=1.0, metadata=_RATIO)

    def _changes(self, core: _core.Fabric, port: int) -> tuple[Change, Change]:
        return ("burst", self.enter_ratio, self.exit_ratio, self.loss_ratio), ("burst", 0.0, 1.0, 0.0)


@dataclass(frozen=True)
class SlowLink(Fault):
    """The link has another rate, as one that lost lanes."""

    kind = "slow_link"
    rate_bps: float = field(default=10e9, metadata=_within(1e3, 1e14, "1e3 to 1e14 bits per second"))

    def _changes(self, core: _core.Fabric, port: int) -> tuple[Change, Change]:
        return ("rate", float(round(self.rate_bps))), ("rate", float(core.link(port)[2]))


@dataclass(frozen=True)
class ExtraDelay(Fault):
    """Packets take `delay_s` longer, as behind a middlebox or on a detour below IP."""

    kind = "extra_delay"
    delay_s: float = field(default=100e-6, metadata=_within(0, 10, "0 to 10 seconds"))

    def _changes(self, core: _core.Fabric, port: int) -> tuple[Change, Change]:
        return ("delay", float(picoseconds(self.delay_s))), ("delay", 0.0)


# --- all of them ---------------------------------------------------------------------------------------------


def events(faults: Iterable[Fault], fabric: Fabric, core: _core.Fabric | None = None) -> list[Event]:
    """The simulator's list of faults, in order of time; of one moment, links change before routes are made anew."""
    built = fabric.core if core is None else core
    described = list(faults)
    found = _in_order(event for fault in described for event in fault.events(built, fabric))
    delays = [d for f in described if (d := getattr(f, "reroute_s", None)) is not None]
    if delays:
        found = _in_order([*found, *_noticed_returns(found, picoseconds(min(delays)))])
    return list(_once(found))


def _in_order(found: Iterable[Event]) -> list[Event]:
    # Ends go before begins: of two faults of one link, one after the other, the second holds.
    order = {"up": 0, "down": 1, "reroute": 3}
    return sorted(found, key=lambda event: (event[0], order.get(event[2], 2)))


def _noticed_returns(found: list[Event], delay_ps: int) -> Iterator[Event]:
    """Reroutes at the end of cuts that an earlier reroute, for another fault, found: it makes routes for all links."""
    cuts: Counter[int] = Counter()
    avoided: set[int] = set()
    for at_ps, port, kind, *_ in found:
        if kind == "reroute":
            avoided = {p for p, times in cuts.items() if times}
        elif kind == "down":
            cuts[port] += 1
        elif kind == "up":
            cuts[port] -= 1
            if port in avoided and not cuts[port]:
                yield at_ps + delay_ps, 0, "reroute", 0.0, 0.0, 0.0


def _once(found: list[Event]) -> Iterator[Event]:
    """The events that change something. A link that several faults cut is up when the last of them is over."""
    cuts: Counter[int] = Counter()
    before: Event | None = None
    for event in found:
        _, port, kind, *_ = event
        if kind == "down":
            cuts[port] += 1
            changes = cuts[port] == 1
        elif kind == "up":
            cuts[port] -= 1
            changes = cuts[port] == 0
        else:
            changes = kind != "reroute" or event != before
        if changes:
            yield event
            before = event


KINDS: dict[str, type[Fault]] = {
    k.kind: k for k in (LinkDown, Flapping, RandomLoss, BurstLoss, SlowLink, ExtraDelay)
}

__all__ = [
    "BurstLoss",
    "ExtraDelay",
    "Fault",
    "Flapping",
    "LinkDown",
    "RandomLoss",
    "SlowLink",
    "SwitchDown",
]
