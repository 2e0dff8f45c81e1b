"""The interpreter's switch: copies, clones and packets that come again as simple_switch has them; time and queues.

Where the traffic manager is better than BMv2's (one link per port), figures are those of the hardware.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.bmv2 import PortRate, Program, Switch
from tests.support.bmv2.tiny import action, assign, field, header, number, operation, program, step, table
from tests.support.bmv2.v1model import Replica

FRAME = bytes.fromhex("08 0020 deadbeef") + b"payload"
GROUP = field("standard_metadata", "mcast_grp")
PRIORITY = field("standard_metadata", "priority")
KIND = field("h", "kind")
INSTANCE_TYPE = field("standard_metadata", "instance_type")


def test_copies_of_a_group_are_packets_of_their_own() -> None:
    egress = [
        assign(KIND, field("standard_metadata", "egress_port")),
        assign(field("h", "length"), field("standard_metadata", "egress_rid")),
        assign(field("h", "word"), INSTANCE_TYPE),
    ]
    one = Program(program([assign(GROUP, number(7))], egress=egress))
    assert one.process(FRAME, 0) == []  # there is no such group yet
    one.set_group(7, [2, Replica(3, 9), Replica(3, 1)])
    sent = [(p, d[:7]) for p, d in one.process(FRAME, 0)]
    # 5: a copy of replication (simple_switch.h)
    assert sent == [
        (2, bytes.fromhex("02 0000 00000005")),
        (3, bytes.fromhex("03 0009 00000005")),
        (3, bytes.fromhex("03 0001 00000005")),
    ]


def test_a_copy_is_not_cut() -> None:
    # As BMv2: truncation at ingress is the original's alone, which a group throws away.
    one = Program(program([assign(GROUP, number(1)), step("truncate", number(3))]))
    one.set_group(1, [2])
    assert one.process(FRAME, 0) == [(2, FRAME)]


CARRIED: dict[str, Any] = {
    "field_lists": [
        {"id": 1, "name": "l", "elements": [{"type": "field", "value": ["meta", "byte"]}]},
    ]
}


def test_ingress_clone_is_the_packet_as_it_came() -> None:
    steps = [
        assign(field("meta", "byte"), number(0x55)),
        assign(field("meta", "wide"), number(0x66)),
        assign(KIND, number(1)),
        step("clone_ingress_pkt_to_egress", number(5), number(1)),
    ]
    egress = [
        assign(field("h", "length"), INSTANCE_TYPE),
        assign(field("h", "word"), operation("+", field("meta", "byte"), field("meta", "wide"))),
    ]
    one = Program(program(steps, egress=egress, **CARRIED))
    assert [port for port, _ in one.process(FRAME, 0)] == [1]  # a session that is not set up
    one.set_mirror(5, 4)
    assert one.process(FRAME, 0) == [
        (4, bytes.fromhex("08 0001 00000055") + b"payload"),
        (1, bytes.fromhex("01 0000 000000bb") + b"payload"),
    ]


def test_egress_clone_is_the_packet_as_it_leaves() -> None:
    original = operation("==", INSTANCE_TYPE, number(0))
    egress = [
        assign(KIND, operation("+", KIND, number(1))),
        step("_jump_if_zero", operation("b2d", None, original), number(3)),
        step("clone_egress_pkt_to_egress", number(5), number(1)),
    ]
    one = Program(program(egress=egress, **CARRIED))
    one.set_mirror(5, 4)
    assert [(port, data[0]) for port, data in one.process(FRAME, 0)] == [(1, 9), (4, 10)]


def test_resubmitted_packet_starts_anew_with_what_its_list_keeps() -> None:
    byte = field("meta", "byte")
    again = [
        assign(KIND, number(1)),
        assign(field("h", "length"), byte),
        step("_jump_if_zero", operation("b2d", None, operation("<", byte, number(3))), number(5)),
        assign(byte, operation("+", byte, number(1))),
        step("resubmit", number(1)),
    ]
    one = Program(program(again, **CARRIED))
    assert one.process(FRAME, 0) == [(1, bytes.fromhex("01 0003 deadbeef") + b"payload")]
    for_ever = Program(program([step("resubmit", number(1))], **CARRIED))
    with pytest.raises(RuntimeError, match="resubmitted 64 times"):
        for_ever.process(FRAME, 0)


def test_recirculated_packet_comes_in_as_it_left() -> None:
    egress = [
        assign(KIND, operation("+", KIND, number(1))),
        step("_jump_if_zero", operation("b2d", None, operation("<", KIND, number(11))), number(3)),
        step("recirculate", number(1)),
    ]
    one = Program(program(egress=egress, **CARRIED))
    assert one.process(FRAME, 0) == [(1, bytes([11]) + FRAME[1:])]


def test_egress_drop() -> None:
    one = Program(program(egress=[step("mark_to_drop", header("standard_metadata"))]))
    assert one.process(FRAME, 0) == []


# ---- time ----

PRIORITY_BY_KIND = [assign(PRIORITY, KIND)]


def frame(kind: int, size: int = 100) -> bytes:
    return bytes([kind]) + bytes(size - 1)


def test_a_link_takes_its_time() -> None:
    switch = Switch(Program(program()), {1: PortRate(bytes_per_s=1e6, overhead_bytes=24)})
    for time_ns in (0, 0, 500_000):
        switch.send(time_ns, FRAME, 0)
    switch.run()
    took = (len(FRAME) + 24) * 1000
    assert [(s.time_ns, s.port, s.handle) for s in switch.sent] == [
        (took, 1, 1),
        (2 * took, 1, 2),
        (500_000 + took, 1, 3),
    ]
    with pytest.raises(ValueError, match="past"):
        switch.send(0, FRAME, 0)


def test_the_highest_queue_is_served_first_and_nothing_is_overtaken_in_a_queue() -> None:
    switch = Switch(Program(program(PRIORITY_BY_KIND)), {1: PortRate(packets_per_s=1000)})
    kinds = [0, 3, 7, 3, 0, 7]
    for kind in kinds:
        switch.send(0, frame(kind), 0)
    switch.run()
    # The first found the link free.
    assert [(s.priority, s.handle) for s in switch.sent] == [(0, 1), (7, 3), (7, 6), (3, 2), (3, 4), (0, 5)]
    assert [s.time_ns for s in switch.sent] == [1_000_000 * (i + 1) for i in range(6)]


def test_strict_priority_under_overload() -> None:
    # p4.md's case: 500 packets/s of link, 600 of class 1 and 400 of class 6 offered. BMv2 gives each 500.
    switch = Switch(Program(program(PRIORITY_BY_KIND)), {1: PortRate(packets_per_s=500)}, depth_packets=64)
    seconds = 4
    offered = sorted(
        [(i * 10**9 // 600, 1) for i in range(600 * seconds)]
        + [(i * 10**9 // 400, 6) for i in range(400 * seconds)]
    )
    for time_ns, kind in offered:
        switch.send(time_ns, frame(kind), 0)
    switch.run(seconds * 10**9)
    sent = [s.priority for s in switch.sent if s.time_ns <= seconds * 10**9]
    assert sent.count(6) >= 400 * seconds - 2
    assert abs(len(sent) - 500 * seconds) <= 1
    assert {queued.priority for queued in switch.overflowed} == {1}


def test_depth_does_not_count_the_packet_on_the_wire() -> None:
    egress = [
        assign(KIND, field("standard_metadata", "enq_qdepth")),
        assign(field("h", "length"), field("standard_metadata", "deq_qdepth")),
        assign(field("h", "word"), field("standard_metadata", "deq_timedelta")),
    ]
    switch = Switch(Program(program(egress=egress)), {1: PortRate(packets_per_s=1000)})
    for _ in range(4):
        switch.send(0, frame(0), 0)
    assert switch.depth_packets(1, 0) == 3
    switch.run()
    seen = [
        (s.data[0], int.from_bytes(s.data[1:3], "big"), int.from_bytes(s.data[3:7], "big"))
        for s in switch.sent
    ]
    assert seen == [(0, 0, 0), (0, 2, 1000), (1, 1, 2000), (2, 0, 3000)]


def test_what_no_queue_takes_is_told() -> None:
    switch = Switch(Program(program(PRIORITY_BY_KIND)), {2: PortRate()}, queues=8)
    switch.send(0, frame(0), 0)
    assert [(q.port, q.priority) for q in switch.overflowed] == [(1, 0)]
    few = Switch(Program(program(PRIORITY_BY_KIND)), queues=2)
    for kind in (0, 1, 2):
        few.send(0, frame(kind), 0)
    assert [q.priority for q in few.overflowed] == [2]
    assert [s.priority for s in few.sent] == [0, 1]


def test_egress_registers_change_when_transmission_starts() -> None:
    # The pattern of the shipped program: bytes are added at ingress and taken away when the packet leaves the queue.
    cells = {"type": "register_array", "value": "cells"}
    length = field("standard_metadata", "packet_length")
    wide = field("meta", "wide")

    def add(op: str) -> list[dict[str, Any]]:
        return [
            step("register_read", wide, cells, number(0)),
            step("register_write", cells, number(0), operation(op, wide, length)),
        ]

    one = Program(program(add("+"), egress=add("-")))
    switch = Switch(one, {1: PortRate(bytes_per_s=1e6)})
    seen = []
    for i in range(3):
        switch.send(i, frame(0, 100 * (i + 1)), 0)
        seen.append(one.register("cells")[0])
    assert seen == [0, 200, 500]
    switch.run(100_000)
    assert one.register("cells")[0] == 300
    switch.run()
    assert one.register("cells")[0] == 0


def test_same_calls_same_trace() -> None:
    def trace() -> list[tuple[int, int, bytes]]:
        draw = step("modify_field_rng_uniform", KIND, number(0), number(255))
        to = assign(field("standard_metadata", "egress_spec"), operation("&", KIND, number(3)))
        end = action(3, "end", [draw, to])
        one = Program(program(tables=[table("t", [], [end], (3, []))], actions=[end]), seed=11)
        switch = Switch(one, {port: PortRate(packets_per_s=1e5) for port in range(4)})
        for i in range(500):
            switch.send(i * 1000, frame(i % 8), 0)
        switch.run()
        return [(s.time_ns, s.port, s.data) for s in switch.sent]

    first = trace()
    assert first == trace()
    assert len(first) == 500
    assert {port for _, port, _ in first} == {0, 1, 2, 3}
