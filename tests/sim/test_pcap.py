"""Captures: scapy reads them; lengths and checksums are right; the engine's packets are what the engine wrote."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlcp.errors import ArgumentError
from dlcp_sim.fabrics import FatTree, Star
from dlcp_sim.report import write_pcap
from dlcp_sim.result import Result
from dlcp_sim.scenario import Scenario, Trace
from dlcp_sim.transports import Dlcp, Ndp
from dlcp_sim.workloads.collectives import CollectiveRun
from dlcp_sim.workloads.flows import Incast

pytest.importorskip("scapy", reason="captures are read with scapy: pip install '.[scapy]'")

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

from dlcp.transport.scapy import DLCP, DLCPShortened, bind_ports, recognise, unbind_ports

SENT = 1
SCENARIO = Scenario(
    fabric=FatTree(4, rate_bps=100e9, delay_s=1e-6),
    transport=Ndp(),
    workload=Incast(senders=10, bytes=60_000),
    trace=Trace("all", 1_000_000),
    seed=2,
)


@pytest.fixture(scope="module")
def result() -> Result:
    return SCENARIO.run()


@pytest.fixture(scope="module")
def engine() -> Result:
    return replace(SCENARIO, transport=Dlcp(trim=False, trim_critical=False)).run()


def frames(path: Path) -> list[tuple[bytes, int, int]]:
    """Captured bytes, length on the wire, nanoseconds."""
    with RawPcapReader(str(path)) as reader:
        assert reader.nano
        return [(data, about.wirelen, about.sec * 10**9 + about.usec) for data, about in reader]


def test_packets_that_switches_add_have_their_own_header(tmp_path: Path) -> None:
    load = CollectiveRun(algorithm="switch", bytes=10_000, lanes=64)
    run = replace(SCENARIO, fabric=Star(2), transport=Dlcp(), workload=load).run()
    sums = [
        (Ether(data), length)
        for data, length, _ in frames(write_pcap(run, tmp_path / "sums.pcap"))
        if data[42:46] == b"DLCA"
    ]
    for frame, length in sums:
        assert length == 14 + 20 + 8 + 36 + 4 * 64
        assert frame[UDP].dport == 53701
        assert {frame[IP].src, frame[IP].dst} in [{"10.255.255.255", f"10.0.0.{host}"} for host in (1, 2)]
    kinds = [bytes(frame[UDP].payload)[5] for frame, _ in sums]
    assert [kinds.count(kind) for kind in (1, 2)] == [2 * 40, 2 * 40]


def records(result: Result, event: int = SENT) -> dict[str, np.ndarray]:
    trace = result.trace
    assert trace is not None
    return {name: column[trace["event"] == event] for name, column in trace.items()}


def test_the_file_is_a_pcap_with_nanoseconds_and_ethernet(result: Result, tmp_path: Path) -> None:
    head = write_pcap(result, tmp_path / "run.pcap").read_bytes()[:24]
    magic, major, minor, _, _, snap, link = struct.unpack("<IHHiIII", head)
    assert (magic, major, minor, link) == (0xA1B23C4D, 2, 4, 1)
    assert snap == 14 + 20 + 8 + 64


@pytest.mark.parametrize("which", ["result", "engine"])
def test_every_packet_that_was_sent_is_there_with_right_lengths_and_checksums(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run: Result = request.getfixturevalue(which)
    sent, found = records(run), frames(write_pcap(run, tmp_path / "run.pcap"))
    assert len(found) == len(sent["time_ps"]) > 500
    assert [ns for _, _, ns in found] == (sent["time_ps"] // 1000).tolist()
    step = max(1, len(found) // 150)  # scapy builds a packet in a millisecond
    for row in range(0, len(found), step):
        data, wire_bytes, _ = found[row]
        assert len(data) <= min(wire_bytes, 106)
        # What was not captured is zero bytes; scapy works checksums and lengths out anew.
        whole = Ether(data + bytes(wire_bytes - len(data)))
        assert whole[IP].len == wire_bytes - 14
        assert whole[UDP].len == wire_bytes - 34
        given = whole[IP].chksum, whole[UDP].chksum
        del whole[IP].chksum, whole[UDP].chksum
        again = Ether(bytes(whole))
        assert (again[IP].chksum, again[UDP].chksum) == given
        assert again[IP].tos >> 5 == sent["traffic_class"][row]
        assert again[IP].dst == f"10.0.0.{sent['destination'][row] + 1}"


def test_a_packet_is_as_long_as_its_record_says(result: Result, tmp_path: Path) -> None:
    found = frames(write_pcap(result, tmp_path / "run.pcap"))
    assert [wire for _, wire, _ in found] == np.maximum(records(result)["wire_bytes"], 42).tolist()


def test_marks_are_in_the_ecn_field(tmp_path: Path, result: Result) -> None:
    trace = result.trace
    assert trace is not None
    marked = trace["flags"].copy()
    marked[trace["event"] == SENT] = 0b11  # ECN-capable and marked
    changed = Result(result.metadata, {**result.arrays, "trace.flags": marked})
    assert {
        Ether(data)[IP].tos & 3 for data, _, _ in frames(write_pcap(changed, tmp_path / "a.pcap"))[:50]
    } == {3}
    marked[trace["event"] == SENT] = 0b01
    changed = Result(result.metadata, {**result.arrays, "trace.flags": marked})
    assert {
        Ether(data)[IP].tos & 3 for data, _, _ in frames(write_pcap(changed, tmp_path / "b.pcap"))[:50]
    } == {2}


def test_engine_packets_are_dissected_as_dlcp(engine: Result, tmp_path: Path) -> None:
    sent, found = records(engine), frames(write_pcap(engine, tmp_path / "run.pcap"))
    bind_ports(7000)
    try:
        packets = [Ether(data) for data, _, _ in found]
    finally:
        unbind_ports(7000)
    assert all(DLCP in packet for packet in packets)
    data = [packet[DLCP] for packet in packets if packet[DLCP].type == 1]
    assert data
    assert all(isinstance(packet, DLCPShortened) for packet in data if packet.payload_bytes)
    assert {packet.message_bytes for packet in data} == {60_000}
    for row in range(0, len(found), max(1, len(found) // 100)):
        assert bytes(found[row][0][42:106]) == sent["headers"][row].tobytes()
        header = packets[row][DLCP]
        assert header.path == sent["path"][row]
        assert found[row][1] == 42 + 64 + header.payload_bytes


def test_engine_captures_are_recognised_without_a_port_and_name_their_hosts(
    engine: Result, tmp_path: Path
) -> None:
    sent = records(engine)
    path = write_pcap(engine, tmp_path / "run.pcap", udp_port=9)
    packets = recognise([Ether(data) for data, _, _ in frames(path)[:300]])
    assert all(DLCP in packet for packet in packets)
    flows = engine.flows
    for row, packet in enumerate(packets):
        hosts = [int(packet[IP].src.rsplit(".", 1)[1]) - 1, int(packet[IP].dst.rsplit(".", 1)[1]) - 1]
        assert packet[DLCP].source_rank == hosts[0]
        assert 0 in hosts, "all flows go to host 0, and what answers them comes from there"
        if sent["flow"][row] < len(flows):
            assert hosts[0] == flows.source[sent["flow"][row]]


def test_one_port_and_other_events_can_be_chosen(result: Result, tmp_path: Path) -> None:
    sent = records(result)
    port = int(sent["port"][-1])
    found = frames(write_pcap(result, tmp_path / "one.pcap", ports=[port]))
    assert len(found) == int((sent["port"] == port).sum())
    trimmed = frames(write_pcap(result, tmp_path / "cut.pcap", event="trimmed"))
    assert len(trimmed) == int(result.ports.packets_trimmed.sum()) > 0


def test_what_cannot_be_written_is_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="event is 'seen'; accepted: queued, sent"):
        write_pcap(result, tmp_path / "run.pcap", event="seen")
    bare = replace(SCENARIO, trace=None).run()
    with pytest.raises(ArgumentError, match="no packet records"):
        write_pcap(bare, tmp_path / "run.pcap")
