"""What goes wrong in a fabric, and when: cut links, dead switches, flapping, and gray links that lose, slow or delay.

A link is named as in `fabrics.ports_of`: "edge 0 - aggregation 1" both directions, "edge 0 -> aggregation 1" one,
"host 3" its cable. A cut link loses what is sent into it until all switches know, `reroute_s` later, and use other
routes; one that has come back waits as long for its traffic. Gray links go unnoticed: no routes change for them. Times
are seconds of the simulation. A fault is a description; `events` makes the simulator's list of a set of them.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dlcp.errors import ArgumentError
from dlcp_sim.fabrics import Fabric, picoseconds, ports_of

if TYPE_CHECKING:
    from dlcp_sim import _core

# (at_ps, port, kind, value, value2, value3), as Simulation.add_faults takes it.
Event = tuple[int, int, str, float, float, float]

FOREVER = None
MAX_FLAPS = 10_000


class FaultError(ArgumentError):
    """A fault that cannot be: a time, ratio or rate out of range."""


def _refuse(name: str, value: object, accepted: str) -> NoReturn:
    raise FaultError(f"{name} is {value!r}; accepted: {accepted}")


def _check(name: str, value: object, least: float, most: float, words: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        _refuse(name, value, words)


def _check_ratio(name: str, value: object) -> None:
    _check(name, value, 0, 1, "0 to 1")


def _event(at_s: float, port: int, kind: str, *values: float) -> Event:
    value, value2, value3 = (*values, 0.0, 0.0, 0.0)[:3]
    return picoseconds(at_s), port, kind, value, value2, value3


@dataclass(frozen=True)
class Fault(ABC):
    """Something that happens to a link at `at_s` and is over at `until_s`."""

    kind: ClassVar[str] = ""
    """In a scenario's file."""

    link: str
    at_s: float = dataclasses.field(default=0.0, kw_only=True)
    until_s: float | None = dataclasses.field(default=FOREVER, kw_only=True)
    """None: for good."""

    def __post_init__(self) -> None:
        if not isinstance(self.link, str) or not self.link:
            _refuse("link", self.link, "the name of a link or node")
        _check("at_s", self.at_s, 0, 1e6, "0 to 1e6 seconds")
        if self.until_s is not None:
            _check("until_s", self.until_s, 0, 1e6, "0 to 1e6 seconds, or none")
            if self.until_s <= self.at_s:
                _refuse("until_s", self.until_s, f"more than at_s, {self.at_s}")
        self._validate()

    @abstractmethod
    def _validate(self) -> None:
        """FaultError if a kind's own fields are out of range."""

    def events(self, core: _core.Fabric, fabric: Fabric) -> Iterator[Event]:
        """The native simulator's events."""
        for port in ports_of(core, fabric, self.link):
            yield self._begin(core, port)
            if self.until_s is not None:
                yield self._end(core, port)

    @abstractmethod
    def _begin(self, core: _core.Fabric, port: int) -> Event: ...

    @abstractmethod
    def _end(self, core: _core.Fabric, port: int) -> Event: ...

    @property
    def _over_s(self) -> float:
        assert self.until_s is not None
        return self.until_s

    def as_dict(self) -> dict[str, Any]:
        """Kind and fields as a scenario's file has them; what is None is left out."""
        values = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {"kind": self.kind} | {name: value for name, value in values if value is not None}


# --- what switches notice ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkDown(Fault):
    """The link carries nothing; with a switch's or host's name, none of its links does, in either direction."""

    kind = "link_down"
    reroute_s: float | None = 1e-3
    """How long all switches take to use other routes, after it went and after it came back; None: they never do.
    1 ms: what a fabric with fast failure detection takes; routing protocols alone take 0.1 to several seconds."""

    def _validate(self) -> None:
        if self.reroute_s is not None:
            _check("reroute_s", self.reroute_s, 0, 1e4, "0 to 1e4 seconds, or none")

    def events(self, core: _core.Fabric, fabric: Fabric) -> Iterator[Event]:
        """The native simulator's events."""
        yield from super().events(core, fabric)
        if self.reroute_s is not None:
            yield _event(self.at_s + self.reroute_s, 0, "reroute")
            if self.until_s is not None:
                yield _event(self.until_s + self.reroute_s, 0, "reroute")

    def _begin(self, core: _core.Fabric, port: int) -> Event:
        return _event(self.at_s, port, "down")

    def _end(self, core: _core.Fabric, port: int) -> Event:
        return _event(self._over_s, port, "up")


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
    down_s: float = 1e-3
    up_s: float = 1e-3
    reroute_s: float | None = None
    """As in LinkDown, after each change; None: too short for routes to follow."""

    def _validate(self) -> None:
        _check("down_s", self.down_s, 1e-9, 1e4, "1e-9 to 1e4 seconds")
        _check("up_s", self.up_s, 1e-9, 1e4, "1e-9 to 1e4 seconds")
        if self.reroute_s is not None:
            _check("reroute_s", self.reroute_s, 0, 1e4, "0 to 1e4 seconds, or none")
        if self.until_s is None:
            _refuse("until_s", self.until_s, "a time: flapping ends")
        if (self.until_s - self.at_s) / (self.down_s + self.up_s) > MAX_FLAPS:
            _refuse("until_s", self.until_s, f"a time after {MAX_FLAPS} flaps at most")

    def events(self, core: _core.Fabric, fabric: Fabric) -> Iterator[Event]:
        """The native simulator's events."""
        down_s, index = self.at_s, 0
        while down_s < self._over_s:
            up_s = min(down_s + self.down_s, self._over_s)
            yield from LinkDown(self.link, self.reroute_s, at_s=down_s, until_s=up_s).events(core, fabric)
            index += 1
            down_s = self.at_s + index * (self.down_s + self.up_s)

    def _begin(self, core: _core.Fabric, port: int) -> Event:
        return _event(self.at_s, port, "down")

    def _end(self, core: _core.Fabric, port: int) -> Event:
        return _event(self._over_s, port, "up")


# --- gray links ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomLoss(Fault):
    """The link loses each packet with probability `ratio`."""

    kind = "random_loss"
    ratio: float = 0.01

    def _validate(self) -> None:
        _check_ratio("ratio", self.ratio)

    def _begin(self, core: _core.Fabric, port: int) -> Event:
        return _event(self.at_s, port, "loss", self.ratio)

    def _end(self, core: _core.Fabric, port: int) -> Event:
        return _event(self._over_s, port, "loss", 0.0)


@dataclass(frozen=True)
class BurstLoss(Fault):
    """The link loses packets in bursts (Gilbert 1960, Elliott 1963).

    Before each packet the link enters a burst with `enter_ratio`, or leaves the one it is in with `exit_ratio`, so that
    bursts are 1 / exit_ratio packets long in the mean; inside, a packet is lost with `loss_ratio`.
    """

    kind = "burst_loss"
    enter_ratio: float = 1e-4
    exit_ratio: float = 0.1
    loss_ratio: float = 1.0

    def _validate(self) -> None:
        for name in ("enter_ratio", "exit_ratio", "loss_ratio"):
            _check_ratio(name, getattr(self, name))

    @property
    def mean_loss_ratio(self) -> float:
        """Of all packets, in the long run: the share of the bursts, times what is lost in them."""
        both = self.enter_ratio + self.exit_ratio
        return 0.0 if both == 0 else self.enter_ratio / both * self.loss_ratio

    def _begin(self, core: _core.Fabric, port: int) -> Event:
        return _event(self.at_s, port, "burst", self.enter_ratio, self.exit_ratio, self.loss_ratio)

    def _end(self, core: _core.Fabric, port: int) -> Event:
        return _event(self._over_s, port, "burst", 0.0, 1.0, 0.0)


@dataclass(frozen=True)
class SlowLink(Fault):
    """The link has another rate, as one that lost lanes."""

    kind = "slow_link"
    rate_bps: float = 10e9

    def _validate(self) -> None:
        _check("rate_bps", self.rate_bps, 1e3, 1e14, "1e3 to 1e14 bits per second")

    def _begin(self, core: _core.Fabric, port: int) -> Event:
        return _event(self.at_s, port, "rate", float(round(self.rate_bps)))

    def _end(self, core: _core.Fabric, port: int) -> Event:
        return _event(self._over_s, port, "rate", float(core.link(port)[2]))


@dataclass(frozen=True)
class ExtraDelay(Fault):
    """Packets take `delay_s` longer, as behind a middlebox or on a detour below IP."""

    kind = "extra_delay"
    delay_s: float = 100e-6

    def _validate(self) -> None:
        _check("delay_s", self.delay_s, 0, 10, "0 to 10 seconds")

    def _begin(self, core: _core.Fabric, port: int) -> Event:
        return _event(self.at_s, port, "delay", float(picoseconds(self.delay_s)))

    def _end(self, core: _core.Fabric, port: int) -> Event:
        return _event(self._over_s, port, "delay", 0.0)


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
    # What ends goes before what begins, so that of two faults of one link, one after the other, the second holds.
    order = {"up": 0, "down": 1, "reroute": 3}
    return sorted(found, key=lambda event: (event[0], order.get(event[2], 2)))


def _noticed_returns(found: list[Event], delay_ps: int) -> Iterator[Event]:
    """Routes are made for all links at once. Who finds a cut because of another fault finds its end too."""
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
    """Without what changes nothing: a link that several faults cut is up when the last is over."""
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
    "FaultError",
    "Flapping",
    "LinkDown",
    "RandomLoss",
    "SlowLink",
    "SwitchDown",
    "events",
]
