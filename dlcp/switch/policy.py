"""The switch policy: what every switch of a fabric does, written once and rendered for every target.

Pure data: classes with their DSCP values, thresholds for critical and for droppable packets, how a path is chosen, how
a buffer is shared, port rates. P4 tables, configurations of switch operating systems, the software switch and the
simulator are all made from the same object. Every Policy is checked when it is made; PolicyError names the field, its
value and the accepted range. Nothing here talks to a switch, or knows what one of them cannot do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dlcp.switch.policy_toml import changed, in_file, policy_text, table_of, values_from
from dlcp.switch.resolved import NEVER_BYTES, ResolvedPolicy
from dlcp.switch.traffic_class import (
    DROPPABLE_LEVELS,
    MAX_BYTES,
    MAX_DSCP,
    TRAFFIC_CLASSES,
    PolicyError,
    Port,
    Thresholds,
    TrafficClass,
    check_integer,
    check_optional_bytes,
    importance_levels,
    refuse,
)

__all__ = [
    "DROPPABLE_LEVELS",
    "MAX_BYTES",
    "MAX_DSCP",
    "PATH_CHOICES",
    "TRAFFIC_CLASSES",
    "Policy",
    "PolicyError",
    "Port",
    "Thresholds",
    "TrafficClass",
    "importance_levels",
]

MIN_TRIMMED_BYTES = 20  # an IPv4 header must be left: RFC 791, 3.1
MAX_ALPHA_LOG2 = 10
PATH_CHOICES = ("flow_hash", "path_id", "random", "round_robin", "adaptive")


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
        check_optional_bytes("port_bytes", self.port_bytes, 1)
        check_optional_bytes("shared_bytes", self.shared_bytes, 1)
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
        check_optional_bytes("pause_above_bytes", self.pause_above_bytes)
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
        return cls.from_table(table_of(text))

    @classmethod
    def of_file(cls, text: str, path: Path | str) -> Policy:
        """The policy that the text of a file tells; PolicyError names file and line too."""
        try:
            return cls.from_toml(text)
        except PolicyError as error:
            raise in_file(error, text, path) from None

    @classmethod
    def load(cls, path: Path | str) -> Policy:
        """The policy in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise PolicyError(f"{path}: not UTF-8: {error}") from None
        return cls.of_file(text, path)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Policy:
        """The policy in tables as `tomllib` gives them."""
        return cls(**values_from(table, {each.name for each in fields(cls)}))

    def to_toml(self) -> str:
        """A TOML text of which `from_toml` makes the same policy. What has its default is left out."""
        settings = changed(self, skip={"classes", "ports", "path_groups"})
        return policy_text(settings, self.path_groups, self.classes, self.ports)

    def save(self, path: Path | str) -> None:
        """Writes `to_toml()` to a file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")
