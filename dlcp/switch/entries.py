"""What a switch holds under a policy: entries of match-action tables, default actions, multicast groups.

A pure function of a policy and one switch of the topology. Names are those of the v1model program (`p4/v1model.p4`);
values are plain numbers, so that any P4Runtime client can write them. The order is the same at each call. Every line of
a policy that the program or its switch cannot carry out is a Limit. Nothing here talks to a switch.

No two entries of a table match one packet with the same priority, so every switch picks the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlcp.switch.limits import Limit
from dlcp.switch.policy import (
    DROPPABLE_LEVELS,
    TRAFFIC_CLASSES,
    Policy,
    Thresholds,
    TrafficClass,
)
from dlcp.switch.programs import FOREIGN_LEVEL, KEEP_DSCP, PathChoice
from dlcp.switch.resolved import MARK_STEPS, NEVER_BYTES, ResolvedThresholds
from dlcp.switch.topology import SwitchTarget, mac_number

LEVELS = DROPPABLE_LEVELS + 1  # the last one is that of critical packets
PORT_MASK = 2**9 - 1  # v1model's port numbers have nine bits
ALL_PORTS_PRIORITY, ONE_PORT_PRIORITY = 1, 2  # P4Runtime: ternary entries have at least 1, larger wins
TRIMMED_BYTES = {"IPv4": 14 + 20 + 8 + 64, "IPv6": 14 + 40 + 8 + 64}  # up to the end of dlcp's header

# Tables in the order in which they are written: dlcp/switch/deploy/update.py says why.
WRITE_ORDER = (
    "buffer",
    "trimmed",
    "trimmed_thresholds",
    "mark_ramp",
    "thresholds",
    "classify",
    "arrival_group",
    "member",
    "member_other",
    "path_group",
    "multicast",
    "flood",
    "bridge",
    "route_ipv4",
    "route_ipv6",
    "router_mac",
)


def level_name(level: int) -> str:
    """A level in tables and counters, for people."""
    if level == FOREIGN_LEVEL:
        return "foreign"
    return "critical" if level == LEVELS - 1 else f"importance {32 * level}+"


# ---- what entries are made of ----


@dataclass(frozen=True, order=True)
class Exact:
    """This value."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, order=True)
class Ternary:
    """The bits of `value` under `mask`. A key whose mask is 0 is left out."""

    value: int
    mask: int

    def __str__(self) -> str:
        return f"{self.value} & {self.mask:#x}"


@dataclass(frozen=True, order=True)
class Prefix:
    """The first `length` bits of `value`. A key of length 0 is left out."""

    value: int
    length: int

    def __str__(self) -> str:
        return f"{self.value:#x}/{self.length}"


@dataclass(frozen=True, order=True)
class Range:
    """From `low` to `high`, both included. A key of the whole range is left out."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}…{self.high}"


Key = Exact | Ternary | Prefix | Range


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table, which holds one entry per `identity`."""

    table: str
    match: tuple[tuple[str, Key], ...]
    """Fields by name, sorted; a field that may have any value is left out."""
    action: str
    params: tuple[tuple[str, int], ...] = ()
    priority: int = 0
    """With ternary and range keys, from 1: the largest wins. 0 in other tables."""

    @property
    def identity(self) -> tuple[object, ...]:
        return ("entry", self.table, self.match, self.priority)


@dataclass(frozen=True)
class DefaultAction:
    """A table's action for packets that match no entry."""

    table: str
    action: str
    params: tuple[tuple[str, int], ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        return ("default", self.table)


@dataclass(frozen=True)
class MulticastGroup:
    """The ports that get a copy of a packet. A port that stands there twice gets two copies."""

    group_id: int
    ports: tuple[int, ...]

    @property
    def identity(self) -> tuple[object, ...]:
        return ("multicast", self.group_id)


Entry = TableEntry | DefaultAction | MulticastGroup


@dataclass(frozen=True)
class DesiredEntries:
    """All entries of one switch, and the lines of the policy that it cannot carry out."""

    entries: tuple[Entry, ...]
    limits: tuple[Limit, ...]


# ---- a policy as entries ----

Groups = Mapping[str, tuple[str, ...]]


def desired_entries(policy: Policy, target: SwitchTarget) -> DesiredEntries:
    """What `target` is to hold. Raises TopologyError if it has some but not all ports of a path group."""
    groups = target.groups_under(policy)
    entries = [
        *_classify(policy),
        *_admission(policy, target),
        *_bridge(policy, target, groups),
        *_flood(target, groups),
        *_routes(policy, target, groups),
    ]
    return DesiredEntries(tuple(entries), tuple(limits_of(policy)))


def _entry(table: str, match: Mapping[str, Key], action: str, priority: int = 0, **params: int) -> TableEntry:
    return TableEntry(table, tuple(sorted(match.items())), action, tuple(params.items()), priority)


def _classify(policy: Policy) -> Iterator[Entry]:
    yield DefaultAction("classify", "foreign", (("traffic_class", policy.foreign_class),))
    for dscp, number in sorted(policy.class_of_dscp().items()):
        yield _entry("classify", {"dscp": Exact(dscp)}, "set_class", traffic_class=number)


# ---- marks, trims, drops ----


def _admission(policy: Policy, target: SwitchTarget) -> Iterator[Entry]:
    """The buffer and the thresholds. Entries for one port outrank those for all ports."""
    alpha = policy.shared_alpha_log2
    numbers = policy.resolved()
    buffer = {
        "port_bytes_limit": numbers.port_bytes,
        "shared_bytes": numbers.shared_bytes,
        "alpha_left": max(alpha, 0),
        "alpha_right": max(-alpha, 0),
    }
    yield DefaultAction("buffer", "set_buffer", tuple(buffer.items()))
    dscp = KEEP_DSCP if numbers.trimmed_dscp is None else numbers.trimmed_dscp
    trimmed = {"traffic_class": policy.trimmed_class, "dscp": dscp}
    yield DefaultAction("trimmed", "set_trimmed", tuple(trimmed.items()))
    for number in range(TRAFFIC_CLASSES):
        everywhere = policy.traffic_class(number)
        yield from _thresholds(policy, everywhere, {}, ALL_PORTS_PRIORITY, TrafficClass(number))
        for port in policy.ports:
            if port.name in target.ports and any(c.number == number for c in port.classes):
                at = {"port": Ternary(target.ports[port.name], PORT_MASK)}
                here = policy.traffic_class(number, port.name)
                yield from _thresholds(policy, here, at, ONE_PORT_PRIORITY, everywhere)


def _thresholds(
    policy: Policy,
    traffic_class: TrafficClass,
    at: Mapping[str, Key],
    priority: int,
    replaced: TrafficClass,
) -> Iterator[Entry]:
    """Entries of one class. A level without thresholds has no entry, unless it replaces a level that has some."""
    of_class = {"traffic_class": Exact(traffic_class.number), **at}
    for index, (at_level, before) in enumerate(zip(traffic_class.levels, replaced.levels, strict=True)):
        level, old = at_level.resolved(), before.resolved()
        if _is_ever_met(level) or _is_ever_met(old):
            limits = level._asdict()
            del limits["mark_ratio"]  # a table of its own, mark_ramp
            match = {**of_class, "level": Exact(index)}
            yield _entry("thresholds", match, "set_thresholds", priority, **limits)
        # A trimmed packet is admitted a second time, to the class of trimmed packets.
        drop = level.drop_above_bytes
        if min(drop, old.drop_above_bytes) != NEVER_BYTES and traffic_class.number == policy.trimmed_class:
            match = {"level": Exact(index), **at}
            yield _entry("trimmed_thresholds", match, "set_trimmed_drop", priority, drop_above_bytes=drop)
    for low, high, ratio in mark_steps(traffic_class.critical):
        match = {**of_class, "depth": Range(low, high)}
        yield _entry("mark_ramp", match, "set_mark_ratio", priority, ratio=ratio)


def _is_ever_met(level: ResolvedThresholds) -> bool:
    return min(level.mark_from_bytes, level.trim_above_bytes, level.drop_above_bytes) != NEVER_BYTES


def mark_steps(level: Thresholds) -> Iterator[tuple[int, int, int]]:
    """First and last depth, and marked packets of 65536 between them: `mark_ratio_at` of native/switch/decision.hpp."""
    first, full, ratio, *_ = level.resolved()
    width = full - first
    for step in range(MARK_STEPS):
        low = first + -(-step * width // MARK_STEPS)
        high = first + -(-(step + 1) * width // MARK_STEPS) - 1
        if low <= high:
            yield low, high, ratio * (2 * step + 1) // (2 * MARK_STEPS)


# ---- forwarding ----


def _bridge(policy: Policy, target: SwitchTarget, groups: Groups) -> Iterator[Entry]:
    """MAC addresses behind ports and groups. A group's number is its place among the groups, from 1."""
    numbers = {name: number for number, name in enumerate(groups, 1)}
    for name, members in groups.items():
        hops_of_group = [("member_port", {"port": target.ports[port]}) for port in members]
        yield from _group(policy, target, numbers[name], hops_of_group)
        for port in members:
            arrival = {"ingress_port": Exact(target.ports[port])}
            yield _entry("arrival_group", arrival, "in_group", group=numbers[name])
    for entry in target.bridge:
        match = {"dst_mac": Exact(mac_number("mac", entry.mac))}
        if entry.port is not None:
            yield _entry("bridge", match, "to_port", port=target.ports[entry.port])
        elif entry.group is not None:
            yield _entry("bridge", match, "to_group", group=numbers[entry.group])


def _group(
    policy: Policy, target: SwitchTarget, number: int, hops_of_group: list[tuple[str, dict[str, int]]]
) -> Iterator[Entry]:
    """A group and its next hops; these twice where the program compares two random ones."""
    tables = ("member", "member_other") if policy.path_choice == "adaptive" else ("member",)
    group = {"group": Exact(number)}
    for table in tables:
        for index, (action, params) in enumerate(hops_of_group):
            yield _entry(table, {**group, "index": Exact(index)}, action, **params)
    choice = PathChoice[policy.path_choice.upper()]
    yield _entry("path_group", group, "choose", size=len(hops_of_group), choice=choice, salt=target.path_salt)


def _flood(target: SwitchTarget, groups: Groups) -> Iterator[Entry]:
    """Flooding of broadcast and unknown frames, with split horizon, so that a leaf-spine needs no spanning tree.

    A frame goes to every port of no path group, and to one port of each group. It never goes back, nor from a group
    into the same group.
    """
    group_of = {port: name for name, members in groups.items() for port in members}
    for port, number in sorted(target.ports.items(), key=lambda item: item[1]):
        alone = [other for other in target.ports if other not in group_of and other != port]
        one_each = [members[0] for name, members in groups.items() if name != group_of.get(port)]
        copies = tuple(sorted(target.ports[other] for other in (*alone, *one_each)))
        if copies:
            yield MulticastGroup(number + 1, copies)  # 0 is no group: P4Runtime 1.3, 9.5.1
            yield _entry("flood", {"ingress_port": Exact(number)}, "set_mcast", group=number + 1)


def _routes(policy: Policy, target: SwitchTarget, groups: Groups) -> Iterator[Entry]:
    """Routes. Equal next hops are groups of their own, since they rewrite MAC addresses; the bridge's come first."""
    if not target.routes:
        return
    source = mac_number("router_macs", target.router_macs[0])
    for mac in target.router_macs:
        yield _entry("router_mac", {"dst_mac": Exact(mac_number("router_macs", mac))}, "to_router")
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    for route in target.routes:
        network = route.network
        table = f"route_ipv{network.version}"
        prefix = Prefix(int(network.network_address), network.prefixlen)
        match = {"dst": prefix} if network.prefixlen else {}  # /0 matches anything
        if route.port is not None:
            hop = mac_number("next_hop", route.next_hop)
            port = target.ports[route.port]
            yield _entry(table, match, "next_hop", port=port, dst_mac=hop, src_mac=source)
            continue
        members = groups[route.group] if route.group is not None else ()
        hops = tuple((target.ports[p], mac_number("next_hops", route.next_hops[p])) for p in members)
        if hops not in numbers:
            numbers[hops] = len(groups) + len(numbers) + 1
            hops_of_group = [
                ("routed_member", {"port": port, "dst_mac": mac, "src_mac": source}) for port, mac in hops
            ]
            yield from _group(policy, target, numbers[hops], hops_of_group)
        yield _entry(table, match, "next_hop_group", group=numbers[hops])


# ---- limits ----


def limits_of(policy: Policy) -> Iterator[Limit]:
    """Lines of the policy that the v1model program, or BMv2 under it, cannot carry out."""
    if policy.pause_above_bytes is not None:
        yield Limit(
            "pause_above_bytes",
            policy.pause_above_bytes,
            "BMv2 sends no pause frames (IEEE 802.1Qbb)",
            "packets that find the buffer full are dropped",
        )
    if policy.trimmed_run_packets:
        yield Limit(
            "trimmed_run_packets",
            policy.trimmed_run_packets,
            "BMv2's queues are strict priority, whatever is in them",
            f"class {policy.trimmed_class} leaves first without end",
        )
    if policy.port_bytes is None and policy.shared_bytes is None:
        yield Limit(
            "port_bytes",
            "not set, nor is shared_bytes",
            "a switch's buffer has an end, and where BMv2's ends it drops any packet, critical ones too",
            "packets are lost where BMv2's own queue ends (set_queue_depth, in packets)",
        )
    trims = any(at.trim_above_bytes is not None for c in policy.every_class() for at in c.levels)
    if trims and policy.trimmed_bytes not in TRIMMED_BYTES.values():
        sizes = " and ".join(f"{size} bytes over {version}" for version, size in TRIMMED_BYTES.items())
        yield Limit(
            "trimmed_bytes",
            policy.trimmed_bytes,
            "the program cuts behind dlcp's header",
            f"{sizes} are left of a trimmed packet",
            refused=False,
        )
    if trims and policy.resolved().trimmed_dscp is None:
        yield Limit(
            "trimmed_class",
            policy.trimmed_class,
            "the class has no DSCP value that could be written into trimmed packets",
            "they keep theirs, and the next switch puts them into their old class",
            refused=False,
        )
    if any(port.rate_bps for port in policy.ports):
        yield Limit(
            "port.rate_bps",
            policy.ports[0].rate_bps if len({p.rate_bps for p in policy.ports}) == 1 else "…",
            "P4Runtime sets no rates",
            "links are as fast as they are; BMv2's rates are set over Thrift (set_queue_rate), and hold per queue",
            refused=False,
        )
