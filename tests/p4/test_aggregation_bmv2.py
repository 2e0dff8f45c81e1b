"""The aggregation program on the real BMv2: the vectors, random frames beside the twin, and jobs over real sockets."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

from finsy.proto import p4i, p4r
from google.protobuf import text_format

from dlcp.lab.simple_switch import SimpleSwitch
from dlcp.switch import BridgeEntry, SwitchTarget, programs
from dlcp.switch.aggregation.deployment import wanted_jobs
from dlcp.switch.aggregation.entries import OUTCOMES, JobRequest
from dlcp.switch.deploy.grpc_session import GrpcSession
from dlcp.switch.deploy.pipeline import Pipeline
from dlcp.switch.deploy.transaction import DesiredState, Settings, deploy
from dlcp.switch.entries import Entry, MulticastGroup, TableEntry
from tests.support import vectors
from tests.support.aggregation_frames import random_frame
from tests.support.aggregation_packet import participant
from tests.support.aggregation_twin import AggregatingSwitch, keys_of, numbered
from tests.support.bmv2 import bed
from tests.support.bmv2.bed import AT_ONCE, Bed
from tests.support.namespaces import Namespace
from tests.support.p4runtime.client import Client
from tests.vectors import aggregation

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(bed.missing() is not None, reason=str(bed.missing())),
]

PORTS = 8
PIPELINE = Pipeline.of(programs.load("aggregation"))
LEAST_FRAME_BYTES = 60  # libpcap gives BMv2 what the cable carries; shorter ones do not leave a raw socket


def updates(entries: Sequence[Entry], info: p4i.P4Info) -> Iterator[p4r.Update]:
    """P4Runtime's messages for entries by name."""
    tables = {table.preamble.alias: table for table in info.tables}
    actions = {action.preamble.alias: action for action in info.actions}
    for group in (entry for entry in entries if isinstance(entry, MulticastGroup)):
        entity = p4r.Entity()
        made = entity.packet_replication_engine_entry.multicast_group_entry
        made.multicast_group_id = group.group_id
        for port, instance in numbered(group.ports):
            made.replicas.add(egress_port=port, instance=instance)
        yield p4r.Update(type=p4r.Update.INSERT, entity=entity)
    for entry in (entry for entry in entries if isinstance(entry, TableEntry)):
        table, action = tables[entry.table], actions[entry.action]
        message = p4r.TableEntry(table_id=table.preamble.id)
        for field in table.match_fields:
            value = keys_of(entry)[field.name].to_bytes((field.bitwidth + 7) // 8, "big")
            message.match.add(field_id=field.id).exact.value = value
        message.action.action.action_id = action.preamble.id
        for param in action.params:
            value = dict(entry.params)[param.name].to_bytes((param.bitwidth + 7) // 8, "big")
            message.action.action.params.add(param_id=param.id, value=value)
        yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=message))


def shipped_config() -> p4r.ForwardingPipelineConfig:
    """The shipped program."""
    shipped = programs.load("aggregation")
    config = p4r.ForwardingPipelineConfig(p4_device_config=shipped.json)
    text_format.Parse(shipped.p4info, config.p4info)
    return config


@contextlib.contextmanager
def told(address: str, entries: Sequence[Entry]) -> Iterator[tuple[Client, p4i.P4Info]]:
    """A primary of a BMv2, after it has given it the program and these entries."""
    config = shipped_config()
    client = Client(address)
    try:
        client.claim(10)
        client.push("VERIFY_AND_COMMIT", config)
        client.write(*updates(entries, config.p4info))
        yield client, config.p4info
    finally:
        client.close()


@pytest.fixture(name="real")
def fixture_real() -> Iterator[tuple[Bed, Client, p4i.P4Info]]:
    """BMv2 with the program and its jobs, and nothing in its slots."""
    with Bed(PORTS) as made, told(made.switch.address, aggregation.entries()) as (client, info):
        yield made, client, info


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


# ---- hosts ----

WORKERS = 3
PLACES = tuple(participant(port) for port in range(1, WORKERS + 2))  # the last one is the hub


@pytest.fixture(name="hosts")
def fixture_hosts() -> Iterator[tuple[list[Namespace], str]]:
    """Namespaces of three workers, and one at the hub's address, around a BMv2, and its address."""
    with contextlib.ExitStack() as exits:
        middle = exits.enter_context(Namespace())
        hosts = [exits.enter_context(Namespace()) for _ in PLACES]
        for place, host in zip(PLACES, hosts, strict=True):
            host.join(middle, "eth0", f"sw{place.port}")
            host.ip(f"link set eth0 address {place.mac}")
            host.ip(f"addr add {place.ip}/24 dev eth0")
            # The switch checks UDP checksums, so hosts have to fill them in.
            subprocess.run(
                host.command("ethtool", "-K", "eth0", "tx", "off"), check=True, capture_output=True
            )
            host.ip("link set eth0 up")
            middle.ip(f"link set sw{place.port} up")
        names = {place.port: f"sw{place.port}" for place in PLACES}
        switch = exits.enter_context(SimpleSwitch(names, prefix=middle.command()))
        yield hosts, switch.address


def run_job(hosts: list[Namespace], *words: str) -> list[str]:
    """What each rank prints."""
    at = [f"{place.ip}:{place.udp_port}" for place in PLACES]
    common = ["--job", "7", "--slots", "64", "--ranks", str(WORKERS), "--elements", "6000", "--repeat", "3"]
    with contextlib.ExitStack() as exits:
        ranks = []
        for number in range(WORKERS):
            line = [sys.executable, "-m", "tests.support.aggregation_rank", *common, *words]
            line += ["--rank", str(number), "--bind", at[number], "--hub", at[-1]]
            command = hosts[number].command(*line)
            rank = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            exits.callback(rank.kill)
            ranks.append(rank)
        told = []
        for rank in ranks:
            out, errors = rank.communicate(timeout=90)
            assert rank.returncode == 0, errors
            told.append(out)
    return told


def deployed(address: str, *jobs: JobRequest) -> SwitchTarget:
    """A BMv2 that was given the program and these jobs, as a person would do it."""
    ports = {f"h{place.port}": place.port for place in PLACES}
    bridge = tuple(BridgeEntry(place.mac, f"h{place.port}") for place in PLACES)
    target = SwitchTarget("bmv2", address, ports, device_id=1, bridge=bridge)
    deploy([DesiredState.of(target, PIPELINE, wanted_jobs(target, jobs))], open_session, Settings())
    return target


def open_session(target: SwitchTarget) -> GrpcSession:
    return GrpcSession(target, 20.0)


def outcomes_of(target: SwitchTarget) -> dict[tuple[int, str], int]:
    session = open_session(target)
    try:
        counts = session.counters(PIPELINE.schema, "outcomes")
    finally:
        session.close()
    return {(i // 16, OUTCOMES[i % 16]): packets for i, (packets, _) in counts.items() if packets}


def test_job_over_sockets_is_added_in_the_switch(hosts: tuple[list[Namespace], str]) -> None:
    namespaces, address = hosts
    target = deployed(address, JobRequest(7, PLACES[:-1], PLACES[-1], slots=64))
    ranks = run_job(namespaces)
    outcomes = outcomes_of(target)
    print(*ranks, outcomes)
    assert all(text.startswith("probe: done\nwrong: 0; ") for text in ranks), ranks
    # A block per slot, and three times 188.
    assert outcomes[1, "completed"] == 64 + 3 * 188


def test_job_that_the_switch_does_not_know_fails_its_probe(hosts: tuple[list[Namespace], str]) -> None:
    namespaces, address = hosts
    target = deployed(address)
    assert run_job(namespaces, "--probe-s", "2") == ["probe: gave_up\n"] * WORKERS
    assert set(outcomes_of(target)) == {(0, "foreign")}
