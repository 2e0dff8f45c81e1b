"""Packets of aggregation: written, read back, refused."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from dlcp.errors import GroupFailedError
from dlcp.switch.aggregation import Hub, JobSettings, Worker
from dlcp.switch.aggregation.packet import (
    HUB,
    INT32_MAX,
    INT32_MIN,
    LANES,
    PACKET_BYTES,
    Flag,
    Kind,
    Operation,
    Packet,
    decode,
)

# ---- packets ----

PACKET = Packet(
    Kind.DECIDED, 0x01020304, 0x05060708, 0x090A0B0C, 31, 0x0D0E, 0x0F10, Operation.MAX, Flag.TO_HUB,
    0x80000001, 2, 255, 3, 0x11121314, np.arange(-16, 16, dtype=np.int32),
)  # fmt: skip


def test_packet_has_the_bytes_of_the_drawing() -> None:
    header = "444c4341010701010102030405060708090a0b0c0d0e0f10800000011f02ff0311121314"
    assert PACKET.encode()[:36].hex() == header
    assert PACKET.encode()[36:40].hex() == "fffffff0"
    assert len(PACKET.encode()) == PACKET_BYTES


def test_packet_is_read_as_it_was_written() -> None:
    got = decode(PACKET.encode())
    assert got is not None
    assert np.array_equal(got.values, PACKET.values)
    got.values = PACKET.values
    assert got.__dict__ == PACKET.__dict__


@pytest.mark.parametrize(
    ("at", "value"), [(0, 0), (4, 2), (5, 0), (5, 12), (6, 16), (7, 2), (28, 32), (28, 254), (29, 3)]
)
def test_malformed_packet_is_none(at: int, value: int) -> None:
    raw = PACKET.encode()
    assert decode(raw[:at] + bytes([value]) + raw[at + 1 :]) is None


@pytest.mark.parametrize("size", [0, PACKET_BYTES - 1, PACKET_BYTES + 1])
def test_packet_of_another_size_is_none(size: int) -> None:
    assert decode((PACKET.encode() + b"\0")[:size]) is None


def test_engines_count_what_is_not_theirs() -> None:
    settings = JobSettings(job=1, workers=2, slots=4, trust_switch=True)
    for engine in (Worker(settings, 0), Hub(settings)):
        engine.handle_packet(b"nothing", 0)
        engine.handle_packet(PACKET.encode(), 0)
        assert engine.counters == {"malformed": 1, "foreign": 1}
        assert engine.poll_packet(0) is None


def test_forged_results_are_not_taken() -> None:
    settings = JobSettings(job=1, workers=2, slots=4, trust_switch=True)
    worker = Worker(settings, 0)
    worker.start(np.ones(5, np.int32), 0)
    sound = Packet(Kind.RESULT, 1, 1, 0, 1, generation=1, bitmap=3, count=2)
    for field, value in (("slot", 1), ("exponent", 7), ("operation", Operation.MAX), ("bitmap", 5)):
        forged = Packet(**{**sound.__dict__, field: value})
        worker.handle_packet(forged.encode(), 0)
        assert worker.poll_event() is None, field
    worker.handle_packet(Packet(**{**sound.__dict__, "block": 1}).encode(), 0)
    assert worker.counters == {"unsound": 4, "outside": 1}
    worker.handle_packet(sound.encode(), 0)
    assert worker.poll_event() is not None


@pytest.mark.parametrize("code", [-1, 256, INT32_MIN, INT32_MAX])
def test_exponents_that_are_none_are_not_taken(code: int) -> None:
    worker = Worker(JobSettings(job=1, workers=2, slots=4, trust_switch=True), 0)
    worker.start(np.ones(5, np.float32), 0)
    values = np.full(LANES, code, np.int32)
    result = Packet(
        Kind.RESULT, 1, 1, 0, 1, generation=1, operation=Operation.MAX, bitmap=3, count=2, values=values
    )
    worker.handle_packet(result.encode(), 0)
    assert worker.counters == {"unsound": 1}
    while worker.poll_packet(0) is not None:
        pass


@pytest.mark.parametrize("seed", range(8))
def test_engines_stand_whatever_comes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets of the job with any content: nothing is raised, and what is kept has a bound."""
    monkeypatch.setattr("dlcp.switch.aggregation.worker.EARLY_BLOCKS", 8)
    rng = random.Random(seed)
    settings = JobSettings(
        job=1,
        workers=3,
        slots=4,
        trust_switch=True,
        deadline_ns=[None, 10**7][seed % 2],
        peer_timeout_ns=10**12,
    )
    workers, hub = [Worker(settings, n) for n in range(3)], Hub(settings)
    now_ns = 0
    sent = [0, 0, 0]
    for _ in range(4000):
        now_ns += rng.randrange(10**6)
        packet = Packet(
            rng.choice([k for k in Kind if k is not Kind.FAILED]),
            1,
            rng.choice((0, 1, 1, 2, 3, 50, 2**32 - 1)),
            (block := rng.choice((0, 1, 2, 3, 9, 2**32 - 1))),
            rng.choice((0, 1, 2, 31, HUB)),
            slot=rng.choice((block % 4, 0, 1, 2, 3, 65535)),
            generation=1,
            operation=Operation(rng.randrange(2)),
            flags=Flag(rng.randrange(16)),
            bitmap=(bits := rng.choice((0, 1, 3, 7, 2**32 - 1))),
            count=bits.bit_count(),
            exponent=rng.choice((0, 1, 127, 254, 255)),
            saturated=rng.randrange(2**32),
            values=np.array(
                [rng.choice((0, 1, 130, 255, 256, -1, INT32_MAX, INT32_MIN)) for _ in range(32)], np.int32
            ),
        )
        hub.handle_packet(packet.encode(), now_ns)
        while hub.poll_packet(now_ns) is not None:
            pass
        for number, worker in enumerate(workers):
            if sent[number] < 3 and rng.random() < 0.01:
                sent[number] += 1
                with contextlib.suppress(GroupFailedError):
                    worker.start(np.ones(rng.choice((1, 40, 200)), np.float32), now_ns)
            worker.handle_packet(packet.encode(), now_ns)
            while worker.poll_packet(now_ns) is not None:
                pass
            while worker.poll_event() is not None:
                pass
            worker.next_time_ns()
            assert len(worker._early) <= 8
            assert len(worker._promised) <= 8
        assert len(hub._blocks) <= 12
        assert len(hub._timers) <= 200
        assert len(hub._released) <= 4
