"""What a port of a fabric has done so far, the same of every kind of switch; what a kind does not count is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CLASSES = 8
CRITICAL_LEVEL = 8


@dataclass(frozen=True)
class ClassCount:
    """Of one queue of a port. Packets since the lab came up, bytes now."""

    sent: int = 0
    dropped: int = 0
    """By the policy or at the buffer's end, trimmed ones that found no room included."""
    marked: int = 0
    trimmed: int = 0
    waiting_bytes: int = 0
    max_waiting_bytes: int = 0


@dataclass(frozen=True)
class PortCount:
    """Of one port."""

    rate_bps: int
    up: bool
    sent: int
    """Packets that the port put on its cable, or was to: a fault's losses come after."""
    waiting_bytes: int = 0
    classes: tuple[ClassCount, ...] = ()
    """By number; empty: this kind of switch knows none."""
    critical_kept: int | None = None
    critical_dropped: int | None = None
    """Of ECN-capable packets; None: not counted apart."""
    droppable_dropped: int | None = None
    faults_lost: int = 0
    """By faults of its link, in the direction that this port sends into …"""
    arrivals_lost: int = 0
    """… and in the other, where a host is at the other end; of another switch's port they are `faults_lost`."""
    other: dict[str, int] = field(default_factory=dict)
    """What else was lost, by reason; none of it is the policy's doing."""

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in vars(self).items() if name != "classes"},
            "classes": [vars(one) for one in self.classes],
        }


Counts = dict[str, dict[str, PortCount]]
"""By switch, then by port."""


def total(ports: Iterable[PortCount], name: str) -> int:
    """A count of classes, over all ports."""
    return sum(getattr(one, name) for port in ports for one in port.classes)


def shares(ports: dict[str, PortCount], group: tuple[str, ...]) -> dict[str, float]:
    """What part of a group's packets each of its ports carried."""
    sent = {name: ports[name].sent for name in group if name in ports}
    return {name: count / max(1, sum(sent.values())) for name, count in sent.items()}
