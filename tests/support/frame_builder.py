"""Ethernet frames for tests of switches, byte by byte: sound unless a test asks for something else."""

from __future__ import annotations

import struct

from tests.support import wire_twin
from tests.support.frame_twin import AUTHENTICATED, TRIMMED, UDP, checksum

DESTINATION = bytes.fromhex("020000000002")
SOURCE = bytes.fromhex("020000000001")
IPV4, IPV6, ARP, VLAN = 0x0800, 0x86DD, 0x0806, 0x8100
V4_ADDRESSES = bytes([10, 0, 0, 1, 10, 0, 1, 2])
V6_ADDRESSES = bytes.fromhex("20010db8000000000000000000000001" + "20010db8000000010000000000000002")


def ethernet(
    payload: bytes, ether_type: int, destination: bytes = DESTINATION, source: bytes = SOURCE
) -> bytes:
    """A frame without its check sequence, and without padding."""
    return destination + source + struct.pack(">H", ether_type) + payload


def ipv4(
    payload: bytes,
    protocol: int = UDP,
    *,
    tos: int = 0,
    addresses: bytes = V4_ADDRESSES,
    fragment: int = 0x4000,
    options: bytes = b"",
    ttl: int = 64,
    identification: int = 0x1234,
    first_byte: int | None = None,
    total_bytes: int | None = None,
    check: bytes | None = None,
) -> bytes:
    """An IPv4 packet. `fragment`: flags and offset, as in the header."""
    words = 5 + len(options) // 4
    head = struct.pack(
        ">BBHHHBB",
        0x40 | words if first_byte is None else first_byte,
        tos,
        words * 4 + len(payload) if total_bytes is None else total_bytes,
        identification,
        fragment,
        ttl,
        protocol,
    )
    right = checksum(head + bytes(2) + addresses + options)
    return head + (right if check is None else check) + addresses + options + payload


def ipv6(
    payload: bytes,
    next_header: int = UDP,
    *,
    tos: int = 0,
    addresses: bytes = V6_ADDRESSES,
    flow_label: int = 0xABCDE,
    hop_limit: int = 64,
    version: int = 6,
    payload_bytes: int | None = None,
) -> bytes:
    """An IPv6 packet."""
    length = len(payload) if payload_bytes is None else payload_bytes
    head = struct.pack(">IHBB", version << 28 | tos << 20 | flow_label, length, next_header, hop_limit)
    return head + addresses + payload


def udp(
    content: bytes, *, source: int = 40000, destination: int = 4791, udp_bytes: int | None = None
) -> bytes:
    """A UDP datagram. Its checksum is not right: no switch looks at it."""
    return (
        struct.pack(
            ">HHHH", source, destination, 8 + len(content) if udp_bytes is None else udp_bytes, 0xBEEF
        )
        + content
    )


def tcp(content: bytes = b"", *, source: int = 40000, destination: int = 443) -> bytes:
    """A TCP segment."""
    return struct.pack(">HHIIBBHHH", source, destination, 1, 2, 0x50, 0x10, 1000, 0xBEEF, 0) + content


def dlcp(
    payload_bytes: int,
    *,
    type: int = wire_twin.DATA,  # noqa: A002
    flags: int = 0,
    importance: int = 100,
    path: int = 0,
    traffic_class: int = 2,
    message_id: int = 9,
    trimmed: bool = False,
    cut: int = 0,
) -> bytes:
    """A dlcp packet, of `payload_bytes`; `trimmed`: without them. `cut`: so many bytes fewer than it says."""
    header = wire_twin.Header(
        type=type,
        flags=flags | (TRIMMED if trimmed else 0),
        traffic_class=traffic_class,
        importance=importance,
        path=path,
        job=0x11223344,
        source_rank=7,
        session=0x89ABCDEF,
        packet_number=1000,
        message_id=message_id,
        message_bytes=20 * payload_bytes,
        block_index=3,
        block_bytes=payload_bytes,
        payload_bytes=payload_bytes,
    )
    body = b"" if trimmed else bytes((37 * i + 11) & 0xFF for i in range(payload_bytes))
    tag = bytes(range(16)) if flags & AUTHENTICATED and not trimmed else b""
    whole = wire_twin.write(header) + body + tag
    return whole[: len(whole) - cut]
