"""The parts of a policy: thresholds, traffic classes, ports; and PolicyError, which says what is wrong with one.

A depth is the bytes that wait in a queue, without the packet that is being transmitted. A threshold of None is never
met.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from dlcp.checks import integer_range, is_integer, is_number, refusal
from dlcp.errors import SettingsError
from dlcp.switch.resolved import NEVER_BYTES, ResolvedThresholds, resolved_ratio

TRAFFIC_CLASSES = 8  # strict priority; 7 is served first
DROPPABLE_LEVELS = 8  # of importance 0 … 254, 32 values each; 0 is dropped first
MAX_BYTES = NEVER_BYTES - 1
MAX_DSCP = 63  # six bits: RFC 2474, 3


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


def check_optional_bytes(name: str, value: object, least: int = 0) -> None:
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
            check_optional_bytes(f"{where}.{name}", getattr(self, name))
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
