"""What the generator writes into `switch_*.txt`: policies, decisions under them, and choices of paths."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from dlcp.switch.policy import (
    DROPPABLE_LEVELS,
    PATH_CHOICES,
    TRAFFIC_CLASSES,
    Policy,
    Thresholds,
    TrafficClass,
)
from tests.support import switch_twin as twin
from tests.support.vectors import Record

LEVELS = DROPPABLE_LEVELS + 1


def _classes(critical: Thresholds, droppable: tuple[Thresholds, ...]) -> tuple[TrafficClass, ...]:
    return tuple(TrafficClass(n, dscp=(8 * n,), critical=critical, droppable=droppable) for n in range(7))


POLICIES = (
    Policy(
        "selective drop",
        (
            *_classes(
                Thresholds(60_000, drop_above_bytes=180_000),
                tuple(Thresholds(drop_above_bytes=20_000 + 5_000 * i) for i in range(8)),
            ),
            TrafficClass(7, "control", dscp=(56, 48 + 2)),
        ),
        port_bytes=200_000,
    ),
    Policy("ramp", _classes(Thresholds(5_000, 200_000, 0.01), (Thresholds(),)), "flow_hash"),
    Policy("steep ramp", _classes(Thresholds(1_000, 1_009), (Thresholds(),)), port_bytes=30_000),
    Policy(
        "trimming",
        (
            *_classes(
                Thresholds(35_069, 140_275, trim_above_bytes=175_344),
                tuple(
                    Thresholds(trim_above_bytes=9_000 * (i + 1), drop_above_bytes=300_000) for i in range(8)
                ),
            ),
            TrafficClass(7, "headers", dscp=(56,), critical=Thresholds(drop_above_bytes=72_000)),
        ),
        "random",
        port_bytes=400_000,
    ),
    Policy(
        "shared, alpha 1/4",
        _classes(Thresholds(80_000), (Thresholds(drop_above_bytes=40_000),)),
        "adaptive",
        shared_bytes=16_000_000,
        shared_alpha_log2=-2,
    ),
    Policy("shared, alpha 8", (), "round_robin", shared_bytes=4_294_967_294, shared_alpha_log2=3),
    Policy(
        "trimming, shared, foreign",
        _classes(
            Thresholds(trim_above_bytes=60_000, drop_above_bytes=90_000),
            tuple(
                Thresholds(trim_above_bytes=4_000 * (i + 1), drop_above_bytes=8_000 * (i + 1))
                for i in range(8)
            ),
        ),
        "random",
        foreign_class=2,
        shared_bytes=1_000_000,
        shared_alpha_log2=-1,
        trimmed_class=5,
    ),
    Policy(
        "one class differs",
        tuple(
            TrafficClass(n, critical=Thresholds(1_000 * n), droppable=(Thresholds(drop_above_bytes=500 * n),))
            for n in range(8)
        ),
        pause_above_bytes=500_000,
        resume_below_bytes=490_000,
    ),
)


def _number(value: int | None) -> str:
    return "never" if value is None else str(value)


def policies() -> list[Record]:
    """Each policy as the cells of its tables."""
    records = []
    for policy in POLICIES:
        record: Record = [
            ("name", policy.name),
            ("path_choice", policy.path_choice),
            ("port_bytes", _number(policy.port_bytes)),
            ("shared_bytes", _number(policy.shared_bytes)),
            ("shared_alpha_log2", str(policy.shared_alpha_log2)),
            ("trimmed_bytes", str(policy.trimmed_bytes)),
            ("trimmed_class", str(policy.trimmed_class)),
            ("pause_above_bytes", _number(policy.pause_above_bytes)),
            ("resume_below_bytes", str(policy.resume_below_bytes)),
        ]
        record += [("dscp", f"{value} {number}") for value, number in sorted(policy.class_of_dscp().items())]
        for number in range(TRAFFIC_CLASSES):
            for level in range(LEVELS):
                at = policy.traffic_class(number).level(level)
                if at == Thresholds():
                    continue
                bytes_ = (at.mark_from_bytes, at.mark_full, at.trim_above_bytes, at.drop_above_bytes)
                mark_from, mark_full, trim, drop = map(_number, bytes_)
                cell = (
                    f"{number} {level} {mark_from} {mark_full} {twin.ratio_of(at.mark_ratio)} {trim} {drop}"
                )
                record.append(("cell", cell))
        records.append(record)
    return records


def _edges(at: Thresholds, policy: Policy, packet_bytes: int) -> Iterator[int]:
    """Depths at which something changes, and beside them."""
    limits = {0, at.mark_from_bytes, at.mark_full, at.trim_above_bytes, at.drop_above_bytes}
    if policy.port_bytes is not None:
        limits.add(policy.port_bytes - packet_bytes)
    if at.mark_from_bytes is not None and at.mark_full is not None:
        limits.add((at.mark_from_bytes + at.mark_full) // 2)
        limits.add(at.mark_from_bytes + -(-(at.mark_full - at.mark_from_bytes) // twin.MARK_STEPS))
    for limit in sorted(limit for limit in limits if limit is not None):
        yield from (d for d in (limit - 1, limit, limit + 1) if 0 <= d < 2**32 - 1)


def _last_marked(at: Thresholds, depth_bytes: int) -> int:
    """The largest random word that marks at this depth; -1 if none does."""
    return bisect.bisect_left(range(2**16), True, key=lambda word: not twin.marked(at, depth_bytes, word)) - 1


def decisions() -> list[Record]:
    """Packets on either side of every edge of every policy, and some drawn at random."""
    records: list[Record] = []

    def add(policy: Policy, packet: twin.Packet, depths: twin.Depths, word: int) -> None:
        records.append(
            [
                ("name", str(len(records))),
                ("policy", policy.name),
                ("traffic_class", str(packet.traffic_class)),
                ("importance", str(packet.importance)),
                ("ecn_capable", str(int(packet.ecn_capable))),
                ("trimmable", str(int(packet.trimmable))),
                ("bytes", str(packet.bytes)),
                ("queue_bytes", str(depths.queue_bytes)),
                ("port_bytes", str(depths.port_bytes)),
                ("shared_free_bytes", str(depths.shared_free_bytes)),
                ("random", str(word)),
                ("expect", twin.decide(policy, packet, depths, word)),
            ]
        )

    for policy in POLICIES:
        draw = random.Random(policy.name)
        for critical, importance in ((True, 255), (False, 0), (False, 31), (False, 32), (False, 254)):
            for trimmable in (False, True):
                number = draw.randrange(TRAFFIC_CLASSES)
                packet = twin.Packet(number, importance, critical, trimmable, draw.choice((64, 1500, 9000)))
                at = twin.thresholds_of(policy, packet)
                for depth in dict.fromkeys(_edges(at, policy, packet.bytes)):
                    free = draw.choice(
                        (0, packet.bytes - 1, packet.bytes, 4 * (depth + packet.bytes), 2**32 - 1)
                    )
                    depths = twin.Depths(depth, depth + draw.choice((0, 0, 1500)), min(free, 2**32 - 1))
                    add(policy, packet, depths, draw.choice((0, 327, 328, 32767, 65534, 65535, 2**32 - 1)))
        for _ in range(40):
            critical = draw.random() < 0.5
            depth = draw.randrange(300_000)
            packet = twin.Packet(
                draw.randrange(TRAFFIC_CLASSES),
                draw.randrange(255),
                critical,
                draw.random() < 0.5,
                draw.randrange(64, 9001),
            )
            add(
                policy,
                packet,
                twin.Depths(depth, depth + draw.randrange(50_000), draw.randrange(2_000_000)),
                draw.getrandbits(32),
            )
        # On either side of the ratio of each step of a ramp.
        for number in range(TRAFFIC_CLASSES):
            packet = twin.Packet(number, 255, True)
            at = twin.thresholds_of(policy, packet)
            if number > 1 or at.mark_from_bytes is None or at.mark_full == at.mark_from_bytes:
                continue
            assert at.mark_full is not None
            for step in range(twin.MARK_STEPS):
                depth = at.mark_from_bytes + (2 * step + 1) * (at.mark_full - at.mark_from_bytes) // (
                    2 * twin.MARK_STEPS
                )
                last = _last_marked(at, depth)
                for word in (last, last + 1):
                    if 0 <= word < 2**16:
                        add(policy, packet, twin.Depths(depth, depth, 2**32 - 1), 0xABCD0000 | word)
    return records


def verdicts() -> list[Record]:
    """Packets as in `decisions`, foreign ones among them, and what waits where they go when they are cut.

    Bytes are those of frames that can be, and a foreign packet has the class that its policy gives to foreign ones.
    """
    records: list[Record] = []

    def add(policy: Policy, packet: twin.Packet, depths: twin.Depths, word: int, ip: str, below: int) -> None:
        trimmed_bytes = {"ipv4": 106, "ipv6": 126}[ip]
        if packet.traffic_class == policy.trimmed_class:
            below = depths.queue_bytes  # one queue
        expect = twin.admit(policy, packet, depths, word, trimmed_bytes, replace(depths, queue_bytes=below))
        records.append(
            [
                ("name", str(len(records))),
                ("policy", policy.name),
                ("ip", ip),
                ("foreign", str(int(packet.foreign))),
                ("traffic_class", str(packet.traffic_class)),
                ("importance", str(packet.importance)),
                ("ecn_capable", str(int(packet.ecn_capable))),
                ("trimmable", str(int(packet.trimmable))),
                ("bytes", str(packet.bytes)),
                ("queue_bytes", str(depths.queue_bytes)),
                ("port_bytes", str(depths.port_bytes)),
                ("shared_free_bytes", str(depths.shared_free_bytes)),
                ("random", str(word)),
                ("trimmed_bytes", str(trimmed_bytes)),
                ("trimmed_queue_bytes", str(below)),
                ("expect", expect),
            ]
        )

    for policy in POLICIES:
        draw = random.Random(policy.name + ", verdicts")
        for foreign, critical, trimmable in itertools.product((False, True), repeat=3):
            for importance in (0, 254):
                ip = draw.choice(("ipv4", "ipv6"))
                number = policy.foreign_class if foreign else draw.randrange(TRAFFIC_CLASSES)
                size = draw.choice((1500, 9000))
                packet = twin.Packet(number, importance, critical, trimmable, size, foreign)
                at = twin.thresholds_of(policy, packet)
                limits = [*dict.fromkeys(_edges(at, policy, packet.bytes))]
                cut = replace(packet, traffic_class=policy.trimmed_class)
                below = [*_edges(twin.thresholds_of(policy, cut), policy, 106)]
                for depth in limits if trimmable else limits[:3]:
                    port = max(depth, draw.choice((depth, depth + 1500, (policy.port_bytes or 0) - 120)))
                    free = draw.choice((0, 105, 106, 125, 126, 4 * (depth + size), 3 * depth, 2**32 - 1))
                    depths = twin.Depths(depth, port, min(free, 2**32 - 1))
                    add(policy, packet, depths, draw.getrandbits(32), ip, draw.choice(below))
    return records


def paths() -> list[Record]:
    """Each way to choose, with few and many paths."""
    draw = random.Random("paths")
    records: list[Record] = []
    for choice in PATH_CHOICES:
        for count in (1, 2, 3, 4, 16, 64, 1000):
            for extreme in (0, 2**32 - 1, None, None, None):
                word = draw.getrandbits(32) if extreme is None else extreme
                given = twin.PathInputs(
                    flow=word,
                    path=draw.randrange(2**16),
                    salt=draw.choice((0, 1, 128, draw.getrandbits(32))),
                    turn=draw.getrandbits(32),
                    random=word << 32 | draw.getrandbits(32),
                )
                first, second = twin.choose_path(choice, given, count)
                records.append(
                    [
                        ("name", f"{choice} {len(records)}"),
                        ("choice", choice),
                        ("paths", str(count)),
                        *(
                            (key, str(getattr(given, key)))
                            for key in ("flow", "path", "salt", "turn", "random")
                        ),
                        ("first", str(first)),
                        ("second", str(second)),
                    ]
                )
    return records
