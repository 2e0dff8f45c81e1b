"""The parts of an aggregating host on their own: packets, integers with an exponent, plans, settings, entries."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path

import numpy as np
import pytest

from dlcp.errors import ArgumentError, GroupFailedError, SettingsError
from dlcp.switch.aggregation import Hub, JobSettings, Worker
from dlcp.switch.aggregation import entries as switch_entries
from dlcp.switch.aggregation.entries import (
    JobRequest,
    bridge_entries,
    flood_entries,
    job_entries,
    place_jobs,
)
from dlcp.switch.aggregation.hub import add_up
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
from dlcp.switch.aggregation.plan import plan
from dlcp.switch.aggregation.quantise import (
    CODE_NOT_FINITE,
    CODE_ZERO,
    block_count,
    dequantise,
    exponent_codes,
    quantise,
    step_size,
    value_bits,
)
from dlcp.switch.aggregation.send_window import FIRST_WINDOW, LEAST_WINDOW, MOST_WAIT_NS, SendWindow
from tests.support.aggregation_network import participant

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


# ---- integers with an exponent ----


@pytest.mark.parametrize("workers", range(1, 33))
def test_sum_of_all_workers_fits(workers: int) -> None:
    assert workers * (2 ** value_bits(workers) - 1) <= INT32_MAX
    assert 2 * workers * (2 ** value_bits(workers) - 1) > INT32_MAX // 2, "and wastes less than two bits"


@pytest.mark.parametrize("workers", [1, 2, 3, 32])
def test_quantised_value_is_off_by_half_a_step(workers: int) -> None:
    rng = np.random.default_rng(workers)
    blocks = (rng.standard_normal((500, LANES)) * np.exp2(rng.integers(-100, 100, (500, 1)))).astype(
        np.float32
    )
    codes = exponent_codes(blocks)
    integers = quantise(blocks, codes, workers).astype(np.float64)
    for row, code, block in zip(integers, codes, blocks.astype(np.float64), strict=True):
        step = step_size(int(code), workers)
        limit = step * (2 ** value_bits(workers) - 1)
        error = np.abs(row * step - block)
        assert (error <= np.where(np.abs(block) > limit, step, step / 2)).all()
        assert np.abs(block).max() < step * 2.0 ** value_bits(workers)


def test_extremes_of_float32() -> None:
    info = np.finfo(np.float32)
    for value in (info.max, -info.max, info.tiny, info.smallest_subnormal, -info.smallest_subnormal):
        block = np.full((1, LANES), value, np.float32)
        codes = exponent_codes(block)
        assert 1 <= codes[0] < CODE_NOT_FINITE
        back = dequantise(quantise(block, codes, 32), codes, 32)
        assert np.abs(back / value - 1).max() <= 2.0**-25
    zeros = np.zeros((1, LANES), np.float32)
    assert exponent_codes(zeros).tolist() == [CODE_ZERO]
    assert not dequantise(quantise(zeros, np.array([CODE_ZERO], np.int32), 3), exponent_codes(zeros), 3).any()
    for bad in (np.nan, np.inf, -np.inf):
        block = np.ones((1, LANES), np.float32)
        block[0, 7] = bad
        codes = exponent_codes(block)
        assert codes.tolist() == [CODE_NOT_FINITE]
        assert np.isnan(dequantise(quantise(block, codes, 3), codes, 3)).all()


def test_who_missed_the_agreement_is_clipped() -> None:
    block = np.full((1, LANES), 100.0, np.float32)
    code = exponent_codes(np.full((1, LANES), 0.75, np.float32))
    assert quantise(block, code, 4)[0, 0] == 2 ** value_bits(4) - 1
    assert quantise(-block, code, 4)[0, 0] == -(2 ** value_bits(4)) + 1


def test_larger_code_is_larger_exponent() -> None:
    blocks = np.exp2(np.arange(-149, 128)).astype(np.float32)[:, None].repeat(LANES, 1)
    codes = exponent_codes(blocks)
    assert (np.diff(codes) >= 0).all()
    assert (codes.min(), codes.max()) == (1, 254)


def test_hub_adds_as_the_switch_does() -> None:
    rows = [
        np.array([INT32_MAX, INT32_MIN, 5] + [0] * 29, np.int32),
        np.array([1, -1, 5] + [0] * 29, np.int32),
    ]
    rows.append(np.array([-7, 7, 5] + [0] * 29, np.int32))
    values, saturated = add_up(rows, Operation.SUM)
    assert values[:3].tolist() == [INT32_MAX - 7, INT32_MIN + 7, 15]
    assert saturated == 0b11
    values, saturated = add_up(rows, Operation.MAX)
    assert (values[:3].tolist(), saturated) == ([INT32_MAX, 7, 5], 0)


# ---- plans ----


@pytest.mark.parametrize("elements", [1, 32, 33, 1024, 1025, 5000])
def test_plan_has_every_row_once_behind_its_codes(elements: int) -> None:
    blocks = plan(elements, True)
    rows = [block.row for block in blocks if not block.is_codes]
    assert rows == list(range(block_count(elements)))
    groups = [block.row for block in blocks if block.is_codes]
    assert groups == list(range(block_count(block_count(elements))))
    for index, block in enumerate(blocks):
        if not block.is_codes:
            assert block.needs is not None
            assert block.needs < index
            codes = blocks[block.needs]
            assert codes.is_codes
            assert codes.row == block.row // LANES
    assert [block.row for block in plan(elements, False)] == rows


# ---- pace ----

MS = 1_000_000


def window(pace: SendWindow) -> int:
    while pace.has_room:
        pace.in_flight += 1
    room, pace.in_flight = pace.in_flight, 0
    return room


def test_window_doubles_until_something_is_lost() -> None:
    pace = SendWindow(100, 10 * MS)
    assert window(pace) == FIRST_WINDOW
    for _ in range(FIRST_WINDOW):
        pace.handle_result(MS)
    assert window(pace) == 2 * FIRST_WINDOW
    pace.handle_wait_over(50 * MS)
    pace.handle_wait_over(51 * MS)  # of the same burst
    assert window(pace) == FIRST_WINDOW
    for _ in range(FIRST_WINDOW + 1):
        pace.handle_result(MS)
    assert window(pace) == FIRST_WINDOW + 1
    for _ in range(20_000):
        pace.handle_result(MS)
    assert window(pace) == 100
    for turn in range(20):
        pace.handle_wait_over((100 + 20 * turn) * MS)
    assert window(pace) == LEAST_WINDOW


def test_smallest_range_has_one_block_in_flight() -> None:
    pace = SendWindow(1, 10 * MS)
    pace.handle_wait_over(0)
    assert window(pace) == 1


def test_wait_follows_what_blocks_take() -> None:
    pace = SendWindow(100, 10 * MS)
    assert pace.wait_ns == 10 * MS
    for _ in range(100):
        pace.handle_result(40 * MS)
    assert 40 * MS <= pace.wait_ns < 45 * MS
    for _ in range(100):
        pace.handle_result(MS)
    assert pace.wait_ns == 10 * MS
    for _ in range(100):
        pace.handle_result(5000 * MS)
    assert pace.wait_ns == MOST_WAIT_NS


# ---- settings ----


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"trust_switch": False}, "trust_switch is False; accepted: True"),
        ({"job": -1}, "job is -1; accepted: an integer from 0 to 4294967295"),
        ({"workers": 33}, "workers is 33; accepted: an integer from 1 to 32"),
        ({"slots": 1}, "slots is 1; accepted: an integer from 2 to 65535"),
        ({"generation": 65536}, "generation is 65536"),
        ({"quorum": 5, "deadline_ns": 1}, "quorum is 5; accepted: an integer from 1 to 4"),
        ({"quorum": 2}, "quorum is 2; accepted: 1, unless deadline_ns is set"),
        ({"deadline_ns": 0}, "deadline_ns is 0"),
        ({"retransmit_ns": True}, "retransmit_ns is True"),
    ],
)
def test_settings_out_of_range(changes: dict[str, object], text: str) -> None:
    table = {"job": 7, "workers": 4, "slots": 16, "trust_switch": True, **changes}
    with pytest.raises(SettingsError, match=re.escape(text)):
        JobSettings.from_table(table)


def test_settings_unknown_or_missing() -> None:
    with pytest.raises(SettingsError, match="slot is no setting of a job; accepted: deadline_ns, fallback"):
        JobSettings.from_table({"slot": 5})
    with pytest.raises(SettingsError, match="trust_switch is missing"):
        JobSettings.from_table({"job": 1, "workers": 2, "slots": 4})


def test_messages_end_with_their_numbers() -> None:
    worker = Worker(JobSettings(job=1, workers=2, slots=4, trust_switch=True), 0)
    worker._newest = 2**32 - 1
    with pytest.raises(ArgumentError, match="4294967295 messages were started.*next generation"):
        worker.start(np.ones(4, np.float32), 0)


def test_values_that_are_no_gradients() -> None:
    worker = Worker(JobSettings(job=1, workers=2, slots=4, trust_switch=True), 1)
    with pytest.raises(ArgumentError, match="values are float64; accepted: float32, int32"):
        worker.start(np.ones(4), 0)
    with pytest.raises(ArgumentError, match="values have 0 elements"):
        worker.start(np.ones(0, np.float32), 0)
    with pytest.raises(SettingsError, match="worker is 2; accepted: an integer from 0 to 1"):
        Worker(worker.settings, 2)


# ---- what a switch is told ----


def request(job: int = 7, slots: int = 128) -> JobRequest:
    return JobRequest(job, (participant(1), participant(2)), participant(3), slots)


def test_jobs_have_slots_of_their_own() -> None:
    placements = place_jobs([request(1, 1000), request(2, 48), request(3, 1000)], first_group=5)
    assert [(p.first_slot, p.row, p.group) for p in placements] == [(0, 1, 5), (1000, 2, 6), (1048, 3, 7)]
    with pytest.raises(SettingsError, match=r"job\[1\].slots is 1049; accepted: at most 1048, what is left"):
        place_jobs([request(1, 1000), request(2, 1049)])
    with pytest.raises(SettingsError, match=r"job\[1\].job is 1; accepted: a number that no other job has"):
        place_jobs([request(1), request(1)])
    with pytest.raises(SettingsError, match="job has 64 entries; accepted: at most 63"):
        place_jobs([request(job, 2) for job in range(64)])


def test_entries_of_a_job() -> None:
    entries = job_entries(place_jobs([request()])[0])
    assert [group.replicas for group in entries.multicast_groups] == [((1, 1), (2, 1))]
    admitted = [entry for entry in entries.table_entries if entry.table == "participant"]
    assert [entry.match["worker"] for entry in admitted] == [0, 1, HUB]
    assert [entry.parameters["bit_of_worker"] for entry in admitted] == [1, 2, 0]
    assert {entry.parameters["everyone"] for entry in admitted} == {3}


def test_workers_behind_one_port_differ_by_instance() -> None:
    workers = (participant(1), participant(2), participant(2, 5001), participant(2, 5002))
    entries = job_entries(place_jobs([JobRequest(7, workers, participant(3))])[0])
    assert [group.replicas for group in entries.multicast_groups] == [((1, 1), (2, 1), (2, 2), (2, 3))]
    addressed = {
        (entry.match["port"], entry.match["instance"]): entry.parameters["udp_port"]
        for entry in entries.table_entries
        if entry.table == "addressees"
    }
    assert [addressed[2, 2], addressed[2, 3]] == [5001, 5002]
    assert len(addressed) == 5


def test_entries_are_of_the_compiled_program(repository: Path) -> None:
    info = (repository / "p4" / "compiled" / "aggregation.p4info.txtpb").read_text()
    names = set(re.findall(r'(?:name|alias): "([^"]+)"', info))
    told = job_entries(place_jobs([request()])[0]) + bridge_entries({5: 1}) + flood_entries([1, 2], 9)
    for entry in told.table_entries:
        assert {entry.table, entry.action, *entry.match, *entry.parameters} <= names, entry
    assert {entry.table for entry in told.table_entries} == {
        "participant",
        "addressees",
        "bridge",
        "flood",
    }


def test_numbers_of_the_program(repository: Path) -> None:
    """Constants that exist twice: in P4 and here."""
    folder = repository / "p4"
    program = (folder / "aggregation.p4").read_text()
    headers = (folder / "blocks" / "aggregation_headers.p4").read_text()
    assert f"#define AGGREGATION_SLOTS {switch_entries.SLOTS}\n" in program
    assert f"#define AGGREGATION_JOBS {switch_entries.MAX_JOBS + 1}\n" in program
    outcomes = re.findall(r"OUTCOME_(\w+) = (\d+);", headers)
    assert [name.lower() for name, _ in outcomes] == list(switch_entries.OUTCOMES)
    assert [int(number) for _, number in outcomes] == list(range(len(outcomes)))
    for kind in (Kind.CONTRIBUTION, Kind.RESULT, Kind.FLUSH, Kind.RELEASE):
        assert f"KIND_{kind.name} = {kind.value};" in headers


TABLE = {
    "job": 7,
    "slots": 64,
    "worker": [{"port": "h1", "mac": "02:00:00:00:00:01", "ip": "10.0.0.1", "udp_port": 5000}],
    "hub": {"port": "h2", "mac": "02:00:00:00:00:02", "ip": "10.0.0.2", "udp_port": 5000},
}


def test_job_from_a_table() -> None:
    got = JobRequest.from_table(TABLE, port_numbers={"h1": 1, "h2": 4})
    assert (got.job, got.slots, got.generation, got.workers[0].port, got.hub.port) == (7, 64, 1, 1, 4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"speed": 1}, "job.speed is not known; accepted: generation, hub, job, slots, worker"),
        ({"worker": []}, "job.worker has 0 entries; accepted: 1 to 32"),
        ({"worker": 5}, "job.worker is 5; accepted: a list of tables"),
        (
            {"hub": {**TABLE["hub"], "port": "h9"}},
            "job.hub.port is 'h9'; accepted: a port of the switch: h1, h2",
        ),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "ip": "::1"}}, "job.hub.ip is '::1'; accepted: an IPv4 address"),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "mac": "02-00"}}, "job.hub.mac is '02-00'"),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "ip": "10.0.0.1"}}, "10.0.0.1:5000 is there twice"),  # type: ignore[dict-item]
        ({"hub": {**TABLE["hub"], "ip": "10.0.0.1", "udp_port": 1}}, "accepted: an address of its own"),  # type: ignore[dict-item]
        ({"slots": 4096}, "job.slots is 4096; accepted: an integer from 2 to 2048"),
    ],
)
def test_job_from_a_wrong_table(change: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        JobRequest.from_table({**TABLE, **change}, port_numbers={"h1": 1, "h2": 4})
