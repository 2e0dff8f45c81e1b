"""A class of the policy as what ordinary switches have: one strict-priority queue with one curve of early detection.

Random early detection with ECN is the whole trick (Linux sch_red, and the manuals of most vendors): above a threshold,
ECN-capable packets are marked and others are dropped, so critical packets are ECN-capable and droppable ones are not.
A policy loses two things by it: importance has no levels (a switch reads the ECN field, not the dlcp header), and
marking and dropping share the curve. check.py reports both. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.switch.policy import TRAFFIC_CLASSES, Policy, TrafficClass


@dataclass(frozen=True)
class Curve:
    """Early detection on a queue's depth: nothing below `min_bytes`, `ratio` just below `max_bytes`, all from there."""

    min_bytes: int
    max_bytes: int
    ratio: float
    drops: bool
    """Whether packets that are not ECN-capable are dropped where the others are marked."""

    @property
    def percent(self) -> int:
        """`ratio` as switches take it; at least 1, since 0 would switch it off."""
        return max(1, min(100, round(100 * self.ratio)))


@dataclass(frozen=True)
class Queue:
    """What one queue of one port does."""

    number: int
    dscp: tuple[int, ...]
    mark: tuple[int, int, float] | None
    """Where ECN-capable packets begin to be marked, where all are, and the ratio there."""
    drop_bytes: int | None
    """Above it, packets that are not ECN-capable are dropped."""
    tail_bytes: int | None
    """Above it, everything is dropped."""
    trim_bytes: int | None
    """Above it, everything is trimmed; only where the switch trims."""

    @property
    def curve(self) -> Curve | None:
        """The one curve of a switch whose marks and drops share it: where drops are asked for, theirs."""
        if self.drop_bytes is not None:
            return Curve(self.drop_bytes, self.drop_bytes, 1.0, drops=True)
        if self.mark is not None:
            return Curve(*self.mark, drops=False)
        return None


def drop_limits(traffic_class: TrafficClass, trims: bool) -> list[int | None]:
    """Depths above which the droppable levels lose their payload: where no switch trims, from the trim threshold on."""
    return [
        min(
            (
                limit
                for limit in (at.drop_above_bytes, None if trims else at.trim_above_bytes)
                if limit is not None
            ),
            default=None,
        )
        for at in traffic_class.levels[:-1]
    ]


def queue_of(policy: Policy, number: int, port: str | None, trims: bool) -> Queue:
    """The queue of class `number` at `port`.

    Of several droppable levels the last finite threshold counts. So the queue drops nothing before the policy would
    drop the most important droppable packet, whose level ordinary traffic without ECN has too.
    """
    traffic_class = policy.traffic_class(number, port)
    base = policy.traffic_class(number)
    critical = traffic_class.critical
    mark = None
    if critical.mark_from_bytes is not None and critical.mark_full is not None and critical.mark_ratio > 0:
        mark = (critical.mark_from_bytes, critical.mark_full, critical.mark_ratio)
    drops = [limit for limit in drop_limits(traffic_class, trims) if limit is not None]
    trim = [limit for at in traffic_class.levels if (limit := at.trim_above_bytes) is not None]
    return Queue(
        number,
        tuple(sorted(base.dscp)),
        mark,
        max(drops, default=None),
        critical.drop_above_bytes,
        max(trim, default=None) if trims else None,
    )


def queues_of(policy: Policy, port: str | None, trims: bool = False) -> tuple[Queue, ...]:
    """All queues of a port, the one that is served last first."""
    return tuple(queue_of(policy, number, port, trims) for number in range(TRAFFIC_CLASSES))


def dscp_of_queues(policy: Policy) -> dict[int, int]:
    """Every DSCP value → its queue; what belongs to no class goes with foreign traffic."""
    owner = policy.class_of_dscp()
    return {value: owner.get(value, policy.foreign_class) for value in range(64)}
