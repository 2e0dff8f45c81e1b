"""A run's packet records as a capture for Wireshark, tcpdump and scapy.

The file has nanosecond times (magic 0xa1b23c4d: draft-ietf-opsawg-pcap); a record's picoseconds are rounded down.
Ethernet, IPv4 (RFC 791) and UDP (RFC 768) are made up around what the simulator knows: addresses from host numbers
(10.0.0.0/8, 02-00-… ), class and marks as DSCP (class selectors: RFC 2474, 4.2.2) and ECN (RFC 3168), lengths and
checksums right, as if the payload that exists as a length only were zero bytes. Only the head of a packet is captured;
its length on the wire is kept beside it.

A packet of the engine carries its own header behind UDP, to `udp_port`, so that `dlcp.transport.scapy` reads it
and its length is what that header says. One that switches add carries the header that p4/aggregation.md draws, and the
first values; its addresses are the ends of the link, 10.255.255.255 for a switch. One of another transport carries a
line of text there (what it is, of which flow, its number) and is as long as the record says, or as its headers at
least.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dlcp.errors import ArgumentError

if TYPE_CHECKING:
    from dlcp_sim.result import Result

MAGIC_NS = 0xA1B23C4D
LINK_TYPE_ETHERNET = 1
ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES = 14, 20, 8
HEADERS_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
ENGINE_BYTES = 64
SNAP_BYTES = HEADERS_BYTES + ENGINE_BYTES
EVENTS = ("queued", "sent", "dropped", "marked", "trimmed", "lost")
TYPES = {0: "data", 1: "ack", 2: "nack", 3: "pull"}
# Of the records' flags.
ECN_CAPABLE, CONGESTION_MARKED, TRIMMED, REVERSE = 1, 2, 4, 8
# Of an engine's header: wire.hpp.
AUTHENTICATED_FLAG, TAG_BYTES = 2, 16
RANK_AT = slice(12, 16)
ECT0, CE = 2, 3
FIRST_SOURCE_PORT = 49152  # dynamic ports: RFC 6335, 6
NOBODY = 2**32 - 1
"""A host's number that none has."""
# Of packets that switches add: native/aggregation/packet.hpp, and udp_port_of of sim/core/transports/switch_plan.hpp.
SUMS_MAGIC, SUMS_JOB_AT, SUMS_FIRST_PORT = b"DLCA", slice(8, 12), 53700


def write_pcap(
    result: Result,
    path: Path | str,
    *,
    ports: Sequence[int] | None = None,
    event: str = "sent",
    udp_port: int = 7000,
) -> Path:
    """Writes records of one kind, of some ports or of all that were traced; returns the path.

    `event`: "sent" (as a tap on the link would see it: when its first bit leaves), "dropped", "lost", … Raises
    ArgumentError if the scenario traced nothing.
    """
    if event not in EVENTS:
        raise ArgumentError(f"event is {event!r}; accepted: {', '.join(EVENTS)}")
    trace = result.trace
    if trace is None:
        raise ArgumentError("this result has no packet records; ask the scenario for a trace")
    chosen = trace["event"] == EVENTS.index(event)
    # Of packets that switches add: their headers do not say whose they are, nor how long.
    trace = dict(trace)
    for name in ("sender", "receiver"):
        node = result.arrays[f"port.{name}"][trace["port"]].astype(np.int64)
        trace[name] = np.where(node < result.metadata["hosts"], node, NOBODY)
    below = result.metadata["header_bytes"] - ENGINE_BYTES
    trace["payload_bytes"] = trace["wire_bytes"].astype(np.int64) - below
    if ports is not None:
        chosen = chosen & np.isin(trace["port"], list(ports))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        _write(file, trace, np.flatnonzero(chosen), udp_port)
    return path


def _write(file: BinaryIO, trace: dict[str, Any], rows: Any, udp_port: int) -> None:
    file.write(struct.pack("<IHHiIII", MAGIC_NS, 2, 4, 0, 0, SNAP_BYTES, LINK_TYPE_ETHERNET))
    times = trace["time_ps"][rows]
    for row, time_ps in zip(rows.tolist(), times.tolist(), strict=True):
        frame, wire_bytes = _frame(trace, row, udp_port)
        captured = frame[:SNAP_BYTES]
        seconds, rest_ps = divmod(time_ps, 10**12)
        file.write(struct.pack("<IIII", seconds, rest_ps // 1000, len(captured), wire_bytes))
        file.write(captured)


def _frame(trace: dict[str, Any], row: int, udp_port: int) -> tuple[bytes, int]:
    """The bytes of a packet that exist, and how long it is."""
    flags, record_bytes = int(trace["flags"][row]), int(trace["wire_bytes"][row])
    traffic_class = int(trace["traffic_class"][row])
    header = trace["headers"][row].tobytes() if "headers" in trace else b""
    is_sums = header[:4] == SUMS_MAGIC
    is_engine = len(header) == ENGINE_BYTES and header[0] != 0 and not is_sums
    if is_sums:
        payload, payload_bytes = header, int(trace["payload_bytes"][row])
    elif is_engine:
        whole = ENGINE_BYTES + int.from_bytes(header[58:60], "big")
        whole += TAG_BYTES if header[2] & AUTHENTICATED_FLAG else 0
        if flags & TRIMMED:  # what the switch left of it, never less than the header
            whole = min(whole, max(ENGINE_BYTES, record_bytes - HEADERS_BYTES))
        payload, payload_bytes = header, whole
    else:
        payload_bytes = max(0, record_bytes - HEADERS_BYTES)
        payload = _words(trace, row).encode()[:payload_bytes]
    destination = int(trace["destination"][row])
    # The engine's control packets belong to no flow; whose they are their header says.
    source = int.from_bytes(header[RANK_AT], "big") if is_engine else int(trace["source"][row])
    source_port = FIRST_SOURCE_PORT + int(trace["path"][row]) % (65536 - FIRST_SOURCE_PORT)
    if is_sums:
        source, destination = int(trace["sender"][row]), int(trace["receiver"][row])
        source_port = udp_port = SUMS_FIRST_PORT + int.from_bytes(header[SUMS_JOB_AT], "big")
    ecn = CE if flags & CONGESTION_MARKED else ECT0 if flags & ECN_CAPABLE else 0
    addresses = _address(source) + _address(destination)
    udp_length = UDP_BYTES + payload_bytes
    udp = struct.pack(">HHHH", source_port, udp_port, udp_length, 0)
    # The pseudo header of RFC 768; zeros that are not there add nothing to a sum.
    check = _checksum(addresses + struct.pack(">HH", 17, udp_length) + udp + payload) or 0xFFFF
    udp = udp[:6] + check.to_bytes(2, "big")
    ip = struct.pack(
        ">BBHHHBBH", 0x45, traffic_class << 5 | ecn, IPV4_BYTES + udp_length, int(trace["number"][row]) & 0xFFFF,
        0x4000, 64, 17, 0,
    )  # fmt: skip
    ip += addresses
    ip = ip[:10] + _checksum(ip).to_bytes(2, "big") + ip[12:]
    ethernet = _station(destination) + _station(source) + b"\x08\x00"
    return ethernet + ip + udp + payload, HEADERS_BYTES + payload_bytes


def _words(trace: dict[str, Any], row: int) -> str:
    """What a packet without a header of its own is, for who reads the capture."""
    kind = int(trace["type"][row])
    words = [
        TYPES.get(kind, f"type {kind}"),
        f"flow {int(trace['flow'][row])}",
        f"number {int(trace['number'][row])}",
    ]
    words += [
        name for bit, name in ((TRIMMED, "trimmed"), (REVERSE, "back")) if int(trace["flags"][row]) & bit
    ]
    return " ".join(words)


def _address(host: int) -> bytes:
    """10.0.0.1 for host 0; what is of no known host is 10.255.255.255."""
    return ((10 << 24) + min(host + 1, 0xFFFFFF)).to_bytes(4, "big")


def _station(host: int) -> bytes:
    """A locally administered address (IEEE 802, 8.4.2)."""
    return b"\x02\x00" + (host + 1 & 0xFFFFFFFF).to_bytes(4, "big")


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    data += b"\x00" * (len(data) % 2)
    total: int = sum(word for (word,) in struct.iter_unpack(">H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
