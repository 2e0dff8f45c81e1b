"""What an operating system cannot do of a policy, field by field; found before the policy is rendered.

The list is complete: a field that changes nothing in the rendered text, or less than it asks for, has a caveat. A field
that the system would turn into its opposite is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlcp.switch.policy import Policy, TrafficClass
from dlcp.switch.render.caveat import Caveat, differs, noted, refused
from dlcp.switch.render.queue import Queue, drop_limits, queue_of
from dlcp.switch.render.system import System

_ROUTING_DSCP = (48, 56)
"""CS6 and CS7, of network control (RFC 4594, 3.2)."""
_STARVED = (
    "strict priority starves: while higher queues fill the link, the lowest gets nothing, for however long"
)


def check(policy: Policy, system: System, ports: Sequence[str], shape: bool = False) -> list[Caveat]:
    """Everything that `system` does not do as the policy says, in the order of the policy's fields."""
    found = [*_switch(policy, system), *_paths(policy, system), *_ports(policy, system, ports, shape)]
    found += _left_out(policy, ports, shape and system.shapes)
    for index, traffic_class in enumerate(policy.classes):
        found += _class(policy, system, traffic_class, None, f"class[{index}]")
    for index, port in enumerate(policy.ports):
        if port.name in ports:
            for inner, traffic_class in enumerate(port.classes):
                where = f"port[{index}].class[{inner}]"
                found += _class(policy, system, traffic_class, port.name, where)
    found += [noted("", note) for note in (*system.notes, _STARVED)]
    return found


# ---- the switch as a whole ----


def _switch(policy: Policy, system: System) -> Iterator[Caveat]:
    for index, traffic_class in enumerate(policy.classes):
        if traffic_class.number >= system.queues:
            asked = f"a queue of number {traffic_class.number}"
            instead = f"{system.title} has queues 0 to {system.queues - 1}"
            yield refused(f"class[{index}].number", asked, instead)
    if policy.foreign_class in {c.number for c in policy.classes}:
        queue = queue_of(policy, policy.foreign_class, None, system.trims)
        if queue.curve or queue.tail_bytes is not None or queue.trim_bytes is not None:
            yield differs(
                "foreign_class",
                f"foreign traffic is left alone in queue {policy.foreign_class}",
                "it is marked and dropped like the class whose queue it shares",
            )
    if policy.port_bytes is not None:
        if system.limits_port:
            instead = f"each queue by itself is limited to {policy.port_bytes}; together they may hold more"
        else:
            instead = "the switch's own buffer settings decide"
        asked = f"a port holds {policy.port_bytes} bytes in all its queues"
        yield differs("port_bytes", asked, instead)
    if policy.shared_bytes is not None:
        yield from _shared(policy, system)
    trims = any(level.trim_above_bytes is not None for c in policy.classes for level in c.levels)
    if policy.trimmed_run_packets and trims:
        asked = f"after {policy.trimmed_run_packets} trimmed packets another class has its turn"
        yield differs("trimmed_run_packets", asked, "the trimmed class is strictly first")
    if policy.pause_above_bytes is not None:
        asked = f"an input that has brought more than {policy.pause_above_bytes} bytes is paused"
        yield differs(
            "pause_above_bytes", asked, f"nothing is paused: not rendered. {system.pausing}".strip()
        )


def _shared(policy: Policy, system: System) -> Iterator[Caveat]:
    exponent = policy.shared_alpha_log2
    asked = f"a queue may grow to 2^{exponent} of what is free in the shared buffer"
    if system.alpha_log2 is None:
        instead = "not rendered: the system's own buffer settings stay"
        yield differs("shared_alpha_log2" if exponent else "shared_bytes", asked, instead)
    elif exponent not in system.alpha_log2:
        near = clamped_alpha(policy, system)
        yield differs("shared_alpha_log2", asked, f"2^{near} is the nearest that can be set")
    yield noted("shared_bytes", "the size of the shared buffer is the hardware's")


def clamped_alpha(policy: Policy, system: System) -> int:
    """The logarithm of the dynamic threshold that the system takes nearest to the policy's."""
    assert system.alpha_log2 is not None
    return max(system.alpha_log2[0], min(system.alpha_log2[-1], policy.shared_alpha_log2))


def _paths(policy: Policy, system: System) -> Iterator[Caveat]:
    if not policy.path_groups:
        return
    yield noted("path_groups", f"which ports are equal next hops is the routing's to know. {system.hashing}")
    match policy.path_choice:
        case "path_id":
            instead = "the host writes the path id into the UDP source port, and the hash reads it there"
            yield noted("path_choice", instead)
        case "random" | "round_robin" | "adaptive":
            asked = f"each packet takes a next hop of its own ({policy.path_choice})"
            instead = "a hash over addresses and UDP ports decides: hosts spray by their source ports."
            yield differs("path_choice", asked, f"{instead} {system.spraying}".strip())


def _ports(policy: Policy, system: System, ports: Sequence[str], shape: bool) -> Iterator[Caveat]:
    listed = {port.name: (index, port) for index, port in enumerate(policy.ports)}
    for name in ports:
        if not system.has_port(name):
            field = f"port[{listed[name][0]}].name" if name in listed else ""
            instead = f"{system.title} refuses it: its ports have names like {system.port_example}"
            yield refused(field, f"a port called {name!r}", instead)
        if name in listed and shape and not system.shapes:
            index, port = listed[name]
            asked = f"{name} is shaped to {port.rate_bps} bit/s"
            instead = "no shaper of the port is rendered: its link's speed"
            yield differs(f"port[{index}].rate_bps", asked, instead)
    if any(name in listed for name in ports) and system.shapes and not shape:
        yield noted("", "rate_bps is taken for the speed of the link: no shaper without --shape")


def _left_out(policy: Policy, ports: Sequence[str], shape: bool) -> Iterator[Caveat]:
    """What the policy says of ports that are not configured; of a system configured without ports, none is left out."""
    if not ports:
        return
    for group, members in policy.path_groups.items():
        missing = [member for member in members if member not in ports]
        if missing:
            asked = f"equal next hops by {', '.join(map(repr, missing))}"
            instead = "not among the ports given: where they are called otherwise, give them as PORT=NAME"
            yield differs(f"path_groups.{group}", asked, instead)
    for index, port in enumerate(policy.ports):
        own = ["thresholds"] if port.classes else []
        own += ["a rate"] if shape else []
        if own and port.name not in ports:
            asked = f"{port.name!r} has {' and '.join(own)} of its own"
            yield differs(f"port[{index}]", asked, "not rendered: it is not among the ports given")


# ---- one class at one port ----


def _class(
    policy: Policy, system: System, traffic_class: TrafficClass, port: str | None, where: str
) -> Iterator[Caveat]:
    if traffic_class.number >= system.queues:
        return
    queue = queue_of(policy, traffic_class.number, port, system.trims)
    yield from _levels(system, traffic_class, queue, where)
    yield from _marks(system, traffic_class, queue, where)
    yield from _trims(policy, system, traffic_class, queue, where)
    yield from _limit(system, traffic_class, queue, where)
    yield from _range(system, queue, where)
    if queue.drop_bytes is not None and port is None:
        yield from _others_traffic(policy, queue, where)


def _others_traffic(policy: Policy, queue: Queue, where: str) -> Iterator[Caveat]:
    """DSCP values that other traffic has as well, in a queue that drops."""
    if 0 in queue.dscp and queue.number != policy.foreign_class:
        yield differs(
            f"{where}.dscp",
            "DSCP 0 belongs to this class",
            f"all best-effort traffic that is not ECN-capable is dropped from {queue.drop_bytes} bytes as well",
        )
    if listed := [value for value in _ROUTING_DSCP if value in queue.dscp]:
        yield differs(
            f"{where}.dscp",
            f"DSCP {' and '.join(map(str, listed))} in a class that drops",
            "routing protocols use CS6 and CS7, and their packets, not ECN-capable, are dropped above "
            f"{queue.drop_bytes} bytes like droppable ones",
        )


def _levels(system: System, traffic_class: TrafficClass, queue: Queue, where: str) -> Iterator[Caveat]:
    limits = drop_limits(traffic_class, system.trims)
    if queue.drop_bytes is None or len(set(limits)) == 1:
        return
    if None in limits:
        index = limits.index(None)
        asked = f"droppable packets of level {index} and above are never dropped"
        instead = f"all that are not ECN-capable are dropped above {queue.drop_bytes}"
    else:
        index = 0
        asked = f"droppable packets go above {limits[0]} to {limits[-1]}, by importance"
        instead = f"switches do not read it: all go above {queue.drop_bytes}, the most important's"
    yield differs(f"{where}.droppable[{index}]", asked, instead)


def _marks(system: System, traffic_class: TrafficClass, queue: Queue, where: str) -> Iterator[Caveat]:
    field = f"{where}.critical.mark_from_bytes"
    if queue.mark is None:
        if queue.drop_bytes is not None:
            yield differs(
                f"{where}.critical",
                "critical packets are never marked",
                f"they are marked above {queue.drop_bytes}, where others are dropped: that is what keeps them",
            )
        return
    begin, full, ratio = queue.mark
    if queue.drop_bytes is None:
        if not system.marks_without_drops:
            yield differs(
                field,
                f"critical packets are marked from {begin} and droppable ones kept",
                "what is not ECN-capable is dropped where the others are marked",
            )
        yield from _curve(system, (begin, full, ratio), where)
    elif system.marks_below_drops and full <= queue.drop_bytes:
        yield from _curve(system, (begin, full, ratio), where)
    elif (begin, full, ratio) != (queue.drop_bytes, queue.drop_bytes, 1.0):
        asked = f"critical packets are marked from {begin}"
        if full > begin or ratio < 1:
            asked += f", in {ratio:g} of cases from {full}"
        instead = f"all are from {queue.drop_bytes}, since marks and drops share the threshold"
        if not system.marks_below_drops and begin < queue.drop_bytes:
            instead += ", and a mark too late costs less than a drop too early"
        yield differs(field, asked, instead)


def _curve(system: System, mark: tuple[int, int, float], where: str) -> Iterator[Caveat]:
    _, full, ratio = mark
    if ratio < 1:
        yield differs(
            f"{where}.critical.mark_ratio",
            f"{ratio:g} of packets are marked above {full}",
            f"all are: the ratio holds just below {full}",
        )
        if not system.any_ratio and round(100 * ratio) != 100 * ratio:
            percent = max(1, round(100 * ratio))
            instead = f"{percent} per cent: whole ones only"
            yield differs(f"{where}.critical.mark_ratio", f"a ratio of {ratio:g}", instead)


def _trims(
    policy: Policy, system: System, traffic_class: TrafficClass, queue: Queue, where: str
) -> Iterator[Caveat]:
    *droppable, critical = (level.trim_above_bytes for level in traffic_class.levels)
    first = next((index for index, limit in enumerate(droppable) if limit is not None), None)
    of_critical = f"{where}.critical.trim_above_bytes"
    field = of_critical if first is None else f"{where}.droppable[{first}].trim_above_bytes"
    if not system.trims:
        if first is not None:
            yield differs(
                field,
                "droppable packets lose their payload and go on as headers",
                f"they are dropped above {queue.drop_bytes}: the receiver learns of it by time, not by a header",
            )
        if critical is not None:
            instead = "they are kept, whole, as long as the buffer lasts"
            yield differs(of_critical, f"critical packets are trimmed above {critical}", instead)
        return
    if queue.trim_bytes is None:
        return
    if critical is None:
        yield refused(
            field,
            "droppable packets are trimmed and critical ones never",
            f"{system.title} would trim critical ones as well: it trims whatever the queue has no room for. "
            "Set critical.trim_above_bytes, or drop droppable packets instead",
        )
        return
    if queue.mark is not None and queue.drop_bytes is None and not system.marks_without_drops:
        yield refused(
            field,
            f"packets are trimmed above {queue.trim_bytes} and marked from {queue.mark[0]}",
            f"{system.title} drops what is not ECN-capable where it marks, before it could be trimmed. "
            "Set droppable.drop_above_bytes above the trim threshold, or no mark",
        )
    if policy.shared_bytes is not None:
        instead = "packets are trimmed where the shared buffer ends for the queue, by shared_alpha_log2"
        yield differs(of_critical, f"packets are trimmed above {queue.trim_bytes}", instead)
    elif {*droppable, critical} != {queue.trim_bytes}:
        instead = f"everything is trimmed above {queue.trim_bytes}, the last of them"
        yield differs(field, "trim thresholds differ by importance", instead)


def _limit(system: System, traffic_class: TrafficClass, queue: Queue, where: str) -> Iterator[Caveat]:
    if queue.tail_bytes is None:
        return
    field = f"{where}.critical.drop_above_bytes"
    asked = f"critical packets are dropped above {queue.tail_bytes}"
    limits = [level.drop_above_bytes for level in traffic_class.levels[:-1]]
    kept = [limit for limit in limits if limit is None or limit > queue.tail_bytes]
    if not system.limits_queue:
        yield differs(field, asked, "they are kept as long as the buffer lasts")
    elif kept:
        longer = "never" if kept[-1] is None else f"only above {kept[-1]}"
        instead = "everything is: that is the end of the queue"
        yield differs(field, f"{asked}, droppable ones {longer}", instead)


def _range(system: System, queue: Queue, where: str) -> Iterator[Caveat]:
    accepted = system.threshold_bytes
    depths = [
        ("droppable", queue.drop_bytes),
        ("critical", queue.tail_bytes if system.limits_queue else None),
    ]
    if queue.mark is not None and (queue.drop_bytes is None or system.marks_below_drops):
        depths += [("critical", queue.mark[0]), ("critical", queue.mark[1])]
    for level, depth in depths:
        if depth is None:
            continue
        if depth >= accepted.stop:
            yield refused(
                f"{where}.{level}", f"a threshold of {depth}", f"it takes {accepted.stop - 1} at most"
            )
        elif depth < accepted.start:
            yield differs(
                f"{where}.{level}", f"a threshold of {depth}", f"{accepted.start} is the least that it takes"
            )
