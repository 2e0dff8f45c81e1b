"""What a switch reads of a frame and writes into it, a second time: slow and obvious, from the comments of frame.hpp.

It is the oracle for `switch_frames.txt`, which hold native/switch/frame.cpp and the P4 programs. Checksums are computed
over everything they cover and never by difference; nothing is shared with either.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.switch_twin import Packet

ETHERNET_BYTES = 14
IPV4_BYTES = 20
IPV6_BYTES = 40
UDP_BYTES = 8
DLCP_BYTES = 64
DLCP_TAG_BYTES = 16
TCP, UDP = 6, 17
DLCP_VERSION = 2
DATA, CONTROL, HELLO, SHORT_DATA = 1, 2, 3, 4
AUTHENTICATED, TRIMMED = 0x02, 0x80
UNKNOWN_IMPORTANCE = 254


@dataclass(frozen=True)
class Classification:
    """Who goes into which class, by DSCP value."""

    class_of_dscp: Mapping[int, int] = field(default_factory=dict)
    foreign_class: int = 0
    trimmed_dscp: int | None = None
    """Written into trimmed packets; None: left as it is."""


NOTHING_KNOWN = Packet(foreign=True)


@dataclass(frozen=True)
class Frame:
    """A frame, read. Of a malformed one nothing but that is known."""

    kind: str
    """malformed, other, ipv4 or ipv6."""
    dscp: int = 0
    ecn: int = 0
    network_offset: int = 0
    dlcp_offset: int = 0
    """0: not a dlcp packet."""
    path: int = 0
    flow: int = 0
    packet: Packet = NOTHING_KNOWN


MALFORMED = Frame("malformed")


def number(data: bytes, at: int, size: int) -> int:
    """Big-endian, as everything here."""
    return int.from_bytes(data[at : at + size], "big")


def ones_complement_sum(data: bytes) -> int:
    """RFC 1071: 16-bit words added up, carries to the other end; a last odd byte is the first of its word."""
    words = [number(data + b"\0", i, 2) for i in range(0, len(data), 2)]
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(data: bytes) -> bytes:
    """What makes the sum 0xffff where it is put."""
    return (0xFFFF - ones_complement_sum(data)).to_bytes(2, "big")


def read_frame(frame: bytes, classification: Classification) -> Frame:
    """The frame as a switch sees it."""
    if len(frame) < ETHERNET_BYTES:
        return MALFORMED
    behind = frame[ETHERNET_BYTES:]
    match number(frame, 12, 2):
        case 0x0800:
            if len(behind) < IPV4_BYTES:
                return MALFORMED
            if behind[0] == 0x45:
                return _read_ipv4(frame, classification)
        case 0x86DD:
            if len(behind) < IPV6_BYTES:
                return MALFORMED
            if behind[0] >> 4 == 6:
                return _read_ipv6(frame, classification)
    packet = Packet(
        classification.foreign_class, UNKNOWN_IMPORTANCE, bytes=len(frame), foreign=True, ecn_capable=False
    )
    return Frame("other", flow=zlib.crc32(frame[:ETHERNET_BYTES]), packet=packet)


def _read_ipv4(frame: bytes, classification: Classification) -> Frame:
    header = frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]
    total_bytes = number(header, 2, 2)
    if not IPV4_BYTES <= total_bytes <= len(frame) - ETHERNET_BYTES:
        return MALFORMED
    if ones_complement_sum(header) != 0xFFFF:
        return MALFORMED
    more_fragments, offset = number(header, 6, 2) >> 13 & 1, number(header, 6, 2) & 0x1FFF
    payload = frame[ETHERNET_BYTES + IPV4_BYTES : ETHERNET_BYTES + total_bytes]
    is_fragment = bool(more_fragments or offset)
    return _read_ip(frame, "ipv4", header[1], header[12:20], header[9], payload, is_fragment, classification)


def _read_ipv6(frame: bytes, classification: Classification) -> Frame:
    header = frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV6_BYTES]
    payload_bytes = number(header, 4, 2)
    if payload_bytes > len(frame) - ETHERNET_BYTES - IPV6_BYTES:
        return MALFORMED
    start = ETHERNET_BYTES + IPV6_BYTES
    payload = frame[start : start + payload_bytes]
    tos = number(header, 0, 2) >> 4 & 0xFF
    return _read_ip(frame, "ipv6", tos, header[8:40], header[6], payload, False, classification)


def _read_ip(
    frame: bytes,
    kind: str,
    tos: int,
    addresses: bytes,
    protocol: int,
    payload: bytes,
    is_fragment: bool,
    classification: Classification,
) -> Frame:
    """What is the same of IPv4 and IPv6. `payload`: as long as the IP header says."""
    ports = bytes(4)
    dlcp = b""
    if protocol == UDP and not is_fragment:
        if len(payload) < UDP_BYTES or not UDP_BYTES <= number(payload, 4, 2) <= len(payload):
            return MALFORMED
        ports = payload[:4]
        content = payload[UDP_BYTES : number(payload, 4, 2)]
        dlcp = content if is_dlcp(content) else b""
    elif protocol == TCP and not is_fragment and len(payload) >= 4:
        ports = payload[:4]
    is_data = bool(dlcp) and dlcp[1] in (DATA, SHORT_DATA)

    dscp, ecn = tos >> 2, tos & 3
    foreign = dscp not in classification.class_of_dscp
    packet = Packet(
        traffic_class=classification.class_of_dscp.get(dscp, classification.foreign_class),
        importance=dlcp[4] if is_data else UNKNOWN_IMPORTANCE,
        ecn_capable=ecn != 0,
        trimmable=is_data and not dlcp[2] & TRIMMED and _has_payload_to_cut(dlcp),
        bytes=len(frame),
        foreign=foreign,
    )
    network = {"ipv4": IPV4_BYTES, "ipv6": IPV6_BYTES}[kind]
    return Frame(
        kind,
        dscp,
        ecn,
        ETHERNET_BYTES,
        ETHERNET_BYTES + network + UDP_BYTES if dlcp else 0,
        number(dlcp, 6, 2) if dlcp else 0,
        zlib.crc32(addresses + bytes([protocol]) + ports),
        packet,
    )


def _has_payload_to_cut(dlcp: bytes) -> bool:
    return len(dlcp) > DLCP_BYTES if dlcp[1] == SHORT_DATA else number(dlcp, 58, 2) > 0


def is_dlcp(content: bytes) -> bool:
    """Whether what UDP carries says that it is a dlcp packet; with a long header, by a length that is right."""
    if len(content) < DLCP_BYTES or content[0] != DLCP_VERSION:
        return False
    if content[1] == SHORT_DATA:
        return True
    if content[1] not in (DATA, CONTROL, HELLO):
        return False
    whole = DLCP_BYTES + number(content, 58, 2) + (DLCP_TAG_BYTES if content[2] & AUTHENTICATED else 0)
    return len(content) <= whole if content[2] & TRIMMED else len(content) == whole


def with_ipv4_checksum(frame: bytes) -> bytes:
    """The frame with the checksum that its IPv4 header should have."""
    at = ETHERNET_BYTES + 10
    blank = frame[:at] + bytes(2) + frame[at + 2 :]
    return blank[:at] + checksum(blank[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) + blank[at + 2 :]


def _with_tos(frame: bytes, kind: str, tos: int) -> bytes:
    """The frame with another DSCP and ECN field, whatever that does to its checksum."""
    first, second = frame[ETHERNET_BYTES], frame[ETHERNET_BYTES + 1]
    if kind == "ipv4":
        second = tos
    else:
        first, second = first & 0xF0 | tos >> 4, second & 0x0F | (tos & 0x0F) << 4
    return frame[:ETHERNET_BYTES] + bytes([first, second]) + frame[ETHERNET_BYTES + 2 :]


def mark(frame: bytes, read: Frame) -> bytes:
    """The frame with Congestion Experienced."""
    assert read.kind in ("ipv4", "ipv6")
    assert read.ecn != 0
    marked = _with_tos(frame, read.kind, read.dscp << 2 | 3)
    return with_ipv4_checksum(marked) if read.kind == "ipv4" else marked


def trimmed_bytes(read: Frame) -> int:
    """What trim() leaves."""
    return read.dlcp_offset + DLCP_BYTES


def trim(frame: bytes, read: Frame, classification: Classification) -> bytes:
    """The frame cut behind its dlcp header, sound as it then is."""
    assert read.packet.trimmable
    udp_at = read.dlcp_offset - UDP_BYTES
    dlcp = frame[read.dlcp_offset : read.dlcp_offset + DLCP_BYTES]
    dlcp = dlcp[:2] + bytes([dlcp[2] | TRIMMED]) + dlcp[3:]
    udp_bytes = (UDP_BYTES + DLCP_BYTES).to_bytes(2, "big")
    udp = frame[udp_at : udp_at + 4] + udp_bytes + bytes(2)
    dscp = read.dscp if classification.trimmed_dscp is None else classification.trimmed_dscp
    head = _with_tos(frame[:udp_at], read.kind, dscp << 2 | read.ecn)
    if read.kind == "ipv4":
        total_bytes = (IPV4_BYTES + UDP_BYTES + DLCP_BYTES).to_bytes(2, "big")
        return with_ipv4_checksum(
            head[: ETHERNET_BYTES + 2] + total_bytes + head[ETHERNET_BYTES + 4 :] + udp + dlcp
        )
    head = head[: ETHERNET_BYTES + 4] + udp_bytes + head[ETHERNET_BYTES + 6 :]
    # The pseudo header of RFC 8200, 8.1; a checksum of 0 would say that there is none.
    pseudo = head[ETHERNET_BYTES + 8 :] + bytes(2) + udp_bytes + bytes([0, 0, 0, UDP])
    found = checksum(pseudo + udp + dlcp)
    return head + udp[:6] + (b"\xff\xff" if found == bytes(2) else found) + dlcp
