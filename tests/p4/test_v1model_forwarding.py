"""Where the compiled v1model program sends a frame, case by case, and what it counts; and what it may not do to one."""

from __future__ import annotations

import pytest

from dlcp.switch.policy import Policy, Port, Thresholds, TrafficClass
from dlcp.switch.programs import (
    FOREIGN_LEVEL,
    Arrival,
    Decision,
    PathChoice,
    decisions_index,
)
from dlcp.switch.resolved import NEVER_BYTES
from dlcp.switch.topology import BridgeEntry, Route, SwitchTarget
from tests.support import frame_builder as build
from tests.support import v1model
from tests.support.bmv2 import Program, Words

# Ports 0 and 1 alone, 2 and 3 a group "up", 4 and 5 a group "down".
PORTS = {f"port{n}": n for n in range(6)}
GROUPS = {"up": ("port2", "port3"), "down": ("port4", "port5")}
ROUTER = "02:00:00:00:00:ff"
HOST0, HOST1, ABOVE, BELOW, NOWHERE = (f"02:00:00:00:01:{n:02x}" for n in range(5))
HOP, HOPS = "02:00:00:00:02:00", {"port2": "02:00:00:00:02:02", "port3": "02:00:00:00:02:03"}
BROADCAST = "ff:ff:ff:ff:ff:ff"
TARGET = SwitchTarget(
    "switch",
    "127.0.0.1:9559",
    PORTS,
    salt=1,
    path_groups=GROUPS,
    router_macs=(ROUTER,),
    bridge=(
        BridgeEntry(HOST0, port="port0"),
        BridgeEntry(HOST1, port="port1"),
        BridgeEntry(ABOVE, group="up"),
        BridgeEntry(BELOW, group="down"),
    ),
    routes=(
        Route("10.0.0.0/8", port="port0", next_hop=HOP),
        Route("10.0.1.0/24", group="up", next_hops=HOPS),
        Route("2001:db8::/32", port="port1", next_hop=HOP),
    ),
)
POLICY = Policy(
    classes=(TrafficClass(5, dscp=(10,)), TrafficClass(2, dscp=(20,))),
    path_choice="round_robin",
    foreign_class=1,
)


@pytest.fixture
def program() -> Program:
    program = v1model.load()
    v1model.install(program, POLICY, TARGET)
    return program


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def v4(destination: str, *, dscp: int = 10, address: str = "10.0.1.2", ttl: int = 64) -> bytes:
    ends = bytes([10, 0, 0, 1, *(int(part) for part in address.split("."))])
    packet = build.ipv4(build.udp(b"hello"), tos=dscp << 2, addresses=ends, ttl=ttl)
    return build.ethernet(packet, build.IPV4, mac(destination), mac(HOST0))


def v6(destination: str, *, hop_limit: int = 64) -> bytes:
    packet = build.ipv6(build.udp(b"hello"), tos=10 << 2, hop_limit=hop_limit)
    return build.ethernet(packet, build.IPV6, mac(destination), mac(HOST0))


def routed(frame: bytes, hop: str) -> bytes:
    """With the addresses of the hop; its time to live is for whoever compares to set."""
    return mac(hop) + mac(ROUTER) + frame[12:]


# --- the bridge ------------------------------------------------------------------------------------------------


def test_frame_goes_out_of_the_port_of_its_address_unchanged(program: Program) -> None:
    assert program.process(v4(HOST1), 0) == [(1, v4(HOST1))]
    assert v1model.arrivals(program) == {(0, Arrival.FORWARDED): 1}
    assert v1model.decisions(program) == {(1, 5, 7, Decision.KEPT): 1}


def test_counters_tell_bytes_too(program: Program) -> None:
    program.process(v4(HOST1), 0)
    size = len(v4(HOST1))
    assert program.counter("arrivals")[Arrival.FORWARDED].bytes == size
    assert program.counter("decisions")[decisions_index(1, 5, 7, Decision.KEPT)].bytes == size


def test_frame_to_its_own_port_is_filtered(program: Program) -> None:
    assert program.process(v4(HOST1), 1) == []
    assert v1model.arrivals(program) == {(1, Arrival.FILTERED): 1}


def test_frame_to_a_group_takes_its_ports_in_turn(program: Program) -> None:
    assert [program.process(v4(ABOVE), 0)[0][0] for _ in range(4)] == [2, 3, 2, 3]
    # From one group into another is the way through a spine.
    assert [program.process(v4(ABOVE), 4)[0][0] for _ in range(2)] == [2, 3]


def test_frame_that_came_by_a_port_of_the_group_is_filtered(program: Program) -> None:
    assert program.process(v4(ABOVE), 2) == []
    assert v1model.arrivals(program) == {(2, Arrival.FILTERED): 1}
    assert program.register("turn")[1] == 0


@pytest.mark.parametrize(
    ("port", "copies"), [(0, [1, 2, 4]), (1, [0, 2, 4]), (2, [0, 1, 4]), (3, [0, 1, 4]), (5, [0, 1, 2])]
)
@pytest.mark.parametrize("destination", [NOWHERE, BROADCAST])
def test_unknown_and_broadcast_frames_are_flooded_with_split_horizon(
    program: Program, port: int, copies: list[int], destination: str
) -> None:
    assert program.process(v4(destination), port) == [(copy, v4(destination)) for copy in copies]
    assert v1model.arrivals(program) == {(port, Arrival.FLOODED): 1}


def test_flooded_copies_are_in_their_class_and_not_counted_as_waiting(program: Program) -> None:
    queued = program.ingress(v4(BROADCAST, dscp=20), 0)
    assert [each.priority for each in queued] == [2, 2, 2]
    assert not any(program.register("queue_bytes"))
    before = (program.register("port_bytes")[1], program.register("shared_used")[0])
    program.register("queue_bytes")[1 * 8 + 2] = 1000
    for each in queued:
        program.egress(each)
    assert program.register("queue_bytes")[1 * 8 + 2] == 1000
    assert (program.register("port_bytes")[1], program.register("shared_used")[0]) == before
    assert v1model.decisions(program) == {}


def test_frame_without_a_flood_group_is_dropped(program: Program) -> None:
    program.delete("flood", {"ingress_port": 0})
    assert program.process(v4(NOWHERE), 0) == []
    assert v1model.arrivals(program) == {(0, Arrival.NO_WAY): 1}


def test_port_that_the_registers_do_not_have_is_no_way(program: Program) -> None:
    program.insert("bridge", {"dst_mac": 0x020000009999}, "to_port", [64])
    assert program.process(v4("02:00:00:00:99:99"), 0) == []
    assert v1model.arrivals(program) == {(0, Arrival.NO_WAY): 1}


@pytest.mark.parametrize("empty", ["group", "size", "member"])
def test_group_without_ways_is_no_way(program: Program, empty: str) -> None:
    if empty == "member":
        program.delete("member", {"group": 1, "index": 0})
    else:
        program.delete("path_group", {"group": 1})
        if empty == "size":
            program.insert("path_group", {"group": 1}, "choose", [0, PathChoice.RANDOM, 0])
    assert program.process(v4(ABOVE), 0) == []
    assert v1model.arrivals(program) == {(0, Arrival.NO_WAY): 1}


def test_malformed_frame_is_dropped_and_counted_whatever_its_address(program: Program) -> None:
    for destination in (HOST1, ROUTER, BROADCAST):
        frame = bytearray(v4(destination))
        frame[24] ^= 1
        assert program.process(bytes(frame), 0) == []
    assert v1model.arrivals(program) == {(0, Arrival.MALFORMED): 3}
    assert v1model.decisions(program) == {}


# --- the router ------------------------------------------------------------------------------------------------


def test_routed_ipv4_packet_has_new_addresses_and_a_hop_less(program: Program) -> None:
    ((port, out),) = program.process(v4(ROUTER, address="10.9.9.9", ttl=2), 3)
    assert (port, out) == (0, routed(v4(ROUTER, address="10.9.9.9", ttl=1), HOP))


def test_routed_ipv6_packet_has_new_addresses_and_a_hop_less(program: Program) -> None:
    assert program.process(v6(ROUTER), 0) == [(1, routed(v6(ROUTER, hop_limit=63), HOP))]


def test_longest_prefix_wins_and_leads_to_a_group(program: Program) -> None:
    frames = [program.process(v4(ROUTER), 0)[0] for _ in range(3)]
    expected = [(port, routed(v4(ROUTER, ttl=63), HOPS[f"port{port}"])) for port in (2, 3, 2)]
    assert frames == expected


def test_routed_packet_may_leave_where_it_came_from(program: Program) -> None:
    """Split horizon is the bridge's; a router on a stick is none of its business."""
    assert program.process(v4(ROUTER, address="10.9.9.9"), 0)[0][0] == 0


@pytest.mark.parametrize("ttl", [0, 1])
def test_packet_at_the_end_of_its_life_is_not_routed(program: Program, ttl: int) -> None:
    assert program.process(v4(ROUTER, ttl=ttl), 0) == []
    assert program.process(v6(ROUTER, hop_limit=ttl), 0) == []
    assert v1model.arrivals(program) == {(0, Arrival.TTL_EXPIRED): 2}
    assert program.process(v4(HOST1, ttl=ttl), 0) == [(1, v4(HOST1, ttl=ttl))], (
        "the bridge does not look at it"
    )


def test_what_has_no_route_is_dropped_and_counted(program: Program) -> None:
    assert program.process(v4(ROUTER, address="11.0.0.1"), 0) == []
    assert program.process(build.ethernet(bytes(46), build.ARP, mac(ROUTER)), 0) == []
    assert v1model.arrivals(program) == {(0, Arrival.NO_ROUTE): 2}


def test_adaptive_group_takes_the_shorter_way_with_its_next_hop() -> None:
    program = v1model.load()
    policy = Policy(classes=POLICY.classes, path_choice="adaptive")
    v1model.install(program, policy, TARGET)
    for short, other in ((2, 3), (3, 2)):
        program.register("port_bytes")[short] = 100
        program.register("port_bytes")[other] = 101
        for words in ([0, 0xFFFFFFFF], [0xFFFFFFFF, 0]):
            program.random = Words(words)
            expected = (short, routed(v4(ROUTER, ttl=63), HOPS[f"port{short}"]))
            assert program.process(v4(ROUTER), 0) == [expected]


def test_adaptive_way_has_both_addresses_of_its_port() -> None:
    # The topology gives a router one address; another control plane may give each port its own.
    program = v1model.load()
    number = [int.from_bytes(mac(text), "big") for text in (ROUTER, "02:00:00:00:03:02", "02:00:00:00:03:03")]
    program.insert("router_mac", {"dst_mac": number[0]}, "to_router")
    program.insert("route_ipv4", {"dst": (0x0A000000, 8)}, "next_hop_group", [9])
    program.insert("path_group", {"group": 9}, "choose", [2, PathChoice.ADAPTIVE, 0])
    for index in (0, 1):
        for table in ("member", "member_other"):
            ends = [number[index + 1] + 0x100, number[index + 1]]
            program.insert(table, {"group": 9, "index": index}, "routed_member", [2 + index, *ends])
    for short, other in ((2, 3), (3, 2)):
        program.register("port_bytes")[short] = 100
        program.register("port_bytes")[other] = 101
        for words in ([0, 0xFFFFFFFF], [0xFFFFFFFF, 0]):
            program.random = Words(words)
            ((port, frame),) = program.process(v4(ROUTER), 0)
            assert (port, frame[:12]) == (
                short,
                mac(f"02:00:00:00:04:0{short}") + mac(f"02:00:00:00:03:0{short}"),
            )


# --- foreign traffic ----------------------------------------------------------------------------------------------


def test_foreign_traffic_joins_the_queue_of_its_class(program: Program) -> None:
    frames = [
        build.ethernet(bytes(46), build.ARP, mac(HOST1)),
        v4(HOST1, dscp=11),
        # IPv4 with options is not read, so its wrong checksum is nobody's business here.
        build.ethernet(build.ipv4(b"", options=b"\1\1\1\1", check=b"\0\1"), build.IPV4, mac(HOST1)),
    ]
    for frame in frames:
        (queued,) = program.ingress(frame, 0)
        assert (queued.port, queued.priority) == (1, 1)
        assert program.egress(queued) == (1, frame)
    assert v1model.decisions(program) == {(1, 1, FOREIGN_LEVEL, Decision.KEPT): 3}


# --- thresholds of a port, and depths ----------------------------------------------------------------------------


def test_thresholds_of_one_port_replace_those_of_all() -> None:
    everywhere = TrafficClass(5, dscp=(10,), droppable=(Thresholds(drop_above_bytes=100),))
    here = TrafficClass(5, droppable=(Thresholds(),))
    ports = tuple(Port(name, 10**9, (here,) if name == "port1" else ()) for name in PORTS)
    program = v1model.load()
    v1model.install(program, Policy(classes=(everywhere,), ports=ports), TARGET)
    for port in (0, 1):
        program.register("queue_bytes")[port * 8 + 5] = 101
    assert program.process(v4(HOST0), 2) == []
    assert program.process(v4(HOST1), 2) == [(1, v4(HOST1))]


def test_shared_buffer_made_smaller_than_what_waits_is_full(program: Program) -> None:
    # A live change of policy: what is free is 0 until enough has left, not 4 GB.
    program.register("shared_used")[0] = 5_000
    program.set_default("buffer", "set_buffer", [NEVER_BYTES, 4_000, 0, 0])
    assert program.process(v4(HOST1), 0) == []
    assert v1model.decisions(program) == {(1, 5, 7, Decision.DROPPED_BUFFER): 1}


def test_depths_count_what_waits_and_never_wrap(program: Program) -> None:
    """Registers may be set to anything: a reset with packets in the queues must not leave a depth without end."""
    size = len(v4(HOST1))
    first, second = program.ingress(v4(HOST1), 0) + program.ingress(v4(HOST1), 0)
    assert program.register("queue_bytes")[1 * 8 + 5] == 2 * size
    assert (program.register("port_bytes")[1], program.register("shared_used")[0]) == (2 * size, 2 * size)
    program.egress(first)
    assert program.register("queue_bytes")[1 * 8 + 5] == size
    for name in ("queue_bytes", "port_bytes", "shared_used"):
        cells = program.register(name)
        cells[:] = [0] * len(cells)
    program.egress(second)
    assert not any(program.register("queue_bytes"))
    cells = program.register("queue_bytes")
    cells[1 * 8 + 5] = NEVER_BYTES
    program.ingress(v4(HOST1), 0)
    assert cells[1 * 8 + 5] == NEVER_BYTES
