"""The switch policy: what every switch of a fabric does, written once and rendered for every target.

Pure data: classes with their DSCP values, thresholds for critical and for droppable packets, how a path is chosen, how
a buffer is shared, port rates. P4 tables, configurations of switch operating systems, the software switch and the
simulator are all made from the same object. Every Policy is checked when it is made; PolicyError names the field, its
value and the accepted range. Nothing here talks to a switch, or knows what one of them cannot do.

A depth is the bytes that wait in a queue, without the packet that is being transmitted. A threshold of None is never
met.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from dlcp.checks import integer_range, is_integer, is_number, refusal
from dlcp.errors import SettingsError
from dlcp.switch.resolved import NEVER_BYTES, ResolvedPolicy, ResolvedThresholds, resolved_ratio

TRAFFIC_CLASSES = 8  # strict priority; 7 is served first
DROPPABLE_LEVELS = 8  # of importance 0 … 254, 32 values each; 0 is dropped first
MAX_BYTES = NEVER_BYTES - 1
MAX_DSCP = 63  # six bits: RFC 2474, 3
MIN_TRIMMED_BYTES = 20  # an IPv4 header must be left: RFC 791, 3.1
MAX_ALPHA_LOG2 = 10
PATH_CHOICES = ("flow_hash", "path_id", "random", "round_robin", "adaptive")


class PolicyError(SettingsError):
    """A policy that cannot be carried out; the text names the field, its value and what is accepted.

    `field`: its path in TOML, with which the text begins, such as class[2].dscp; empty: none in particular.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def refuse(name: str, value: object, accepted: str) -> NoReturn:
    raise PolicyError(refusal(name, value, accepted), name)


def check_integer(name: str, value: object, least: int, most: int) -> None:
    if not is_integer(value, least, most):
        refuse(name, value, integer_range(least, most))


def _check_optional_bytes(name: str, value: object, least: int = 0) -> None:
    if value is not None:
        check_integer(name, value, least, MAX_BYTES)


@dataclass(frozen=True)
class Thresholds:
    """Depths of its class's queue at which a packet is marked, trimmed or dropped on arrival."""

    mark_from_bytes: int | None = None
    """ECN-capable packets are marked with a probability that rises from 0 here …"""
    mark_full_bytes: int | None = None
    """… to `mark_ratio` here, and all above. None: `mark_from_bytes`, a step."""
    mark_ratio: float = 1.0
    trim_above_bytes: int | None = None
    """The payload is cut off, also where the buffer ends. None: never."""
    drop_above_bytes: int | None = None

    @property
    def mark_full(self) -> int | None:
        """`mark_full_bytes`, or where the step is."""
        return self.mark_from_bytes if self.mark_full_bytes is None else self.mark_full_bytes

    def resolved(self) -> ResolvedThresholds:
        """The same as integers."""
        limits = (self.mark_from_bytes, self.mark_full, self.trim_above_bytes, self.drop_above_bytes)
        mark_from, mark_full, trim, drop = (NEVER_BYTES if limit is None else limit for limit in limits)
        return ResolvedThresholds(mark_from, mark_full, resolved_ratio(self.mark_ratio), trim, drop)

    def validate(self, where: str) -> None:
        """PolicyError unless each is in range and they are in an order that means something."""
        for name in ("mark_from_bytes", "mark_full_bytes", "trim_above_bytes", "drop_above_bytes"):
            _check_optional_bytes(f"{where}.{name}", getattr(self, name))
        ratio = self.mark_ratio
        if not is_number(ratio, 0, 1):
            refuse(f"{where}.mark_ratio", ratio, "0 to 1")
        if self.mark_full_bytes is not None:
            if self.mark_from_bytes is None:
                refuse(
                    f"{where}.mark_full_bytes", self.mark_full_bytes, "none, unless mark_from_bytes is set"
                )
            if self.mark_full_bytes < self.mark_from_bytes:
                accepted = f"at least mark_from_bytes, {self.mark_from_bytes}"
                refuse(f"{where}.mark_full_bytes", self.mark_full_bytes, accepted)
        if self.drop_above_bytes is not None:
            # A packet that is dropped is neither marked nor trimmed, so such a threshold would never be met.
            for name in ("mark_from_bytes", "trim_above_bytes"):
                value = getattr(self, name)
                if value is not None and value > self.drop_above_bytes:
                    refuse(f"{where}.{name}", value, f"at most drop_above_bytes, {self.drop_above_bytes}")


def importance_levels(fate: str, from_bytes: int, to_bytes: int, **others: Any) -> tuple[Thresholds, ...]:
    """Thresholds of the droppable levels, in equal steps.

    `fate`, as "drop_above_bytes", is `from_bytes` for the least important and `to_bytes` for the most important;
    `others` are the same for all.
    """
    step = (to_bytes - from_bytes) / (DROPPABLE_LEVELS - 1)
    return tuple(
        Thresholds(**{fate: round(from_bytes + step * level)}, **others) for level in range(DROPPABLE_LEVELS)
    )


@dataclass(frozen=True)
class TrafficClass:
    """One strict-priority queue, and the packets that join it."""

    number: int
    """0 … 7; 7 is served first."""
    name: str = ""
    dscp: tuple[int, ...] = ()
    """The DSCP values of its packets; a value belongs to one class. With none, only packets that the policy sends here
    by number join, such as trimmed ones."""
    critical: Thresholds = Thresholds()
    """Of ECN-capable packets: critical blocks, control, ordinary traffic that reacts to marks."""
    droppable: tuple[Thresholds, ...] = (Thresholds(),)
    """Of the others, by importance: one for all, or DROPPABLE_LEVELS of them, least important first."""

    @property
    def levels(self) -> tuple[Thresholds, ...]:
        """Thresholds of the droppable levels, least important first, then those of critical packets."""
        same_for_all = len(self.droppable) == 1
        return (*(self.droppable * DROPPABLE_LEVELS if same_for_all else self.droppable), self.critical)

    def level(self, index: int) -> Thresholds:
        """Thresholds of droppable level `index`; of index DROPPABLE_LEVELS, those of critical packets."""
        return self.levels[index]

    def validate(self, where: str) -> None:
        """PolicyError unless everything is in range, and no packet is dropped before a less important one."""
        check_integer(f"{where}.number", self.number, 0, TRAFFIC_CLASSES - 1)
        for value in self.dscp:
            check_integer(f"{where}.dscp", value, 0, MAX_DSCP)
        self.critical.validate(f"{where}.critical")
        if len(self.droppable) not in (1, DROPPABLE_LEVELS):
            refuse(f"{where}.droppable", len(self.droppable), f"1 or {DROPPABLE_LEVELS} sets of thresholds")
        for index, thresholds in enumerate(self.droppable):
            thresholds.validate(f"{where}.droppable[{index}]")
        for fate in ("trim_above_bytes", "drop_above_bytes"):
            limits = [getattr(thresholds, fate) for thresholds in self.droppable]
            for index, (lower, higher) in enumerate(itertools.pairwise(limits)):
                if (math.inf if higher is None else higher) < (math.inf if lower is None else lower):
                    least = "never" if lower is None else lower
                    name = f"{where}.droppable[{index + 1}].{fate}"
                    refuse(name, higher, f"at least that of droppable[{index}], {least}")


@dataclass(frozen=True)
class Port:
    """One port of a switch, under the name that the switch gives it."""

    name: str
    rate_bps: int
    classes: tuple[TrafficClass, ...] = ()
    """Thresholds that replace, at this port, those of the policy's class of the same number."""

    def validate(self, where: str) -> None:
        """PolicyError unless the rate is one, and the classes are sound."""
        if not self.name:
            refuse(f"{where}.name", self.name, "the port's name")
        check_integer(f"{where}.rate_bps", self.rate_bps, 1, 10**13)
        numbers: set[int] = set()
        for index, traffic_class in enumerate(self.classes):
            traffic_class.validate(f"{where}.class[{index}]")
            if traffic_class.number in numbers:
                accepted = "a number that no other class of the port has"
                refuse(f"{where}.class[{index}].number", traffic_class.number, accepted)
            numbers.add(traffic_class.number)


@dataclass(frozen=True)
class Policy:
    """What a switch does with packets. Immutable; `replace(policy, …)` gives another one, checked as well."""

    name: str = ""
    classes: tuple[TrafficClass, ...] = ()
    """In any order; a number that is not there has no thresholds."""
    path_choice: str = "path_id"
    """flow_hash: one path per flow. path_id: by the id that the host wrote. random, round_robin: packet by packet.
    adaptive: the shorter queue of two drawn at random, packet by packet."""
    path_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a group of equal next hops → the ports to them. The simulator knows its own from the fabric."""
    ports: tuple[Port, ...] = ()
    foreign_class: int = 0
    """The class whose queue foreign packets join: those with a DSCP value of no class, and those that are not IP. They
    are never marked or trimmed, and dropped only where the buffer ends."""

    port_bytes: int | None = None
    """What may wait at a port, all classes together. None: no limit."""
    shared_bytes: int | None = None
    """A buffer of the whole switch instead. A queue may grow to 2^shared_alpha_log2 times the free part of the buffer
    (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN 1998)."""
    shared_alpha_log2: int = 0

    trimmed_bytes: int = 64
    """What is left of a trimmed packet on the wire …"""
    trimmed_class: int = 7
    """… and the class that it goes on in."""
    trimmed_run_packets: int = 0
    """After so many packets of that class in a row, one packet of a waiting class leaves. 0: any number may leave in a
    row. NDP's switches: 10 (Handley et al., SIGCOMM 2017, 3.1)."""

    pause_above_bytes: int | None = None
    """Priority flow control (IEEE 802.1Qbb): the switch pauses a class at an input that has brought more than this of
    it. None: off."""
    resume_below_bytes: int = 0

    def __post_init__(self) -> None:
        self.validate()

    # ---- what a switch asks ----

    def traffic_class(self, number: int, port: str | None = None) -> TrafficClass:
        """The class of this number, as it is at `port`."""
        at_port = None if port is None else self.port(port)
        own = at_port.classes if at_port else ()
        return next((c for c in (*own, *self.classes) if c.number == number), TrafficClass(number))

    def port(self, name: str) -> Port | None:
        """The port of this name; None if the policy does not describe it."""
        return next((port for port in self.ports if port.name == name), None)

    def every_class(self) -> Iterator[TrafficClass]:
        """The classes, and then those that ports have instead."""
        yield from self.classes
        for port in self.ports:
            yield from port.classes

    def resolved(self, port: str | None = None) -> ResolvedPolicy:
        """The policy at `port` as integers; with None, at a port without thresholds of its own."""
        classes = [self.traffic_class(number, port) for number in range(TRAFFIC_CLASSES)]
        return ResolvedPolicy(
            thresholds=tuple(tuple(level.resolved() for level in c.levels) for c in classes),
            port_bytes=NEVER_BYTES if self.port_bytes is None else self.port_bytes,
            shared_bytes=self.shared_bytes or 0,
            trimmed_dscp=next(iter(self.traffic_class(self.trimmed_class).dscp), None),
        )

    @property
    def queue_end_bytes(self) -> int | None:
        """The longest that the buffer lets one queue grow while all others are empty. None: there is no end.

        A queue takes at most alpha times what is left of a shared buffer, so alpha / (1 + alpha) of the whole.
        """
        if self.shared_bytes is None:
            return self.port_bytes
        return math.floor(self.shared_bytes / (1 + 2.0**-self.shared_alpha_log2))

    def class_of_dscp(self) -> dict[int, int]:
        """DSCP value → number of its class. What is not there is foreign traffic."""
        return {value: c.number for c in self.classes for value in c.dscp}

    def named_ports(self) -> dict[str, tuple[str, ...]]:
        """Every port that the policy names → the fields that name it, as `path_groups.uplinks` and `port[0]`."""
        fields: dict[str, list[str]] = {}
        for group, members in self.path_groups.items():
            for member in members:
                fields.setdefault(member, []).append(f"path_groups.{group}")
        for index, port in enumerate(self.ports):
            fields.setdefault(port.name, []).append(f"port[{index}]")
        return {name: tuple(where) for name, where in fields.items()}

    def renamed_ports(self, names: Mapping[str, str]) -> Policy:
        """The same policy with other names of ports, old → new; a port that is not in `names` keeps its own.

        PolicyError: two ports would have one name.
        """
        return replace(
            self,
            path_groups={
                group: tuple(names.get(member, member) for member in members)
                for group, members in self.path_groups.items()
            },
            ports=tuple(replace(port, name=names.get(port.name, port.name)) for port in self.ports),
        )

    # ---- checks ----

    def validate(self) -> None:
        """PolicyError if it cannot be carried out. Called when a policy is made."""
        numbers: set[int] = set()
        owner: dict[int, int] = {}
        for index, traffic_class in enumerate(self.classes):
            traffic_class.validate(f"class[{index}]")
            if traffic_class.number in numbers:
                refuse(f"class[{index}].number", traffic_class.number, "a number that no other class has")
            numbers.add(traffic_class.number)
            for value in traffic_class.dscp:
                if value in owner:
                    accepted = f"a value that no other class has; class {owner[value]} has it"
                    refuse(f"class[{index}].dscp", value, accepted)
                owner[value] = traffic_class.number
        check_integer("foreign_class", self.foreign_class, 0, TRAFFIC_CLASSES - 1)
        if self.path_choice not in PATH_CHOICES:
            refuse("path_choice", self.path_choice, ", ".join(PATH_CHOICES))
        self._validate_ports(numbers)
        _check_optional_bytes("port_bytes", self.port_bytes, 1)
        _check_optional_bytes("shared_bytes", self.shared_bytes, 1)
        if self.port_bytes is not None and self.shared_bytes is not None:
            refuse(
                "shared_bytes",
                self.shared_bytes,
                "none, when port_bytes is set: a buffer is shared or it is not",
            )
        check_integer("shared_alpha_log2", self.shared_alpha_log2, -MAX_ALPHA_LOG2, MAX_ALPHA_LOG2)
        check_integer("trimmed_bytes", self.trimmed_bytes, MIN_TRIMMED_BYTES, 2**16 - 1)
        check_integer("trimmed_class", self.trimmed_class, 0, TRAFFIC_CLASSES - 1)
        check_integer("trimmed_run_packets", self.trimmed_run_packets, 0, 255)
        _check_optional_bytes("pause_above_bytes", self.pause_above_bytes)
        most = MAX_BYTES if self.pause_above_bytes is None else self.pause_above_bytes
        check_integer("resume_below_bytes", self.resume_below_bytes, 0, most)

    def _validate_ports(self, numbers: set[int]) -> None:
        names: set[str] = set()
        for index, port in enumerate(self.ports):
            port.validate(f"port[{index}]")
            if port.name in names:
                refuse(f"port[{index}].name", port.name, "a name that no other port has")
            names.add(port.name)
            for inner, traffic_class in enumerate(port.classes):
                where = f"port[{index}].class[{inner}]"
                if traffic_class.number not in numbers:
                    accepted = (
                        f"a class of the policy: {', '.join(map(str, sorted(numbers))) or 'there is none'}"
                    )
                    refuse(f"{where}.number", traffic_class.number, accepted)
                if traffic_class.dscp:
                    accepted = "none: who is in a class is the same at all ports"
                    refuse(f"{where}.dscp", list(traffic_class.dscp), accepted)
        owner: dict[str, str] = {}
        for group, members in self.path_groups.items():
            if not members:
                refuse(f"path_groups.{group}", list(members), "at least one port")
            for member in members:
                if self.ports and member not in names:
                    refuse(
                        f"path_groups.{group}", member, f"a port of the policy: {', '.join(sorted(names))}"
                    )
                # A flooded frame goes to one port of each group; a port in two groups would get it twice.
                if member in owner:
                    accepted = f"a port of no other group, and once; {owner[member]} has it"
                    refuse(f"path_groups.{group}", member, accepted)
                owner[member] = group

    # ---- TOML: policy_toml ----

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """The policy that a TOML text tells; PolicyError names what is unknown, malformed or out of range."""
        from dlcp.switch.policy_toml import policy_from_text

        return policy_from_text(text)

    @classmethod
    def load(cls, path: Path | str) -> Policy:
        """The policy in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise PolicyError(f"{path}: not UTF-8: {error}") from None
        from dlcp.switch.policy_toml import policy_of_file

        return policy_of_file(text, path)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Policy:
        """The policy in tables as `tomllib` gives them."""
        from dlcp.switch.policy_toml import policy_from_table

        return policy_from_table(table)

    def to_toml(self) -> str:
        """A TOML text of which `from_toml` makes the same policy. What has its default is left out."""
        from dlcp.switch.policy_toml import policy_text

        return policy_text(self)

    def save(self, path: Path | str) -> None:
        """Writes `to_toml()` to a file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")
