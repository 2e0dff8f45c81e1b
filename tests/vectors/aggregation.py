"""What the generator writes into `aggregation.txt`: frames through one aggregating switch, in order.

Two jobs: 7 of three workers at ports 1 to 3 with its hub at port 4, in slots 0 to 3 of its own; 9 of two workers at
ports 5 and 6 with its hub at 7, in slots 4 to 7. The switch keeps its state from record to record.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

import numpy as np

from dlcp.switch.aggregation.entries import (
    HUB,
    LANES,
    JobRequest,
    bridge_entries,
    flood_entries,
    job_entries,
    place_jobs,
)
from dlcp.switch.entries import Entry
from tests.support.aggregation_packet import (
    NO_FLAGS,
    Flag,
    Kind,
    Operation,
    Packet,
    participant,
    udp_frame,
)
from tests.support.aggregation_twin import AggregatingSwitch, Frame
from tests.support.vectors import Record

REQUESTS = (
    JobRequest(7, (participant(1), participant(2), participant(3)), participant(4), slots=4, generation=1),
    JobRequest(9, (participant(5), participant(6)), participant(7), slots=4, generation=300),
)
MOST, LEAST = 2**31 - 1, -(2**31)


def entries() -> list[Entry]:
    """What the switch is told."""
    told = bridge_entries({participant(port).mac_number: port for port in range(1, 8)})
    told += flood_entries(range(1, 8), first_group=10)
    for placement in place_jobs(REQUESTS):
        told += job_entries(placement)
    return told


def lanes(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """These values, repeated over the lanes."""
    return np.array([values[lane % len(values)] for lane in range(LANES)], np.int32)


class _Script:
    """Sends frames and writes down what comes out."""

    def __init__(self) -> None:
        self.switch = AggregatingSwitch()
        self.switch.write(entries())
        self.records: list[Record] = []

    def frame(self, name: str, port: int, raw: bytes) -> None:
        before = self.switch.outcomes.copy()
        out = self.switch.process(raw, port)
        counted = self.switch.outcomes - before
        self.records.append(
            [
                ("name", name),
                ("port", str(port)),
                ("bytes", raw.hex()),
                ("outcome", " ".join(f"{row} {outcome}" for row, outcome in counted) or "none"),
                *(("out", f"{to} {sent.hex()}") for to, sent in out),
            ]
        )

    def packet(self, name: str, packet: Packet, port: int | None = None, request: int = 0) -> None:
        job = REQUESTS[request]
        place = job.hub if packet.worker == HUB else participant(port) if port else job.workers[packet.worker]
        to = job.workers[0] if packet.worker == HUB else job.hub
        self.frame(name, place.port if port is None else port, udp_frame(place, to, packet.encode()))

    def send(self, name: str, kind: Kind, worker: int, block: int, **fields: object) -> None:
        values = fields.pop("values", lanes(worker + 1, -block, 1000))
        slot = fields.pop("slot", block % 4)
        port = fields.pop("port", None)
        packet = Packet(kind, 7, 1, block, worker, slot=slot, generation=1, values=values)  # type: ignore[arg-type]
        self.packet(name, dataclasses.replace(packet, **fields), port)  # type: ignore[arg-type]


def records() -> list[Record]:
    """All frames."""
    script = _Script()
    send = script.send
    put, flush, release = Kind.CONTRIBUTION, Kind.FLUSH, Kind.RELEASE

    send("first", put, 0, 0)
    send("first again", put, 0, 0, flags=Flag.RETRANSMISSION)
    send("second", put, 1, 0, values=lanes(-5, 7))
    send("another exponent", put, 2, 0, exponent=1)
    send("another operation", put, 2, 0, operation=Operation.MAX)
    send("last: result for all", put, 2, 0, values=lanes(10**9))
    send("late: result for its sender", put, 1, 0, flags=Flag.RETRANSMISSION)
    send("flush when done: result for its sender", flush, 2, 0)

    send("sum overflows, first", put, 0, 1, values=lanes(MOST, LEAST, MOST, LEAST, 1, -1, 2**30, 0))
    send("sum overflows, second", put, 1, 1, values=lanes(1, -1, MOST, LEAST, MOST - 1, LEAST + 1, 2**30, 0))
    send("sum overflows, last", put, 2, 1, values=lanes(-7, 7, LEAST, MOST, 0, 0, -1, 0), exponent=0)
    send("maximum, first", put, 2, 2, operation=Operation.MAX, values=lanes(-5, 5, LEAST, MOST), exponent=200)
    send(
        "maximum, second", put, 0, 2, operation=Operation.MAX, values=lanes(-6, 6, MOST, LEAST), exponent=200
    )
    send("maximum, last", put, 1, 2, operation=Operation.MAX, values=lanes(-4, 4, 0, 0), exponent=200)

    send("flush of nothing", flush, 0, 3)
    send("alone", put, 1, 3)
    send("flush below quorum", flush, 1, 3, quorum=2)
    send("collision: a newer block", put, 2, 7)
    send("flush of a newer block", flush, 2, 7)
    send("flush by another worker", flush, 0, 3, quorum=1)
    send("not in: learns it from the result", put, 0, 3)
    send("newer block in a done slot", put, 2, 7)
    send("stale: the block before", put, 1, 3)
    send("stale: flush of the block before", flush, 1, 3)
    send("hub flushes", flush, HUB, 7)

    send("release of a done block", release, HUB, 7)
    send("released: not installed again", put, 0, 7)
    send("released: flush", flush, 0, 7)
    send("newer block in a released slot", put, 0, 11)
    send("release of an older block", release, HUB, 7)
    send("release of a newer block while collecting", release, HUB, 15)
    send("still collecting", put, 1, 11)
    send("release while collecting", release, HUB, 11)
    send("release beforehand", release, HUB, 15)
    send("of a block released beforehand", put, 0, 15)
    send("of the next message", put, 0, 3, message=2)
    send("the message before, a larger block", put, 1, 4003)

    send("slot outside the range", put, 0, 4, slot=4)
    send("slot outside by far", put, 0, 4, slot=65535)
    send("contribution by the hub", put, HUB, 4)
    send("release by a worker", release, 0, 4)
    send("sent past the switch", put, 0, 4, flags=Flag.TO_HUB)
    send("worker of another port", put, 0, 4, port=2)
    send("unknown worker", put, 3, 4, port=1)
    send("unknown job", put, 0, 4, job=8)
    send("older generation", put, 0, 4, generation=0)
    send("for the hub alone", Kind.OTHER, 0, 4, flags=Flag.UNKNOWN)
    send("a result from a host", Kind.RESULT, 0, 4, bitmap=7, count=3)

    def other(name: str, kind: Kind, worker: int, block: int, flags: Flag = NO_FLAGS) -> None:
        packet = Packet(kind, 9, 1, block, worker, slot=block % 4, generation=300, flags=flags)
        packet.values = lanes(worker + 50)
        script.packet(name, packet, request=1)

    other("another job, same message and block", put, 0, 0)
    other("another job, last", put, 1, 0)
    send("the first job's block is still there", put, 0, 0, flags=Flag.RETRANSMISSION)

    good = udp_frame(participant(1), participant(4), Packet(put, 7, 9, 0, 0, generation=1).encode())

    def damaged(name: str, at: int, value: int) -> None:
        script.frame(name, 1, good[:at] + bytes([good[at] ^ value]) + good[at + 1 :])

    damaged("IP checksum", 24, 1)
    damaged("IP addresses", 33, 1)
    damaged("UDP checksum", 41, 1)
    damaged("a value", 100, 0x80)
    damaged("magic", 42, 1)
    damaged("version", 46, 1)
    damaged("kind", 47, 0x40)
    damaged("IP options", 14, 3)
    damaged("fragment", 20, 0x20)
    damaged("fragment offset", 21, 1)
    damaged("protocol", 23, 1)
    damaged("VLAN", 12, 0x89)
    damaged("UDP length", 39, 4)
    damaged("to a MAC address that nobody has", 5, 0x40)
    script.frame("too short", 1, good[:-1])
    script.frame("only its headers", 1, good[:42])
    script.frame("as long as the magic and version", 1, good[:47])
    script.frame("broadcast", 2, b"\xff" * 6 + good[6:12] + b"\x08\x06" + bytes(28))
    script.frame("back to where it came from", 4, good)
    no_checksum = Frame(good[:40] + bytes(2) + good[42:])
    script.frame("without a UDP checksum", 1, no_checksum.raw)
    script.frame("with a checksum that computes to 0", 2, _sum_zero(2))
    last = Packet(put, 7, 9, 0, 2, generation=1, values=lanes(5))
    script.frame(
        "with bytes behind it", 3, udp_frame(participant(3), participant(4), last.encode()) + b"trailer"
    )
    return script.records


def _sum_zero(worker: int) -> bytes:
    """A contribution whose UDP checksum is sent as 0xffff, since it computes to 0."""
    for word in range(65536):
        packet = Packet(Kind.CONTRIBUTION, 7, 9, 0, worker - 1, generation=1, values=lanes(1))
        packet.values = np.concatenate([packet.values[:-1], np.array([word], np.int32)])
        raw = udp_frame(participant(worker), participant(4), packet.encode())
        if raw[40:42] == b"\0\0":
            return raw[:40] + struct.pack(">H", 0xFFFF) + raw[42:]
    raise AssertionError("one word out of 65536 does it")


def outs(text: str | None) -> Sequence[tuple[int, bytes]]:
    """The `out` lines of a record."""
    if text is None:
        return []
    lines = (line.split() for line in text.splitlines())
    return [(int(port), bytes.fromhex(raw)) for port, raw in lines]
