"""The software switch live, in network namespaces: what the policy says is what passes.

Rates are low, so that a busy machine keeps up; ratios and orders are asserted, never times.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dlcp.switch.policy import Policy, Thresholds, TrafficClass
from tests.support import frame_builder
from tests.support.frame_twin import Classification, ones_complement_sum, read_frame
from tests.support.namespaces import missing
from tests.support.switched_hosts import (
    ADDRESSES,
    FRAME_BYTES,
    PATIENCE_S,
    Bed,
    Collector,
    RawSocket,
    bed,
    mac,
    number_of,
    packet,
    read_pcap,
)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif((why := missing()) is not None, reason=why or ""),
]

RATE_BPS = 50_000_000


def line_frames(seconds: float) -> float:
    """How many frames a line takes in so long."""
    return seconds * RATE_BPS / (8 * (FRAME_BYTES + 24))


def offer(policy: Policy, rate: float, frames: list[bytes]) -> tuple[list[bytes], dict[str, Any], float]:
    """Frames from host 0 to host 1 over a line of RATE_BPS, at `rate` times its rate.

    What arrived, the switch's account, and how long it was sent. On a busy machine a sender may lose its pace: it has
    three tries, and then there is nothing to be said of an overload.
    """
    for _ in range(3):
        with bed(2) as at, RawSocket(at.hosts[0]) as sender, RawSocket(at.hosts[1]) as receiver:
            options = {"rate_bps": RATE_BPS, "addresses": ADDRESSES}
            with at.start(policy, ["eth0", "eth1"], **options) as process:
                with Collector([receiver]) as collector:
                    seconds = sender.send_at(rate * RATE_BPS, frames)
                    (received,) = collector.stop()
                if line_frames(seconds) < 1.15 * len(frames) / rate:
                    return received, process.stop(), seconds
    pytest.skip("this machine is too busy to send at a pace")


def test_twice_the_rate_in_four_classes_delivers_two_of_them() -> None:
    limit_bytes = 64_000
    limit = Thresholds(drop_above_bytes=limit_bytes)
    policy = Policy(
        classes=tuple(TrafficClass(n, dscp=(8 * n,), critical=limit, droppable=(limit,)) for n in range(1, 5))
    )
    total = 6_000
    received, status, seconds = offer(policy, 2, [packet(i, dscp=8 * (1 + i % 4)) for i in range(total)])
    counts = Counter(1 + number_of(frame) % 4 for frame in received)
    each = total / 4
    delivered = [counts[c] / each for c in (4, 3, 2, 1)]
    print(f"delivered, highest class first: {', '.join(f'{share:.3f}' for share in delivered)}")
    assert delivered[0] == 1, status
    assert delivered[1] > 0.98, status
    # What fills the two lower queues, and what the upper two leave of the line.
    fill = 2 * limit_bytes / FRAME_BYTES / each
    left = max(0.0, line_frames(seconds) - 2 * each) / each
    assert delivered[2] + delivered[3] < fill + left + 0.03


def test_one_class_at_13_tenths_loses_only_what_is_droppable() -> None:
    levels = tuple(Thresholds(drop_above_bytes=20_000 + 5_000 * i) for i in range(8))
    critical = Thresholds(mark_from_bytes=20_000, drop_above_bytes=400_000)
    policy = Policy(classes=(TrafficClass(3, dscp=(24,), critical=critical, droppable=levels),))
    total = 6_000

    def is_critical(i: int) -> bool:
        return i % 5 == 0

    def frame(i: int) -> bytes:
        if is_critical(i):
            return packet(i, dscp=24, ecn=2, importance=255)
        return packet(i, dscp=24, importance=i * 37 % 255)

    received, status, seconds = offer(policy, 1.3, [frame(i) for i in range(total)])
    critical_total = sum(is_critical(i) for i in range(total))
    arrived = [number_of(one) for one in received]
    critical_share = sum(map(is_critical, arrived)) / critical_total
    droppable_share = sum(not is_critical(i) for i in arrived) / (total - critical_total)
    marked = sum(one[15] & 3 == 3 for one in received) / critical_total
    print(f"critical {critical_share:.4f}, droppable {droppable_share:.3f}, marked {marked:.2f}")
    assert critical_share >= 0.999, status
    expected = (line_frames(seconds) - critical_total) / (total - critical_total)
    assert droppable_share == pytest.approx(expected, abs=0.06)
    assert marked > 0.3
    lowest = sum(not is_critical(i) and i * 37 % 255 < 32 for i in arrived)
    highest = sum(not is_critical(i) and i * 37 % 255 >= 224 for i in arrived)
    assert lowest < 0.6 * highest
    assert arrived == sorted(arrived), "one class of one port keeps its order"


@pytest.mark.parametrize("ipv6", [False, True])
def test_trimmed_packets_overtake_and_are_sound(ipv6: bool) -> None:
    trim = Thresholds(trim_above_bytes=15_000)
    policy = Policy(
        classes=(
            TrafficClass(2, dscp=(16,), critical=trim, droppable=(trim,)),
            TrafficClass(7, dscp=(56,)),
        )
    )
    total = 1_500
    received, status, _ = offer(policy, 2, [packet(i, dscp=16, ipv6=ipv6) for i in range(total)])
    assert len(received) == total, status
    cut = [frame for frame in received if len(frame) < FRAME_BYTES]
    assert 0.1 * total < len(cut) < 0.7 * total
    head = 54 if ipv6 else 34
    for frame in cut:
        read = read_frame(frame, Classification({16: 2, 56: 7}))
        assert (read.dscp, read.packet.traffic_class, read.packet.trimmable) == (56, 7, False)
        assert len(frame) == head + 8 + 64
        if ipv6:
            length = struct.pack(">IxxxB", 72, 17)
            assert ones_complement_sum(frame[22:54] + length + frame[54:]) == 0xFFFF
        else:
            assert ones_complement_sum(frame[14:34]) == 0xFFFF


def test_a_group_is_shared_evenly_and_a_path_keeps_its_order() -> None:
    tolerances = {"random": 0.05, "round_robin": 0.001, "path_id": 0.15}
    policies = {
        choice: Policy(
            classes=(TrafficClass(1, dscp=(8,)),),
            path_choice=choice,
            path_groups={"up": ("eth1w0", "eth1w1", "eth1w2")},
        )
        for choice in tolerances
    }
    total, paths = 2_400, 60
    frames = [packet(i, dscp=8, path=i % paths) for i in range(total)]
    ports = ["eth0", "eth1w0", "eth1w1", "eth1w2"]
    addresses = {"02:00:00:00:00:02": "up"}
    with bed(2, ways=(1, 3)) as at, contextlib.ExitStack() as stack:
        sender = stack.enter_context(RawSocket(at.hosts[0]))
        receivers = [stack.enter_context(RawSocket(at.hosts[1], f"eth{way}")) for way in range(3)]
        process = stack.enter_context(at.start(policies["random"], ports, addresses=addresses))

        def chosen() -> list[int]:
            members = process.control.status()["groups"]["up"]["members"]
            return [members[f"eth1w{way}"] for way in range(3)]

        for choice, policy in policies.items():
            process.control.set_policy(policy)
            before = chosen()
            with Collector(receivers) as collector:
                sender.send_at(2 * RATE_BPS, frames)
                received = collector.stop()
            counts = [len(some) for some in received]
            print(f"{choice}: {counts}")
            assert sum(counts) == total
            assert [now - then for now, then in zip(chosen(), before, strict=True)] == counts
            for some in received:
                assert len(some) / total == pytest.approx(1 / 3, abs=tolerances[choice])
                numbers = [number_of(frame) for frame in some]
                assert numbers == sorted(numbers)
            if choice == "path_id":
                ways = [{number_of(frame) % paths for frame in some} for some in received]
                assert sum(map(len, ways)) == paths, "a path has one way"


def test_live_policy_change_loses_nothing_foreign() -> None:
    limit = Thresholds(drop_above_bytes=20_000)
    policies = [
        Policy("tight", classes=(TrafficClass(1, dscp=(8,), droppable=(limit,)),), foreign_class=6),
        Policy("other", classes=(TrafficClass(3, dscp=(8, 10), droppable=(limit,)),), foreign_class=5),
    ]
    total = 4_000
    # Every other frame is foreign, and the rest alone more than the line takes.
    frames = [packet(i, dscp=63 if i % 2 == 0 else 8) for i in range(total)]
    with bed(2) as at, RawSocket(at.hosts[0]) as sender, RawSocket(at.hosts[1]) as receiver:
        first = policies[0]
        with at.start(first, ["eth0", "eth1"], rate_bps=RATE_BPS, addresses=ADDRESSES) as process:
            with Collector([receiver]) as collector:
                for part, policy in zip(range(0, total, 200), itertools.cycle(policies), strict=False):
                    process.control.set_policy(policy)
                    sender.send_at(1.6 * RATE_BPS, frames[part : part + 200])
                (received,) = collector.stop()
            status = process.stop()
    arrived = [number_of(frame) for frame in received]
    foreign = [number for number in arrived if number % 2 == 0]
    # A class change lets later ones overtake, but none is lost.
    assert sorted(foreign) == list(range(0, total, 2)), status["ports"]
    # Foreign frames take 0.8 of the line at best, and as much again is offered for the rest of it.
    assert 0.2 < 1 - (len(arrived) - len(foreign)) / (total / 2) < 0.95
    used = [row["sent"] for row in status["ports"]["eth1"]["classes"]]
    assert used[6] > 0
    assert used[5] > 0


def test_kernel_sockets_pass_with_checksums_left_to_the_interface() -> None:
    """UDP and TCP over IPv4 and IPv6, with ARP and neighbour discovery; the kernel leaves checksums open."""
    policy = Policy(classes=(TrafficClass(1, dscp=(0,)),))
    with bed(2) as at:
        for number, host in enumerate(at.hosts, 1):
            host.ip(f"addr add 10.7.0.{number}/24 dev eth0")
            host.ip(f"addr add fd07::{number}/64 dev eth0 nodad")
            offloads = "gso off tso off gro off tx-udp-segmentation off tx on"
            subprocess.run(
                host.command("ethtool", "-K", "eth0", *offloads.split()), check=True, capture_output=True
            )
        with at.start(policy, ["eth0", "eth1"], rate_bps=RATE_BPS) as process:
            for family, address in (
                (socket.AF_INET, "10.7.0.2"),
                (socket.AF_INET6, "fd07::2"),
            ):
                _check_udp(at, family, address)
                _check_tcp(at, family, address)
            status = process.stop()
    for port in ("eth0", "eth1"):
        assert status["ports"][port]["drops"] == dict.fromkeys(status["ports"][port]["drops"], 0)


def _check_udp(at: Bed, family: int, address: str) -> None:
    here = at.hosts[0].run(lambda: socket.socket(family, socket.SOCK_DGRAM))
    there = at.hosts[1].run(lambda: socket.socket(family, socket.SOCK_DGRAM))
    with here, there:
        there.bind((address, 5001))
        there.settimeout(PATIENCE_S)
        for i in range(100):
            here.sendto(bytes([i]) * (1 + 13 * i), (address, 5001))
            assert there.recv(2048) == bytes([i]) * (1 + 13 * i)


def _check_tcp(at: Bed, family: int, address: str) -> None:
    data = bytes(range(256)) * 1200
    listener = at.hosts[1].run(lambda: socket.socket(family, socket.SOCK_STREAM))
    here = at.hosts[0].run(lambda: socket.socket(family, socket.SOCK_STREAM))
    with listener, here:
        listener.bind((address, 5002))
        listener.listen()
        here.settimeout(PATIENCE_S)
        here.connect((address, 5002))
        there, _ = listener.accept()
        with there:
            there.settimeout(PATIENCE_S)
            here.sendall(data[: len(data) // 2])
            got = b""
            while len(got) < len(data) // 2:
                got += there.recv(1 << 16)
            here.sendall(data[len(data) // 2 :])
            while len(got) < len(data):
                got += there.recv(1 << 16)
        assert got == data


def test_what_is_not_read_passes_unchanged(tmp_path: Path) -> None:
    """Tags that the kernel keeps beside the frame, options, ARP, frames of no type."""
    inner = packet(1)[12:]
    head = mac(2) + mac(1)
    frames = [
        head + bytes.fromhex("8100 6007") + inner,
        head + bytes.fromhex("88a8 0009 8100 0007") + inner,
        head + struct.pack(">H", 0x0806) + bytes(range(28)),
        head + frame_builder.ethernet(frame_builder.ipv4(b"x" * 30, options=bytes(4)), 0x0800)[12:],
        head + struct.pack(">H", 60) + b"\x42\x42\x03" + bytes(57),
        head + bytes.fromhex("8100 0000") + inner,
    ]
    capture = tmp_path / "eth1.pcap"
    with bed(2) as at, RawSocket(at.hosts[0]) as sender:
        with at.start(Policy(foreign_class=4), ["eth0", "eth1"], addresses=ADDRESSES) as process:
            process.control.capture("eth1", capture)
            sender.send_at(RATE_BPS, frames)
            deadline = time.monotonic() + PATIENCE_S
            while process.control.status()["ports"]["eth1"]["classes"][4]["sent"] < len(frames):
                assert time.monotonic() < deadline, process.control.status()
            process.control.capture("eth1", None)
        assert read_pcap(capture) == frames


def test_super_packets_are_dropped_and_named(tmp_path: Path) -> None:
    policy = Policy(classes=(TrafficClass(1, dscp=(0,)),))
    with bed(2) as at:
        for number, host in enumerate(at.hosts, 1):
            host.ip(f"addr add 10.7.0.{number}/24 dev eth0")
        with at.start(policy, ["eth0", "eth1"]) as process:
            here = at.hosts[0].run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with here:
                here.setsockopt(socket.SOL_UDP, 103, 1000)  # UDP_SEGMENT
                here.sendto(bytes(8000), ("10.7.0.2", 5001))
                deadline = time.monotonic() + PATIENCE_S
                while not (found := process.control.status()["ports"]["eth0"]["drops"]["oversize"]):
                    assert time.monotonic() < deadline
            assert found == 1
            while "ethtool -K INTERFACE gso off" not in process.log:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert process.log.count("super-packets") == 1
