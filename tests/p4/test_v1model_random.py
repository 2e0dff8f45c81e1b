"""Random frames through random policies and topologies: the compiled program, and a switch made of the twins.

Same frames into the same queues, with the same bytes waiting after every step. A failure names its seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dlcp.switch.policy import PATH_CHOICES, Policy, Port, Thresholds, TrafficClass
from dlcp.switch.programs import FOREIGN_LEVEL, Arrival, Decision
from dlcp.switch.topology import BridgeEntry, Route, SwitchTarget
from tests.support import frame_builder as build
from tests.support import frame_twin, v1model, wire_twin
from tests.support.bmv2 import Program
from tests.support.bmv2.v1model import Queued
from tests.support.switch_pipeline import Copy, Pipeline, Words

PORTS = {f"port{n}": n for n in (0, 1, 2, 3, 4, 5, 62, 63)}
ROUTER = "02:00:00:00:00:ff"
HOSTS = [f"02:00:00:00:01:{n:02x}" for n in range(8)]
SEEDS, FRAMES = 24, 250


@dataclass
class Drawn:
    """The words of one packet, by what they are drawn for: 32 bits for a path, 16 for a mark."""

    words: Words
    paths: int = 0

    def uniform(self, low: int, high: int) -> int:
        assert low == 0
        if high == 0xFFFF:
            return self.words.mark
        assert high == 0xFFFFFFFF
        self.paths += 1
        return self.words.path[self.paths - 1]


def thresholds(draw: random.Random) -> Thresholds:
    """Met after a few packets, or never."""
    levels = sorted(draw.randrange(8_000) for _ in range(3))
    marks = draw.choice((None, levels[0]))
    return Thresholds(
        mark_from_bytes=marks,
        mark_full_bytes=None if marks is None else draw.choice((None, levels[1], levels[0] + 3)),
        mark_ratio=draw.choice((1.0, 0.5)),
        trim_above_bytes=draw.choice((None, levels[1])),
        drop_above_bytes=draw.choice((None, levels[2])),
    )


def droppable(draw: random.Random) -> tuple[Thresholds, ...]:
    """One for all levels, or eight in their order."""
    if draw.random() < 0.3:
        return (thresholds(draw),)
    step = draw.randrange(1, 1500)
    base = draw.randrange(3000)
    return tuple(
        Thresholds(trim_above_bytes=base + step * n, drop_above_bytes=base + 2 * step * (n + 1))
        for n in range(8)
    )


def random_policy(draw: random.Random) -> Policy:
    values = draw.sample(range(64), 20)
    classes = tuple(
        TrafficClass(
            number,
            dscp=tuple(values[2 * number : 2 * number + draw.choice((0, 1, 2))]),
            critical=thresholds(draw),
            droppable=droppable(draw),
        )
        for number in sorted(draw.sample(range(8), draw.randrange(1, 9)))
    )
    here = draw.choice(classes).number
    special = TrafficClass(here, critical=thresholds(draw), droppable=droppable(draw))
    return Policy(
        classes=classes,
        path_choice=draw.choice(PATH_CHOICES),
        path_groups={"spines": ("port4", "port5", "port62"), "pair": ("port2", "port3")},
        ports=tuple(Port(name, 10**9, (special,) if name in ("port1", "port4") else ()) for name in PORTS),
        foreign_class=draw.randrange(8),
        trimmed_class=draw.randrange(8),
        **draw.choice(
            (
                {"port_bytes": draw.randrange(2_000, 12_000)},
                {"shared_bytes": draw.randrange(4_000, 40_000), "shared_alpha_log2": draw.randrange(-3, 4)},
                {},
            )
        ),
    )


def random_target(draw: random.Random) -> SwitchTarget:
    places = [
        BridgeEntry(HOSTS[0], port="port0"),
        BridgeEntry(HOSTS[1], port="port1"),
        BridgeEntry(HOSTS[2], port="port63"),
        BridgeEntry(HOSTS[3], group="spines"),
        BridgeEntry(HOSTS[4], group="pair"),
    ]
    hops = {"port4": "02:00:00:00:02:04", "port5": "02:00:00:00:02:05", "port62": "02:00:00:00:02:3e"}
    routes = (
        Route("10.0.0.0/8", port="port0", next_hop="02:00:00:00:03:00"),
        Route("10.0.1.0/24", group="spines", next_hops=hops),
        Route("10.0.1.128/25", port="port1", next_hop="02:00:00:00:03:01"),
        Route("2001:db8::/32", port="port63", next_hop="02:00:00:00:03:3f"),
        Route("2001:db8:1::/48", group="spines", next_hops=hops),
    )
    return SwitchTarget(
        "switch", "127.0.0.1:9559", PORTS, salt=draw.getrandbits(32), router_macs=(ROUTER,),
        bridge=tuple(places), routes=routes if draw.random() < 0.8 else routes[1:2],
    )  # fmt: skip


def random_frame(draw: random.Random, policy: Policy, damaged_ratio: float) -> bytes:
    """Mostly dlcp's packets of the policy's classes; some of everything else, some damaged."""
    size = draw.choice((0, 1, 300, 1000, 1400, 1400))
    content = draw.choice(
        (
            build.dlcp(
                size,
                type=draw.choice((wire_twin.DATA, wire_twin.DATA, wire_twin.DATA, wire_twin.CONTROL)),
                flags=draw.choice((0, 0, wire_twin.AUTHENTICATED)),
                importance=draw.choice((0, 31, 100, 200, 254, 255, draw.randrange(256))),
                path=draw.randrange(2**16),
            ),
            build.dlcp(size, trimmed=True),
            draw.randbytes(size),
        )
        if draw.random() < 0.3
        else (build.dlcp(size, importance=draw.randrange(255), path=draw.randrange(2**16)),)
    )
    known = [*policy.class_of_dscp()]
    tos = (draw.choice(known) if known and draw.random() < 0.8 else draw.randrange(64)) << 2
    tos |= draw.choice((0, 0, 1, 2, 3))
    destination = draw.choice((ROUTER, *HOSTS[:5], *HOSTS[:6]))
    address = {
        "destination": bytes.fromhex(destination.replace(":", "")),
        "source": b"\2" + draw.randbytes(5),
    }
    ports = {"source": draw.randrange(2**16)}
    if draw.random() < 0.1:
        return uncommon_frame(draw, tos, **address)
    ttl = draw.choice((64, 64, 64, 255, 2, 1, 0))
    if draw.random() < 0.5:
        ends = bytes([10, 0, draw.randrange(3), draw.randrange(256)])
        ends += bytes([draw.choice((10, 10, 10, 11)), 0, draw.randrange(3), draw.randrange(256)])
        packet = build.ipv4(
            build.udp(content, **ports), tos=tos, addresses=ends, ttl=ttl, identification=draw.getrandbits(16),
            fragment=draw.choice((0x4000, 0x4000, 0x4000, 0x2000, 0x0003)),
        )  # fmt: skip
        frame = build.ethernet(packet, build.IPV4, **address)
    else:
        ends = build.V6_ADDRESSES[:16] + bytes.fromhex(
            draw.choice(("20010db80000", "20010db80001", "20020db80000"))
        )
        packet = build.ipv6(
            build.udp(content, **ports), tos=tos, addresses=ends + draw.randbytes(10), hop_limit=ttl
        )
        frame = build.ethernet(packet, build.IPV6, **address)
    if draw.random() < damaged_ratio:
        changed = bytearray(frame)
        for _ in range(draw.choice((1, 1, 2, 8))):
            changed[draw.randrange(min(len(frame), 128))] = draw.choice((0, 1, 255, draw.randrange(256)))
        frame = bytes(changed)
        if frame[12:14] == b"\x08\0" and len(frame) >= 34 and draw.random() < 0.7:
            frame = frame_twin.with_ipv4_checksum(frame)  # else little gets past the first check
    if draw.random() < 0.03:
        frame = frame[: draw.randrange(len(frame))]
    return frame


def uncommon_frame(draw: random.Random, tos: int, **address: bytes) -> bytes:
    """What is rarely seen, or seldom sound: wrong lengths, padding, options, tags, fragments, other protocols."""
    port = {"source": draw.randrange(2**16)}
    content = build.dlcp(draw.choice((0, 40, 9000)), importance=draw.randrange(255))
    datagram = build.udp(content, udp_bytes=draw.choice((None, None, 0, 7, 8, 71, 72, 73, 0xFFFF)), **port)
    inner, protocol = draw.choice(
        (
            (datagram, frame_twin.UDP),
            (datagram[: draw.randrange(12)], frame_twin.UDP),
            (build.tcp(draw.randbytes(20), **port), frame_twin.TCP),
            (build.tcp(**port)[: draw.randrange(6)], frame_twin.TCP),
            (bytes([frame_twin.UDP, 0]) + bytes(6) + datagram, 0),  # IPv6: hop-by-hop options, RFC 8200, 4.3
            (draw.randbytes(30), 47),
        )
    )
    kind = draw.choice((build.IPV4, build.IPV4, build.IPV6, build.IPV6, build.VLAN, build.ARP, 0x0600))
    if kind == build.IPV4:
        packet = build.ipv4(
            inner, protocol, tos=tos, fragment=draw.choice((0x4000, 0, 0x8000, 0x2000, 0x1FFF)),
            options=draw.choice((b"", b"", b"\1\1\1\0")), total_bytes=draw.choice((None, None, 0, 19, 20, 23, 24)),
        )  # fmt: skip
    elif kind == build.IPV6:
        lengths = (None, None, 0, 3, 4, 7, 8)
        packet = build.ipv6(
            inner, protocol, tos=tos, version=draw.choice((6, 6, 6, 4)), payload_bytes=draw.choice(lengths)
        )
    else:
        packet = build.ipv4(inner, protocol, tos=tos)  # behind a tag; behind another type just bytes
    return build.ethernet(packet, kind, **address) + bytes(draw.choice((0, 0, 6, 60)))


def queue_cells(pipeline: Pipeline) -> Iterator[tuple[int, int]]:
    """Register cells that are not 0, as the twins would have them."""
    yield from sorted((port * 8 + number, n) for (port, number), n in pipeline.queues.items() if n)


def test_program_and_twins_are_the_same_switch() -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        program = run(seed, damaged_ratio=0.05)
        for (_, _, level, decision), packets in v1model.decisions(program).items():
            met[decision.name] += packets * (level != FOREIGN_LEVEL)
        for (_, arrival), packets in v1model.arrivals(program).items():
            met[arrival.name] += packets
    # Not drawn: groups and ports that are not there.
    assert set(met) == {word.name for word in (*Decision, *Arrival)} - {"NO_WAY"}, met
    assert min(met.values()) > 20, met


def test_damaged_frames_make_no_difference() -> None:
    met: Counter[str] = Counter()
    for seed in range(1000, 1000 + SEEDS // 2):
        for (_, arrival), packets in v1model.arrivals(run(seed, damaged_ratio=1.0)).items():
            met[arrival.name] += packets
    assert min(met["MALFORMED"], met["FORWARDED"]) > 300, met


def run(seed: int, damaged_ratio: float) -> Program:
    """One switch and its frames; the program as it then is."""
    draw = random.Random(seed)
    policy, target = random_policy(draw), random_target(draw)
    target.validate("switch")
    program = v1model.load()
    v1model.install(program, policy, target)
    pipeline = Pipeline(policy, target)
    waiting: list[tuple[Queued, Copy]] = []
    for index in range(FRAMES):
        case = f"seed {seed}, frame {index}"
        frame = random_frame(draw, policy, damaged_ratio)
        port = draw.choice([*PORTS.values()])
        words = Words((draw.getrandbits(32), draw.getrandbits(32)), draw.getrandbits(16))
        program.random = Drawn(words)
        queued = sorted(program.ingress(frame, port), key=lambda each: each.port)
        copies = pipeline.arrive(frame, port, words)
        assert [(each.port, each.priority) for each in queued] == [
            (c.port, c.traffic_class) for c in copies
        ], case
        waiting += zip(queued, copies, strict=True)
        # Some leave, in any order: the program relies on none.
        for _ in range(draw.choice((0, 0, 0, 1)) if len(waiting) < 100 else len(waiting)):
            if waiting:
                left, copy = waiting.pop(draw.randrange(len(waiting)))
                pipeline.leave(copy)
                assert program.egress(left) == (copy.port, copy.frame), case
        cells = enumerate(program.register("queue_bytes"))
        assert [(i, n) for i, n in cells if n] == [*queue_cells(pipeline)], case
        assert program.register("shared_used")[0] == sum(pipeline.queues.values()), case
        ports = program.register("port_bytes")
        assert {n: ports[n] for n in PORTS.values()} == {n: pipeline.waiting(n) for n in PORTS.values()}, case
    for left, _ in waiting:
        program.egress(left)
    assert not any(program.register("queue_bytes"))
    assert program.register("shared_used") == [0]
    assert sum(v1model.arrivals(program).values()) == FRAMES
    return program
