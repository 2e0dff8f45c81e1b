"""The compiled v1model program on the real BMv2, packet by packet beside the interpreter and the golden twins.

simple_switch_grpc runs between virtual cables and is given the same entries as the interpreter, over P4Runtime. Depths
are registers: a test sets them far from every threshold, and the few packets that wait at a time change no decision.
What a random word decides is not compared: BMv2 draws its own. It makes no claim about scheduling either
(dlcp/lab/simple_switch.py says why).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

import grpc
from finsy.proto import p4r

from dlcp.switch.policy import TRAFFIC_CLASSES
from tests.support import frame_builder as build
from tests.support import frame_twin, switch_twin
from tests.support.bmv2 import Program, bed
from tests.support.bmv2.bed import AT_ONCE, Bed
from tests.support.bmv2.shipped import (
    BY_FLOW,
    BY_PATH,
    EVERYBODY,
    FULL,
    HOST,
    HOST_PORT,
    IN_TURN,
    NOWHERE,
    POLICY,
    PORTS,
    ROUTER,
    canonical,
    config,
    default,
    everything,
    groups,
    install,
)
from tests.support.bmv2.traffic import Traffic
from tests.support.p4runtime import P4RuntimeServer
from tests.support.p4runtime.client import DEVICE, Client, code_of, update_codes

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(bed.missing() is not None, reason=str(bed.missing())),
]

# Bytes in every queue, and at every port.
DEPTHS = {
    "empty": (0, 0),
    "half full": (600_000, 600_000),
    "beyond all": (2_000_000, 2_000_000),
    "buffer full": (0, FULL),
}


@pytest.fixture(name="real", scope="module")
def fixture_real() -> Iterator[Bed]:
    with Bed(PORTS) as made:
        yield made


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[P4RuntimeServer]:
    with P4RuntimeServer(DEVICE) as server:
        yield server


@pytest.fixture(name="clients", scope="module")
def fixture_clients(real: Bed, server: P4RuntimeServer) -> Iterator[tuple[Client, Client]]:
    """Primaries of the interpreter's server and of BMv2. Both hold the same."""
    ours, theirs = Client(server.address), Client(real.switch.address)
    for one in (ours, theirs):
        one.claim(10)
        one.push("VERIFY_AND_COMMIT", config())
    with server.lock:
        install(server.program)
    for one in (ours, theirs):
        one.write(*(p4r.Update(type=p4r.Update.INSERT, entity=group) for group in groups(server.program)))
    # What the interpreter's server reads out is what BMv2 takes in.
    entries = everything(ours)
    theirs.write(*(p4r.Update(type=p4r.Update.INSERT, entity=entry) for entry in entries))
    for table in ("buffer", "trimmed", "classify"):
        theirs.write(p4r.Update(type=p4r.Update.MODIFY, entity=default(ours, table)))
    yield ours, theirs
    for one in (ours, theirs):
        one.close()


def test_what_both_read_out_is_the_same(clients: tuple[Client, Client]) -> None:
    ours, theirs = clients
    assert len(everything(ours)) > 100
    assert canonical(everything(theirs)) == canonical(everything(ours))
    for table in ("buffer", "trimmed", "classify", "bridge"):
        assert default(theirs, table) == default(ours, table), table
    wanted = p4r.Entity()
    wanted.packet_replication_engine_entry.multicast_group_entry.SetInParent()
    assert canonical(theirs.read(wanted)) == canonical(ours.read(wanted))
    for kind in ("ALL", "P4INFO_AND_COOKIE", "DEVICE_CONFIG_AND_COOKIE"):
        assert theirs.get(kind).config == ours.get(kind).config


def with_signs(frames: list[bytes]) -> list[bytes]:
    """Every so often a frame to everybody: no depth keeps it back, so it shows that the ones before were taken in."""
    sign = build.ethernet(bytes(46), build.ARP, EVERYBODY)
    runs = [frames[i : i + AT_ONCE - 1] for i in range(0, len(frames), AT_ONCE - 1)]
    return [frame for run in runs for frame in (*run, sign)]


def set_depths(real: Bed, program: Program, queue_bytes: int, port_bytes: int) -> None:
    for port in range(PORTS):
        program.register("port_bytes")[port] = port_bytes
        real.switch.runtime.write_register("port_bytes", port, port_bytes)
        for traffic_class in range(TRAFFIC_CLASSES):
            cell = port * TRAFFIC_CLASSES + traffic_class
            program.register("queue_bytes")[cell] = queue_bytes
            real.switch.runtime.write_register("queue_bytes", cell, queue_bytes)


@pytest.mark.parametrize("name", DEPTHS)
def test_every_packet_leaves_both_alike(
    name: str, real: Bed, server: P4RuntimeServer, clients: tuple[Client, Client]
) -> None:
    program, depths = server.program, DEPTHS[name]
    set_depths(real, program, *depths)
    destinations = [HOST, HOST, ROUTER, ROUTER, BY_FLOW, BY_PATH, IN_TURN, NOWHERE, EVERYBODY]
    dscp = sorted(POLICY.class_of_dscp())
    for port in range(PORTS):
        seed = 100 * list(DEPTHS).index(name) + port
        traffic = Traffic(seed, destinations, dscp)
        frames = with_signs([traffic.frame() for _ in range(350)])
        expected = [program.process(frame, port) for frame in frames]
        answers = real.exchange(port, list(zip(frames, map(len, expected), strict=True)))
        assert_alike(
            frames, expected, answers, f"depths {name!r}, frames into port {port}: Traffic({seed}, …)"
        )
    # What came in has gone out again, here and there.
    for port, traffic_class in itertools.product(range(PORTS), range(TRAFFIC_CLASSES)):
        cell = port * TRAFFIC_CLASSES + traffic_class
        assert (
            real.switch.runtime.read_register("queue_bytes", cell)
            == depths[0]
            == program.register("queue_bytes")[cell]
        )
    ours, theirs = clients
    assert counters(theirs, program, "arrivals") == counters(ours, program, "arrivals")


def assert_alike(
    frames: list[bytes], expected: list[list[tuple[int, bytes]]], answers: list[tuple[int, bytes]], where: str
) -> None:
    """Each frame's answers; which frame it is, is in the message."""
    wanted = Counter(answer for some in expected for answer in some)
    got = Counter(answers)
    if wanted == got:
        return
    lost, extra = list((wanted - got).elements()), list((got - wanted).elements())
    first = next((i for i, some in enumerate(expected) if any(answer in lost for answer in some)), None)
    frame = "" if first is None else f"\nframe {first}: {frames[first].hex()}"
    raise AssertionError(
        f"{where}: {len(lost)} of {wanted.total()} answers are not BMv2's, {len(extra)} are only BMv2's{frame}\n"
        f"interpreter: {[(p, d.hex()) for p, d in lost[:2]]}\nBMv2: {[(p, d.hex()) for p, d in extra[:2]]}"
    )


def counters(client: Client, program: Program, name: str) -> dict[int, tuple[int, int]]:
    counter_id = next(c.preamble.id for c in config().p4info.counters if c.preamble.name.endswith(name))
    read = client.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter_id)))
    found = {e.counter_entry.index.index: e.counter_entry.data for e in read}
    return {i: (data.packet_count, data.byte_count) for i, data in found.items() if data.packet_count}


@pytest.mark.parametrize("name", DEPTHS)
def test_every_verdict_is_the_models(
    name: str, real: Bed, server: P4RuntimeServer, clients: tuple[Client, Client]
) -> None:
    """Frames to one port against the slow twins of native/switch, which share no code with p4/ or the interpreter."""
    queue_bytes, port_bytes = DEPTHS[name]
    set_depths(real, server.program, queue_bytes, port_bytes)
    by = frame_twin.Classification(POLICY.class_of_dscp(), POLICY.foreign_class, 56)
    depths = switch_twin.Depths(queue_bytes, port_bytes)
    seed = 1000 + list(DEPTHS).index(name)
    traffic = Traffic(seed, [HOST], sorted(by.class_of_dscp))
    frames = with_signs([traffic.frame() for _ in range(500)])
    expected: list[list[tuple[int, bytes]]] = []
    verdicts = Counter[str]()
    for frame in frames:
        if frame[:6] == EVERYBODY:
            expected.append(server.process(frame, 0))
            continue
        read = frame_twin.read_frame(frame, by)
        verdict = "malformed"
        if read.kind != "malformed":
            cut = frame_twin.trimmed_bytes(read) if read.packet.trimmable else 0
            verdict = switch_twin.admit(POLICY, read.packet, depths, 0, cut, depths)
        verdicts[verdict] += 1
        match verdict:
            case "keep":
                expected.append([(HOST_PORT, frame)])
            case "mark":
                expected.append([(HOST_PORT, frame_twin.mark(frame, read))])
            case "trim":
                expected.append([(HOST_PORT, frame_twin.trim(frame, read, by))])
            case _:
                expected.append([])
    answers = real.exchange(0, list(zip(frames, map(len, expected), strict=True)))
    assert_alike(frames, expected, answers, f"depths {name!r}: Traffic({seed}, …)")
    seen = {"empty": {"keep"}, "half full": {"keep", "mark", "trim", "drop"}, "beyond all": {"keep", "drop"}}
    assert set(verdicts) >= seen.get(name, {"drop"}) | {"malformed"}, verdicts


def test_both_refuse_the_same(clients: tuple[Client, Client], server: P4RuntimeServer, real: Bed) -> None:
    """Not with the same codes: BMv2 has a code of its own for much."""
    ids = {t.preamble.alias: t for t in config().p4info.tables}
    ours, theirs = clients

    def entry(table: str, **more: object) -> p4r.Entity:
        """An entry that is there, changed."""
        there = next(e for e in everything(ours) if e.table_entry.table_id == ids[table].preamble.id)
        for name, value in more.items():
            setattr(there.table_entry, name, value)
        return there

    def changed(table: str, change: str) -> p4r.Entity:
        made = entry(table)
        match change:
            case "no action":
                made.table_entry.ClearField("action")
            case "unknown action":
                made.table_entry.action.action.action_id = 0x01FFFFFF
            case "no parameters":
                del made.table_entry.action.action.params[:]
            case "wide parameter":
                made.table_entry.action.action.params[0].value = b"\xff" * 9
            case "no match":
                del made.table_entry.match[:]
            case "wide match":
                made.table_entry.match[0].exact.value = b"\xff" * 9
            case "unknown field":
                made.table_entry.match[0].field_id = 99
        return made

    changes = (
        "no action",
        "unknown action",
        "no parameters",
        "wide parameter",
        "no match",
        "wide match",
        "unknown field",
    )
    refused = [p4r.Update(type=p4r.Update.INSERT, entity=changed("bridge", change)) for change in changes]
    refused += [
        p4r.Update(type=p4r.Update.INSERT, entity=entry("bridge")),
        p4r.Update(type=p4r.Update.INSERT, entity=entry("bridge", table_id=0x02FFFFFF)),
        p4r.Update(type=p4r.Update.INSERT, entity=entry("thresholds", priority=0)),
        p4r.Update(type=p4r.Update.MODIFY, entity=default(ours, "bridge")),
        p4r.Update(type=p4r.Update.DELETE, entity=default(ours, "buffer")),
        p4r.Update(type=p4r.Update.INSERT, entity=groups(server.program)[0]),
        p4r.Update(
            type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=p4r.RegisterEntry(register_id=1))
        ),
        p4r.Update(entity=entry("bridge")),
    ]
    for one in clients:
        codes = update_codes(lambda one=one: one.write(*refused))  # type: ignore[misc]
        assert (len(codes), codes.count(0)) == (len(refused), 0), codes
    assert canonical(everything(theirs)) == canonical(everything(ours))

    for address in (server.address, real.switch.address):
        backup, twin = Client(address), Client(address)
        assert backup.claim(9).status.code == 6
        assert code_of(lambda backup=backup: backup.write(refused[0])) == "PERMISSION_DENIED"  # type: ignore[misc]
        assert code_of(lambda twin=twin: twin.claim(10)) == "INVALID_ARGUMENT"  # type: ignore[misc]
        with pytest.raises(grpc.RpcError):
            ours.push("VERIFY", None) if address == server.address else theirs.push("UNSPECIFIED", None)
        backup.close()
        twin.close()
