"""The scapy layer against the golden vectors, and through a capture file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scapy", reason="needs scapy: pip install '.[scapy]'")

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap, wrpcap

from dlcp.transport import scapy as layer
from dlcp.transport.scapy import DLCP, DLCPFrames
from tests.support import vectors
from tests.support import wire_twin as twin

HEADERS = vectors.load("headers.txt")
FRAMES = vectors.load("frames.txt")
# Lengths alone are not packets on a wire.
REAL = [r for r in HEADERS if "virtual_payload_bytes" not in r]
GOOD = [r for r in REAL if r["expect"] == "ok"]
# The layer reads what looks right from outside; blocks and importances it shows as they are.
UNREADABLE = [r for r in REAL if r["expect"] not in ("ok", "bad_block", "bad_importance")]


def ids(records: list[dict[str, str]]) -> list[str]:
    return [r["name"] for r in records]


def udp(payload: bytes, port: int = 7000) -> Packet:
    return Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=50000, dport=port) / Raw(payload)


@pytest.fixture
def port() -> Iterator[int]:
    """A UDP port read as dlcp during the test."""
    layer.bind_ports(7000)
    yield 7000
    layer.unbind_ports(7000)


# --- headers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", GOOD, ids=ids(GOOD))
def test_header_fields_are_those_of_the_vector(record: dict[str, str]) -> None:
    datagram = bytes.fromhex(record["bytes"])
    packet = DLCP(datagram)
    assert isinstance(packet, DLCP)
    assert layer.TYPES[packet.type] == record["type"]
    for field in packet.fields_desc:
        if field.name in record and field.name not in ("type", "auth_tag"):
            assert int(packet.getfieldval(field.name)) == int(record[field.name]), field.name
    if record["auth_tag"] != "none":
        assert packet.auth_tag.hex() == record["auth_tag"]
    if record["payload"] not in ("none", "empty") and record["type"] in ("data", "short_data"):
        assert bytes(packet.payload).hex() == record["payload"]
    assert bytes(packet) == datagram


@pytest.mark.parametrize("record", REAL, ids=ids(REAL))
def test_looks_like_dlcp_knows_headers_by_their_form(record: dict[str, str]) -> None:
    expected = record["expect"] in ("ok", "bad_block", "bad_importance")
    assert layer.looks_like_dlcp(bytes.fromhex(record["bytes"])) == expected


@pytest.mark.parametrize("record", UNREADABLE, ids=ids(UNREADABLE))
def test_unreadable_packet_keeps_its_bytes(record: dict[str, str], port: int) -> None:
    packet = Ether(bytes(udp(bytes.fromhex(record["bytes"]), port)))
    assert bytes(packet[UDP].payload).hex() == record["bytes"]
    packet.summary()


@pytest.mark.parametrize("kept_bytes", [64, 65, 72, 87])
def test_packet_cut_by_the_capture_shows_its_header(kept_bytes: int) -> None:
    whole = twin.seal(
        bytes(16), twin.Header(flags=2, message_bytes=8, block_bytes=8, payload_bytes=8), bytes(8)
    )
    packet = DLCP(whole[:kept_bytes])
    assert isinstance(packet, layer.DLCPShortened)
    assert packet.payload_bytes == 8
    assert bytes(packet) == whole[:kept_bytes]
    assert DLCP in packet


def test_packet_built_by_hand_fills_in_lengths() -> None:
    frames = DLCPFrames(frames=[layer.DLCPCancel(message_id=9), layer.DLCPProbe(message_ids=[1, 2])])
    packet = DLCP(type="control", traffic_class=7, flags="authenticated", auth_tag=b"t" * 16) / frames
    parsed = twin.parse(bytes(packet))
    assert isinstance(parsed, twin.Datagram)
    assert parsed.tag == b"t" * 16
    assert parsed.payload is not None
    assert twin.parse_frames(parsed.payload) == ([twin.Cancel(9), twin.Ids("probe", (1, 2))], False)


# --- frames -----------------------------------------------------------------------------------------------


def as_twin(frame: Packet) -> twin.Frame | None:
    """What the layer read, in the twin's words; None for padding, unknown types and a malformed end."""
    match frame:
        case layer.DLCPAck():
            ce = tuple(frame.ce) if frame.flags.has_ce else None
            times = frame.ack_delay_ns, frame.queue_delay_ns
            return twin.Ack(
                frame.largest,
                *times,
                frame.credit_bytes,
                frame.ce_packets,
                tuple(frame.received),
                ce,
                bool(frame.flags.turn),
            )
        case layer.DLCPMessageIds():
            return twin.Ids(layer.FRAME_TYPES[frame.type], tuple(frame.message_ids))
        case layer.DLCPTrimmed():
            return twin.Trimmed(tuple(frame.packet_numbers))
        case layer.DLCPOutcome():
            words = tuple(frame.abandoned)
            return twin.Outcome(frame.message_id, frame.abandoned_blocks, frame.word_offset, words)
        case layer.DLCPRefuse():
            return twin.Refuse(frame.message_id, frame.reason)
        case layer.DLCPCancel():
            return twin.Cancel(frame.message_id)
        case layer.DLCPClose():
            return twin.Close(frame.reason)
        case layer.DLCPHello():
            sizes = frame.max_datagram_bytes, frame.received_datagram_bytes
            sessions = frame.own_session, frame.echo_session
            return twin.Hello(
                *sessions, frame.destination_rank, *sizes, int(frame.hello_flags), frame.ciphers
            )
        case layer.DLCPPiece():
            numbers = frame.packet_number, frame.datagram_bytes, frame.offset
            return twin.Piece(*numbers, frame.data, int(frame.flags))
        case layer.DLCPPadding():
            return None
    if isinstance(frame, layer.DLCPFrame) and frame.type in layer.FRAME_CLASSES:
        return twin.Miscounted(layer.FRAME_TYPES[frame.type])
    return None


@pytest.mark.parametrize("record", FRAMES, ids=ids(FRAMES))
def test_frames_are_those_of_the_vector(record: dict[str, str]) -> None:
    payload = bytes.fromhex(record["bytes"])
    packet = DLCPFrames(payload)
    assert bytes(packet) == payload
    packet.show(dump=True)
    found = [vectors.frame_line(f) for f in map(as_twin, packet.frames) if f is not None]
    expected = record.get("frame", "").splitlines()
    if record["expect"] == "malformed":
        # The layer shows also what a receiver no longer reads.
        assert found[: len(expected)] == expected
        assert "malformed" in packet.mysummary()[0] or payload[0] == 0
    else:
        assert found == expected


def test_ack_names_missing_and_marked_packets() -> None:
    ack = layer.DLCPFrame(bytes(layer.DLCPAck(largest=5, flags="has_ce", received=[0b111011], ce=[0b1])))
    assert ack.received_packets() == [0, 1, 2, 4, 5]
    assert ack.missing_packets() == [3]
    assert ack.marked_packets() == [5]
    assert ack.mysummary() == "ack 5 missing 3 ce 5"


@pytest.mark.parametrize(
    ("numbers", "text"), [([], "none"), ([3], "3"), ([1, 2, 3, 7, 9, 10], "1-3,7,9-10"), ([2, 1], "1-2")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert layer.ranges(numbers) == text


@given(st.binary(max_size=200))
def test_frames_of_any_bytes_are_shown_and_kept(payload: bytes) -> None:
    packet = DLCPFrames(payload)
    packet.show(dump=True)
    packet.summary()
    assert bytes(packet) == payload


@given(st.binary(max_size=150), st.sampled_from([b"\1\1", b"\1\2", b"\1\3", b""]))
def test_any_bytes_are_shown_and_kept(behind: bytes, start: bytes) -> None:
    packet = DLCP(start + behind)
    packet.show(dump=True)
    packet.summary()
    assert bytes(packet) == start + behind


# --- captures ---------------------------------------------------------------------------------------------


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """All good vectors between packets of others, as a capture file."""
    packets = [udp(bytes.fromhex(r["bytes"])) for r in GOOD]
    others = [udp(b"something else"), udp(b"x" * 64, 9999)]
    path = tmp_path / "run.pcap"
    wrpcap(str(path), [others[0], *packets, others[1]])
    return path


def test_capture_is_recognised_without_a_port(capture: Path) -> None:
    packets = layer.recognise(rdpcap(str(capture)))
    assert [DLCP in p for p in packets] == [False, *[True] * len(GOOD), False]
    for packet, record in zip(packets[1:-1], GOOD, strict=True):
        assert packet[DLCP].packet_number == int(record["packet_number"])
        assert bytes(packet[UDP].payload).hex() == record["bytes"]


def test_capture_is_read_by_port(capture: Path, port: int) -> None:
    packets = rdpcap(str(capture))
    assert [DLCP in p for p in packets] == [False, *[True] * len(GOOD), False]
    layer.unbind_ports(port)
    assert not any(DLCP in p for p in rdpcap(str(capture)))


def test_capture_written_again_is_the_same(capture: Path, tmp_path: Path, port: int) -> None:
    again = tmp_path / "again.pcap"
    wrpcap(str(again), rdpcap(str(capture)))
    assert [bytes(p) for p in rdpcap(str(again))] == [bytes(p) for p in rdpcap(str(capture))]
    layer.unbind_ports(port)
    assert [bytes(p) for p in rdpcap(str(again))] == [bytes(p) for p in rdpcap(str(capture))]


def test_summary_says_what_matters(port: int) -> None:
    def summary(name: str) -> str:
        record = next(r for r in GOOD if r["name"] == name)
        return Ether(bytes(udp(bytes.fromhex(record["bytes"]), port))).summary()

    assert summary("droppable").endswith(
        "UDP 10.0.0.1:50000 > 10.0.0.2:afs3_fileserver / dlcp data #1234605616436508552 from rank 7 "
        "message 9 block 12 of 20, 8 bytes importance 100 class 2 path 5"
    )
    assert "critical class 2 path 5 [ack_request first_pass_over repair]" in summary("flags of the sender")
    assert summary("control with a frame").endswith("#77 from rank 7 path 0 / cancel 16909060")
    assert summary("hello").endswith("hello to rank 3 session 0x102030405060708 datagram 1472")
    assert summary("trimmed to the header").endswith("[trimmed]")


def test_command_prints_a_line_per_packet(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert layer.main([str(capture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(GOOD) + 2
    assert sum("dlcp" in line for line in lines) == len(GOOD)
    assert layer.main([]) == 2


def test_import_without_scapy_says_what_to_install() -> None:
    program = "import sys; sys.modules['scapy.fields'] = None; import dlcp.transport.scapy"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert (
        "ImportError: dlcp.transport.scapy needs scapy: pip install '.[scapy]' in a checkout of dlcp"
        in run.stderr
    )
