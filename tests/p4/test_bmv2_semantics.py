"""The interpreter against BMv2 on everything else that v1model programs say: tests/p4/semantics.p4, compiled here.

Arithmetic in all widths and signs, hashes, registers, header stacks, copies, clones, packets that come again, cuts,
parser errors, and tables of every kind. Needs p4c-bm2-ss besides BMv2 and root.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

from finsy.proto import p4r
from google.protobuf import text_format

from tests.support.bmv2 import bed
from tests.support.bmv2.bed import AT_ONCE, Bed
from tests.support.p4runtime import P4RuntimeServer
from tests.support.p4runtime.client import DEVICE, Client

COMPILER = "p4c-bm2-ss"
SOURCE = Path(__file__).with_name("semantics.p4")
REASON = bed.missing() or (None if shutil.which(COMPILER) else f"needs {COMPILER} on PATH")
pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

PORTS = 5
OPERATIONS = {
    "arithmetic": range(0x01, 0x0E),
    "hashes, registers, errors": (0x20, 0x21, 0x22, 0x30, 0x50, 0x51),
    "stacks": (0x40, 0x41, 0x42, 0x43),
    "headers": (0x60, 0x61, 0x62),
    "copies and cuts": (0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76),
    "again": (0x77, 0x78, 0x7A, 0x7C, 0x7D),
    "tables": (0x10,),
}
# Where arithmetic goes wrong first.
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def config(folder: Path) -> p4r.ForwardingPipelineConfig:
    """The program, compiled."""
    json, info = folder / "semantics.json", folder / "semantics.p4info.txt"
    done = subprocess.run(
        [COMPILER, "--std", "p4-16", "-o", json, "--p4runtime-files", info, SOURCE],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    made = p4r.ForwardingPipelineConfig(p4_device_config=json.read_bytes())
    text_format.Parse(info.read_text(), made.p4info)
    return made


def group(number: int, *replicas: tuple[int, int]) -> p4r.Entity:
    entity = p4r.Entity()
    made = entity.packet_replication_engine_entry.multicast_group_entry
    made.multicast_group_id = number
    for port, instance in replicas:
        made.replicas.add(egress_port=port, instance=instance)
    return entity


def session(number: int, port: int) -> p4r.Entity:
    entity = p4r.Entity()
    made = entity.packet_replication_engine_entry.clone_session_entry
    made.session_id = number
    made.replicas.add(egress_port=port, instance=1)
    return entity


@pytest.fixture(name="both", scope="module")
def fixture_both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[P4RuntimeServer, Bed]]:
    """Interpreter and BMv2 with the same entries."""
    made = config(tmp_path_factory.mktemp("semantics"))
    with Bed(PORTS) as real, P4RuntimeServer(DEVICE) as server:
        ours, theirs = Client(server.address), Client(real.switch.address)
        for one in (ours, theirs):
            one.claim(1)
            one.push("VERIFY_AND_COMMIT", made)
        with server.lock:
            program, top = server.program, 0xFFFFFFFF
            program.insert("choose", {"a": (0x10, 0xF0), "s": (0, 1000)}, "pick", [11], priority=10)
            program.insert("choose", {"a": (0x12, 0xFF)}, "pick", [12], priority=20)
            program.insert("choose", {"code": (0x10, 0xFF), "s": (0x8000, 0xFFFF)}, "pick", [13], priority=5)
            program.insert("choose", {"s": (7, 7)}, "NoAction", priority=30)
            for value, bits in ((0, 1), (0x80000000, 1), (0xFF000000, 8), (0x7FFF0000, 16), (top, 32)):
                program.insert("prefix", {"b": (value, bits)}, "pick", [100 + bits])
        entries = ours.read(p4r.Entity(table_entry=p4r.TableEntry()))
        for one in (ours, theirs):
            writes = [group(5, (2, 1), (3, 7), (3, 8)), session(3, 4)]
            if one is theirs:
                writes += [entry for entry in entries if not entry.table_entry.is_const]
            one.write(*(p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in writes))
        for entry in entries:
            entry.table_entry.is_const = False
        found = theirs.read(p4r.Entity(table_entry=p4r.TableEntry()))
        for entry in found:
            entry.table_entry.is_const = False
        assert sorted(map(str, found)) == sorted(map(str, entries))
        yield server, real
        for one in (ours, theirs):
            one.close()


class Operations:
    """Random frames from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, bits: int) -> int:
        draw = self._random
        value = draw.choice(EDGES) if draw.random() < 0.4 else draw.getrandbits(draw.choice((4, 8, 16, 32)))
        return value & (1 << bits) - 1

    def frame(self, code: int) -> bytes:
        draw = self._random
        a, b, s, t = self.number(32), self.number(32), self.number(16), self.number(16)
        if code == 0x10 and draw.random() < 0.5:
            a = draw.choice((0x10, 0x12, 0x1F, 0x112))
        words = code.to_bytes(1, "big") + a.to_bytes(4, "big") + b.to_bytes(4, "big")
        words += s.to_bytes(2, "big") + t.to_bytes(2, "big") + draw.randbytes(2) + draw.randbytes(8)
        if code >> 4 == 4:  # labels, of which sometimes none is the last
            count = draw.randrange(1, 6)
            labels = [draw.randrange(128) << 1 for _ in range(count)]
            labels[-1] |= draw.random() < 0.9
            words += bytes(labels)
        if draw.random() < 0.05:
            words = words[: draw.randrange(len(words))]
        payload = draw.randbytes(draw.choice((0, 1, 2, 3, 10, 60)))
        return b"\x02\0\0\0\0\x02" + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + words + payload


# An operation that always has one answer, to show that the ones before were taken in.
SIGN = b"\x02\0\0\0\0\x02" + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + bytes([0xFF]) + bytes(22)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str, both: tuple[P4RuntimeServer, Bed]) -> None:
    server, real = both
    seed = list(OPERATIONS).index(name)
    operations = Operations(seed)
    codes = list(OPERATIONS[name])
    frames: list[bytes] = []
    for i in range(100 * len(codes) + 300):
        if i % (AT_ONCE - 1) == 0:
            frames.append(SIGN)
        frames.append(operations.frame(codes[i % len(codes)]))
    # What is shorter than an Ethernet header the kernel does not send.
    expected = [[(p, d) for p, d in server.process(frame, 0) if len(d) >= 14] for frame in frames]
    answers = real.exchange(0, list(zip(frames, map(len, expected), strict=True)))
    wanted = Counter(answer for some in expected for answer in some)
    lost, extra = wanted - Counter(answers), Counter(answers) - wanted
    at = next(
        (i for i, some in enumerate(expected) if any(a in lost for a in some) and frames[i] != SIGN), None
    )
    assert not lost, (
        f"Operations({seed}), frame {at}: {frames[at or 0].hex()}\ninterpreter: "
        f"{[(p, d.hex()) for p, d in expected[at or 0]]}\nonly BMv2's: {[(p, d.hex()) for p, d in list(extra)[:4]]}"
    )
    assert not extra, f"Operations({seed}): only BMv2's: {[(p, d.hex()) for p, d in list(extra)[:4]]}"


def test_counters_agree(both: tuple[P4RuntimeServer, Bed]) -> None:
    server, real = both
    ours, theirs = Client(server.address), Client(real.switch.address)
    try:
        for wanted in (
            p4r.Entity(counter_entry=p4r.CounterEntry()),
            p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry()),
        ):
            if wanted.HasField("direct_counter_entry"):
                table = next(t for t in ours.get().config.p4info.tables if t.preamble.alias == "choose")
                wanted.direct_counter_entry.table_entry.table_id = table.preamble.id
            else:
                counter = next(c for c in ours.get().config.p4info.counters)
                wanted.counter_entry.counter_id = counter.preamble.id
            counted = [sorted(map(data_of, one.read(wanted))) for one in (ours, theirs)]
            assert counted[0] == counted[1]
            assert any(packets for packets, _ in counted[0])
    finally:
        ours.close()
        theirs.close()


def data_of(entity: p4r.Entity) -> tuple[int, int]:
    either = entity.counter_entry if entity.HasField("counter_entry") else entity.direct_counter_entry
    return either.data.packet_count, either.data.byte_count
