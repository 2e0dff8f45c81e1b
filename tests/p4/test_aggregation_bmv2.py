"""The aggregation program on the real BMv2: the vectors, and random frames beside the twin."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install 'dlcp[p4]'")

from finsy.proto import p4i, p4r
from google.protobuf import text_format

from dlcp.switch import programs
from dlcp.switch.aggregation.entries import OUTCOMES, JobEntries
from tests.p4.test_aggregation import random_frame
from tests.support import vectors
from tests.support.aggregation_twin import AggregatingSwitch
from tests.support.bmv2 import bed
from tests.support.bmv2.bed import AT_ONCE, Bed
from tests.support.p4runtime.client import Client
from tests.vectors import aggregation

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(bed.missing() is not None, reason=str(bed.missing())),
]

PORTS = 8
LEAST_FRAME_BYTES = 60  # libpcap gives BMv2 what the cable carries; shorter ones do not leave a raw socket


def updates(entries: JobEntries, info: p4i.P4Info) -> Iterator[p4r.Update]:
    """P4Runtime's messages for entries by name."""
    tables = {table.preamble.name: table for table in info.tables}
    actions = {action.preamble.name: action for action in info.actions}
    for group in entries.multicast_groups:
        entity = p4r.Entity()
        made = entity.packet_replication_engine_entry.multicast_group_entry
        made.multicast_group_id = group.group
        for port, instance in group.replicas:
            made.replicas.add(egress_port=port, instance=instance)
        yield p4r.Update(type=p4r.Update.INSERT, entity=entity)
    for entry in entries.table_entries:
        table, action = tables[entry.table], actions[entry.action]
        message = p4r.TableEntry(table_id=table.preamble.id)
        for field in table.match_fields:
            value = entry.match[field.name].to_bytes((field.bitwidth + 7) // 8, "big")
            message.match.add(field_id=field.id).exact.value = value
        message.action.action.action_id = action.preamble.id
        for param in action.params:
            value = entry.parameters[param.name].to_bytes((param.bitwidth + 7) // 8, "big")
            message.action.action.params.add(param_id=param.id, value=value)
        yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=message))


@pytest.fixture(name="real")
def fixture_real() -> Iterator[tuple[Bed, Client, p4i.P4Info]]:
    """BMv2 with the program and its jobs, and nothing in its slots."""
    shipped = programs.load("aggregation")
    config = p4r.ForwardingPipelineConfig(p4_device_config=shipped.json)
    text_format.Parse(shipped.p4info, config.p4info)
    with Bed(PORTS) as made:
        client = Client(made.switch.address)
        client.claim(10)
        client.push("VERIFY_AND_COMMIT", config)
        client.write(*updates(aggregation.entries(), config.p4info))
        yield made, client, config.p4info
        client.close()


def counted(client: Client, info: p4i.P4Info) -> dict[tuple[int, str], int]:
    [counter] = [c for c in info.counters if c.preamble.alias == "outcomes"]
    entity = p4r.Entity()
    entity.counter_entry.counter_id = counter.preamble.id
    found = {}
    for read in client.read(entity):
        index, packets = read.counter_entry.index.index, read.counter_entry.data.packet_count
        if packets:
            found[index // 16, OUTCOMES[index % 16]] = packets
    return found


def test_bmv2_obeys_the_vectors(real: tuple[Bed, Client, p4i.P4Info]) -> None:
    switch, client, info = real
    wanted: dict[tuple[int, str], int] = {}
    for record in vectors.load("aggregation.txt"):
        frame = bytes.fromhex(record["bytes"])
        expected = aggregation.outs(record.get("out"))
        got = switch.exchange(int(record["port"]), [(frame, len(expected))])
        assert sorted(got) == sorted(expected), record["name"]
        if record["outcome"] != "none":
            row, _, name = record["outcome"].partition(" ")
            wanted[int(row), name] = wanted.get((int(row), name), 0) + 1
    assert counted(client, info) == wanted


def test_bmv2_does_what_the_twin_does(real: tuple[Bed, Client, p4i.P4Info]) -> None:
    switch, client, info = real
    rng = random.Random(7)
    twin = AggregatingSwitch()
    twin.write(aggregation.entries())
    # Frames of one port in a row, so that many are on their way at a time; a flood at the end shows that they came.
    sign = b"\xff" * 6 + bytes(6) + b"\x88\xb5" + bytes(46)
    frames: dict[int, list[bytes]] = {port: [] for port in range(1, 8)}
    for _ in range(1400):
        port, frame = random_frame(rng)
        if len(frame) < LEAST_FRAME_BYTES:
            continue
        frames[port].append(frame)
    for start in range(0, 150, AT_ONCE - 1):
        for port, all_frames in frames.items():
            sent = [*all_frames[start : start + AT_ONCE - 1], sign]
            expected = [twin.process(frame, port) for frame in sent]
            got = switch.exchange(port, [(f, len(out)) for f, out in zip(sent, expected, strict=True)])
            wanted = sorted(one for out in expected for one in out)
            assert sorted(got) == wanted, (port, start)
    assert counted(client, info) == dict(twin.outcomes)
