"""The frames of native/ipstack as scapy reads them: fields, and every checksum."""

from __future__ import annotations

import socket
import struct

import pytest

pytest.importorskip("scapy", reason="needs scapy: pip install '.[scapy]'")

from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6MLReport,
    ICMPv6MLReport2,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    IPv6,
)
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from tests.support import vectors

RECORDS = vectors.load("ipstack.txt")
CHECKSUM_FIELDS = {
    IP: "chksum",
    UDP: "chksum",
    ICMP: "chksum",
    ICMPv6ND_NS: "cksum",
    ICMPv6ND_NA: "cksum",
    ICMPv6EchoReply: "cksum",
    ICMPv6MLReport: "cksum",
    ICMPv6MLReport2: "cksum",
}


def computed_again(packet: Packet) -> bytes:
    """The frame with all checksums as scapy writes them."""
    copy = packet.copy()
    for layer, field in CHECKSUM_FIELDS.items():
        if layer in copy:
            delattr(copy[layer], field)
    return bytes(copy)


def pseudo_header_sum(packet: Packet) -> int:
    """RFC 768 and RFC 8200, 8.1: folded, not complemented."""
    length = packet[UDP].len
    if IP in packet:
        header = (
            socket.inet_aton(packet[IP].src)
            + socket.inet_aton(packet[IP].dst)
            + struct.pack("!HH", 17, length)
        )
    else:
        addresses = [socket.inet_pton(socket.AF_INET6, packet[IPv6].getfieldval(f)) for f in ("src", "dst")]
        header = b"".join(addresses) + struct.pack("!II", length, 17)
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize("record", RECORDS, ids=[r["name"] for r in RECORDS])
def test_ipstack_frame_is_read_as_meant(record: dict[str, str]) -> None:
    frame = bytes.fromhex(record["frame"])
    packet = Ether(frame)
    for line in record["field"].splitlines():
        name, expected = line.split("=", 1)
        layer, field = name.rsplit(".", 1)
        assert packet.haslayer(layer), line
        value = packet.getlayer(layer).getfieldval(field)
        assert str(value) == expected, line

    checksums = record.get("checksums", "software")
    again = Ether(computed_again(packet))
    if checksums == "software" or (checksums == "none" and IPv6 in packet):
        assert bytes(again) == frame
        if UDP in packet:
            assert packet[UDP].chksum != 0
    elif checksums == "none":
        assert packet[UDP].chksum == 0
        assert again[IP].chksum == packet[IP].chksum
    else:
        assert packet[UDP].chksum == pseudo_header_sum(packet)
        if IP in packet:
            assert packet[IP].chksum == 0


def test_ipstack_vectors_name_every_kind_of_frame() -> None:
    names = [r["name"] for r in RECORDS]
    assert len(set(names)) == len(names)
    for part in ("arp_", "ndp_", "mld_", "echo_", "udp_v4_", "udp_v6_", "_in_vlan"):
        assert any(part in name for name in names), part
