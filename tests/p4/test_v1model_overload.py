"""The compiled v1model program with queues behind it, overloaded: who is dropped, and that nothing else is lost.

The queues are those of tests/support/bmv2: one strict-priority link per port, in virtual time. BMv2's own are not: it
applies a port's rate to each of its queues.
"""

from __future__ import annotations

from collections import Counter

from dlcp.switch.policy import Policy, Thresholds, TrafficClass
from dlcp.switch.programs import Decision
from tests.support import frame_builder as build
from tests.support import frame_twin, v1model
from tests.support.bmv2 import PortRate, Switch

DESTINATION = int.from_bytes(build.DESTINATION, "big")
PAYLOAD_BYTES = 1000
FRAME_BYTES = 106 + PAYLOAD_BYTES
LINK_BYTES_PER_S = 1_000_000


def switch_under(policy: Policy) -> Switch:
    program = v1model.load()
    v1model.install(program, policy)
    program.insert("bridge", {"dst_mac": DESTINATION}, "to_port", [1])
    return Switch(program, {1: PortRate(bytes_per_s=LINK_BYTES_PER_S)})


def block(traffic_class: int, critical: bool) -> bytes:
    content = build.dlcp(PAYLOAD_BYTES, importance=255 if critical else 100)
    return build.ethernet(build.ipv4(build.udp(content), tos=8 * traffic_class << 2 | critical), build.IPV4)


def offer(switch: Switch, frames: list[bytes], load: float, packets: int) -> Counter[bytes]:
    """Frames in turn, at so many times the link's rate; what came out, by what went in."""
    gap_ns = round(FRAME_BYTES * 10**9 / LINK_BYTES_PER_S / load)
    came = {}
    for index in range(packets):
        frame = frames[index % len(frames)]
        came[switch.send(index * gap_ns, frame, 0)] = frame
    switch.run()
    # A queue that overflowed, or a depth that lost count, would make this a test of something else.
    assert switch.overflowed == []
    for name in ("queue_bytes", "port_bytes", "shared_used"):
        assert not any(switch.program.register(name)), name
    return Counter(came[sent.handle] for sent in switch.sent)


def four_classes() -> tuple[TrafficClass, ...]:
    return tuple(
        TrafficClass(
            n, dscp=(8 * n,), critical=Thresholds(20_000), droppable=(Thresholds(drop_above_bytes=10_000),)
        )
        for n in (3, 4, 5, 6)
    )


def test_two_times_overload_in_four_classes_is_paid_by_the_lower_two() -> None:
    frames = [block(n, critical=False) for n in (6, 5, 4, 3)]
    sent = offer(switch_under(Policy(classes=four_classes(), port_bytes=100_000)), frames, 2.0, 2000)
    delivered = [sent[frame] / 500 for frame in frames]
    assert delivered[:2] == [1, 1]
    # What filled their queues at the start leaves at the end.
    assert max(delivered[2:]) < 0.03, delivered


def test_overload_in_one_class_is_paid_by_droppable_packets_alone() -> None:
    """As much of each; the link takes 1 / 1.3 of it, and all that is lost is droppable."""
    critical, other = block(4, critical=True), block(4, critical=False)
    switch = switch_under(Policy(classes=four_classes(), port_bytes=100_000))
    sent = offer(switch, [critical, other], 1.3, 3000)
    marked = frame_twin.mark(critical, frame_twin.read_frame(critical, frame_twin.Classification()))
    assert sent[critical] == 1500, "delivered, marked or not"
    assert 0.5 < sent[other] / 1500 < 0.56, sent[other]  # 2 / 1.3 - 1 of them
    assert {each.data for each in switch.sent} <= {critical, marked, other}
    decided = v1model.decisions(switch.program)
    assert decided[1, 4, 3, Decision.DROPPED_THRESHOLD] == 1500 - sent[other]


def test_packets_that_wait_too_long_are_trimmed_and_overtake() -> None:
    classes = (
        TrafficClass(4, dscp=(32,), droppable=(Thresholds(trim_above_bytes=10_000),)),
        TrafficClass(7, "headers", dscp=(56,)),
    )
    frame = block(4, critical=False)
    switch = switch_under(Policy(classes=classes, port_bytes=100_000, trimmed_class=7))
    sent = offer(switch, [frame], 1.5, 1500)
    assert sent[frame] == 1500, "each left, whole or cut"
    by = frame_twin.Classification({32: 4, 56: 7}, trimmed_dscp=56)
    cut = frame_twin.trim(frame, frame_twin.read_frame(frame, by), by)
    assert Counter(each.data == cut for each in switch.sent)[True] > 300
    assert {(each.data, each.priority) for each in switch.sent} == {(frame, 4), (cut, 7)}
    handles = [each.handle for each in switch.sent if each.priority == 7]
    assert handles == sorted(handles)
