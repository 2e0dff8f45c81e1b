"""Notes on a policy that can be carried out and seldom does what was meant, a line each. Pure; refuses nothing."""

from __future__ import annotations

from collections.abc import Iterator

from dlcp.switch.number_ranges import number_ranges
from dlcp.switch.policy import Policy, Thresholds, TrafficClass

_USED_BY_OTHERS = {
    0: "everybody's traffic has it, unless told otherwise",
    48: "routing protocols have it (CS6)",
    56: "network control has it (CS7)",
}


def policy_notes(policy: Policy) -> Iterator[str]:
    """The notes, a line each."""
    if not policy.classes:
        yield f"the policy has no classes: all traffic is foreign, in queue {policy.foreign_class}"
        return
    end = policy.queue_end_bytes
    if end is not None:
        yield from _never_met(policy, end)
    if policy.port_bytes is not None:
        yield from _one_pot(policy, policy.port_bytes)
    yield from _met_by_others(policy)
    yield from _replaced(policy)
    yield from _starved(policy)


def _places(policy: Policy) -> Iterator[tuple[str, TrafficClass]]:
    """Classes as they are everywhere, and those that a port has instead."""
    yield from ((f"{c.number}", c) for c in policy.classes)
    yield from ((f"{c.number} at {port.name}", c) for port in policy.ports for c in port.classes)


def _named(places: list[str]) -> str:
    everywhere = [int(place) for place in places if place.isdigit()]
    words = [number_ranges(everywhere)] if everywhere else []
    words += [place for place in places if not place.isdigit()]
    return f"class{'es' if len(places) > 1 else ''} {', '.join(words)}"


def _never_met(policy: Policy, end: int) -> Iterator[str]:
    """Thresholds at or above the end of the queue. Trim thresholds are left out: the end trims as well."""
    found: dict[str, list[str]] = {}
    for place, traffic_class in _places(policy):
        for kind, levels in (("critical", [traffic_class.critical]), ("droppable", traffic_class.droppable)):
            for name in ("mark_from_bytes", "drop_above_bytes"):
                if kind == "droppable" and name == "mark_from_bytes":
                    continue  # packets that are not ECN-capable are not marked anyway
                values = [getattr(at, name) for at in levels]
                over = max((value for value in values if value is not None and value >= end), default=None)
                if over is not None:
                    found.setdefault(f"{kind}.{name} = {over}", []).append(place)
    for threshold, places in found.items():
        yield f"{_named(places)}: {threshold} is never met: no queue holds more than {end} bytes"


def _one_pot(policy: Policy, port_bytes: int) -> Iterator[str]:
    def most(traffic_class: TrafficClass) -> int:
        ends = [level.drop_above_bytes for level in traffic_class.levels]
        return max(port_bytes if end is None else min(end, port_bytes) for end in ends)

    waiting = {c.number: most(c) for c in policy.classes}
    waiting[policy.foreign_class] = port_bytes
    total = sum(waiting.values())
    if len(waiting) > 1 and total > port_bytes:
        yield (
            f"queues {number_ranges(waiting)} may together hold {total} bytes, a port {port_bytes}: those served last "
            "can take the room of the first; shared_bytes leaves it"
        )


def _met_by_others(policy: Policy) -> Iterator[str]:
    for traffic_class in policy.classes:
        if not _acting(traffic_class):
            continue
        for value, who in _USED_BY_OTHERS.items():
            if value in traffic_class.dscp:
                yield f"class {traffic_class.number} marks, trims or drops DSCP {value}: {who}"


def _acting(traffic_class: TrafficClass) -> list[str]:
    """Which packets of a class are ever marked, trimmed or dropped: critical, droppable."""
    at = traffic_class.critical
    found = ["critical"] if at.mark_from_bytes is not None or _removes(at) else []
    return found + (["droppable"] if any(map(_removes, traffic_class.droppable)) else [])


def _removes(at: Thresholds) -> bool:
    return at.trim_above_bytes is not None or at.drop_above_bytes is not None


def _replaced(policy: Policy) -> Iterator[str]:
    for port in policy.ports:
        for own in port.classes:
            kept = _acting(own)
            if lost := [kind for kind in _acting(policy.traffic_class(own.number)) if kind not in kept]:
                yield (
                    f"class {own.number} at {port.name} has no thresholds for {' and '.join(lost)} packets: a port's "
                    "class replaces all that the class has elsewhere"
                )


def _starved(policy: Policy) -> Iterator[str]:
    numbers = {c.number for c in policy.classes} | {policy.foreign_class}
    lowest = min(numbers)
    if len(numbers) > 1:
        foreign = ", foreign traffic's," if lowest == policy.foreign_class else ""
        yield f"priority is strict: while other classes fill a port, queue {lowest}{foreign} sends nothing there"
