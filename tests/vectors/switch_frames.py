"""What the generator writes into `switch_frames.txt`: frames of all kinds, and what a switch reads and writes."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.support import frame_builder as build
from tests.support import frame_twin as twin
from tests.support.frame_builder import ARP, IPV4, IPV6, VLAN, dlcp, ethernet, ipv4, ipv6, tcp, udp
from tests.support.frame_twin import AUTHENTICATED, CONTROL, HELLO, SHORT_DATA, TCP, UDP, Classification
from tests.support.vectors import Record

# The eight classes, with a value that has none beside each that has one; 56 is that of trimmed packets.
CLASSIFICATION = Classification({0: 0, 8: 1, 16: 2, 24: 3, 32: 4, 40: 5, 48: 6, 50: 7, 56: 7}, 3, 56)
KEEPS_DSCP = Classification(CLASSIFICATION.class_of_dscp, 0, None)
TOS = 16 << 2  # class 2, Not-ECT


def _either(payload: bytes, protocol: int = UDP, tos: int = TOS) -> Iterator[tuple[str, bytes]]:
    """The same over IPv4 and IPv6."""
    yield "ipv4", ethernet(ipv4(payload, protocol, tos=tos), IPV4)
    yield "ipv6", ethernet(ipv6(payload, protocol, tos=tos), IPV6)


def _frames() -> Iterator[tuple[str, bytes]]:
    """Names and frames."""
    block = dlcp(40, path=0x1234)

    # dlcp's packets, and what says of itself that it is one and is not.
    contents = {
        "data": block,
        "data without payload": dlcp(0),
        "data of 1 byte": dlcp(1),
        "data of an odd length": dlcp(41),
        "data, whole packet": dlcp(1392),
        "data authenticated": dlcp(40, flags=AUTHENTICATED),
        "data authenticated without payload": dlcp(0, flags=AUTHENTICATED),
        "data critical": dlcp(40, flags=1, importance=255),
        "data of last path": dlcp(40, path=0xFFFF),
        "control": dlcp(40, type=CONTROL, traffic_class=7, importance=3),
        "hello": dlcp(40, type=HELLO, traffic_class=7),
        "trimmed": dlcp(40, trimmed=True),
        "trimmed authenticated": dlcp(40, flags=AUTHENTICATED, trimmed=True),
        "trimmed in part": dlcp(40, flags=twin.TRIMMED, cut=7),
        "trimmed not at all": dlcp(40, flags=twin.TRIMMED),
        "trimmed too long": dlcp(40, flags=twin.TRIMMED) + b"\0",
        "trimmed control": dlcp(40, type=CONTROL, trimmed=True),
        "version 0": b"\0" + block[1:],
        "version 1": b"\1" + block[1:],
        "version 3": b"\3" + block[1:],
        "type 0": block[:1] + b"\0" + block[2:],
        "type 5": block[:1] + b"\5" + block[2:],
        "short data": dlcp(1392, type=SHORT_DATA),
        "short data, little to cut": dlcp(33, type=SHORT_DATA),
        "short data, nothing to cut": dlcp(32, type=SHORT_DATA),
        "short data below a long header": dlcp(31, type=SHORT_DATA),
        "short data authenticated": dlcp(40, type=SHORT_DATA, flags=AUTHENTICATED),
        "short data authenticated, its tag to cut": dlcp(17, type=SHORT_DATA, flags=AUTHENTICATED),
        "short data critical": dlcp(40, type=SHORT_DATA, flags=1, importance=255, path=0xFFFF),
        "short data trimmed": dlcp(32, type=SHORT_DATA, flags=twin.TRIMMED),
        "short data trimmed not at all": dlcp(40, type=SHORT_DATA, flags=twin.TRIMMED),
        "short data with 58 as of a long header": dlcp(40, type=SHORT_DATA)[:58] + bytes(14),
        "a byte short": block[:-1],
        "a byte long": block + b"\0",
        "authenticated a byte short": dlcp(40, flags=AUTHENTICATED, cut=1),
        "header a byte short": dlcp(0, cut=1),
        "header alone of a packet": dlcp(40, cut=40),
        "not dlcp": bytes(range(1, 101)),
        "no content": b"",
    }
    for name, content in contents.items():
        for ip, frame in _either(udp(content)):
            yield f"{ip} udp {name}", frame
    for importance in (0, 31, 32, 63, 64, 128, 223, 224, 254, 255):
        for ip, frame in _either(udp(dlcp(8, importance=importance))):
            yield f"{ip} udp importance {importance}", frame
    longest = dlcp(0)[:58] + b"\xff\xff" + dlcp(0)[60:]  # its whole length does not fit sixteen bits
    for ip, frame in _either(udp(longest)):
        yield f"{ip} udp payload of 65535 that is not there", frame
    huge = longest[:2] + b"\x82" + longest[3:]
    for ip, frame in _either(udp(huge)):
        yield f"{ip} udp trimmed, payload of 65535", frame
    # Over TCP it is not dlcp, wherever the bytes are.
    for ip, frame in _either(tcp(block), TCP):
        yield f"{ip} tcp", frame

    # DSCP and ECN.
    for dscp in range(64):
        for ip, frame in _either(udp(b"dscp"), tos=dscp << 2):
            yield f"{ip} dscp {dscp}", frame
    for ecn in range(4):
        for ip, frame in _either(udp(dlcp(40)), tos=TOS | ecn):
            yield f"{ip} udp data ecn {ecn}", frame
        for ip, frame in _either(udp(dlcp(40)), tos=10 << 2 | ecn):
            yield f"{ip} udp data foreign ecn {ecn}", frame
        for ip, frame in _either(tcp(), TCP, tos=TOS | ecn):
            yield f"{ip} tcp ecn {ecn}", frame

    # Flows: what tells them apart, and what does not.
    yield "flow other source port", ethernet(ipv4(udp(block, source=40001), tos=TOS), IPV4)
    yield "flow other destination port", ethernet(ipv4(udp(block, destination=4792), tos=TOS), IPV4)
    yield "flow other addresses", ethernet(ipv4(udp(block), tos=TOS, addresses=bytes(range(8))), IPV4)
    back = build.V4_ADDRESSES[4:] + build.V4_ADDRESSES[:4]
    turned = udp(block, source=4791, destination=40000)
    yield "flow other direction", ethernet(ipv4(turned, tos=TOS, addresses=back), IPV4)
    yield (
        "flow same of another packet",
        ethernet(ipv4(udp(dlcp(9)), tos=8 << 2, identification=7, ttl=9), IPV4),
    )
    for ip, frame in _either(b"echo request", 1):
        yield f"{ip} protocol without ports", frame
    for ip, frame in _either(b"", 59):
        yield f"{ip} without payload", frame
    yield (
        "ipv6 behind a hop-by-hop header",
        ethernet(ipv6(bytes([UDP, 0, 1, 4, 0, 0, 0, 0]) + udp(block), 0), IPV6),
    )
    yield "ipv6 fragment", ethernet(ipv6(bytes([UDP, 0, 0, 1, 0, 0, 0, 9]) + udp(block), 44), IPV6)

    # Fragments have no ports, nor UDP's length.
    for name, fragment in (("first", 0x2000), ("middle", 0x2001), ("last", 0x0001), ("far", 0x1FFF)):
        for kind, payload in ((UDP, udp(block, udp_bytes=9000)), (TCP, tcp(block))):
            frame = ethernet(ipv4(payload, kind, tos=TOS, fragment=fragment), IPV4)
            yield f"ipv4 {name} fragment of {'udp' if kind == UDP else 'tcp'}", frame
    yield "ipv4 reserved flag", ethernet(ipv4(udp(block), tos=TOS, fragment=0x8000), IPV4)

    # TCP and UDP cut short by the IP header, with padding behind.
    for size in (0, 3, 4, 19):
        frame = ethernet(ipv4(tcp()[:size], TCP, tos=TOS) + b"\xaa" * 40, IPV4)
        yield f"ipv4 tcp of {size} bytes", frame
        frame = ethernet(ipv6(tcp()[:size], TCP, tos=TOS) + b"\xaa" * 40, IPV6)
        yield f"ipv6 tcp of {size} bytes", frame
        frame = ethernet(ipv4(udp(b"")[:size], tos=TOS) + b"\0\x08" * 20, IPV4)
        yield f"ipv4 udp of {size} bytes", frame
        frame = ethernet(ipv6(udp(b"")[:size], tos=TOS) + b"\0\x08" * 20, IPV6)
        yield f"ipv6 udp of {size} bytes", frame
    for ip, frame in _either(udp(block)):
        yield f"{ip} udp padded", frame + bytes(9)
    for ip, frame in _either(udp(b"abc")):
        yield f"{ip} udp padded to 60", frame.ljust(60, b"\0")
    for ip, frame in _either(udp(block, udp_bytes=8 + len(block)) + b"behind"):
        yield f"{ip} udp shorter than ip", frame

    # Lengths that are not there, and headers that are wrong.
    for length in (0, 7, 8 + len(block) + 1, 0xFFFF):
        for ip, frame in _either(udp(block, udp_bytes=length)):
            yield f"{ip} udp length {length}", frame
    for length in (0, 19, 20 + 8 + len(block) + 1, 0xFFFF):
        frame = ethernet(ipv4(udp(block), tos=TOS, total_bytes=length), IPV4)
        yield f"ipv4 length {length}", frame
    frame = ethernet(ipv4(udp(block), tos=TOS, total_bytes=20), IPV4)
    yield "ipv4 length of a header alone, udp", frame
    frame = ethernet(ipv4(b"icmp", 1, tos=TOS, total_bytes=20), IPV4)
    yield "ipv4 length of a header alone", frame
    for length in (8 + len(block) + 1, 0xFFFF):
        yield f"ipv6 length {length}", ethernet(ipv6(udp(block), tos=TOS, payload_bytes=length), IPV6)
    yield "ipv6 length 0, udp", ethernet(ipv6(udp(block), tos=TOS, payload_bytes=0), IPV6)
    right = ipv4(udp(block), tos=TOS)[10:12]
    for bit in (0, 7, 15):
        wrong = (int.from_bytes(right, "big") ^ 1 << bit).to_bytes(2, "big")
        yield f"ipv4 checksum bit {bit}", ethernet(ipv4(udp(block), tos=TOS, check=wrong), IPV4)
    yield "ipv4 checksum 0 that is wrong", ethernet(ipv4(udp(block), tos=TOS, check=bytes(2)), IPV4)
    # Either zero of one's complement makes the sum come out (RFC 1071, 1).
    identification = _identification_for_checksum(bytes(2))
    for zero in ("0000", "ffff"):
        packet = ipv4(udp(block), tos=TOS | 1, identification=identification, check=bytes.fromhex(zero))
        yield f"ipv4 checksum {zero}", ethernet(packet, IPV4)
    packet = ipv4(
        udp(block), tos=TOS | 3, identification=_identification_for_checksum(bytes(2), 3), check=b"\xff\xff"
    )
    yield "ipv4 checksum ffff, marked already", ethernet(packet, IPV4)
    # The checksum of UDP that the trimmed packet would have is 0.
    yield "ipv6 udp checksum 0 when trimmed", _zero_checksum_when_trimmed()
    for size in (1, 13, 14, 33, 34, 41, 42, 105, 106, 145):
        yield f"ipv4 cut to {size}", ethernet(ipv4(udp(block), tos=TOS), IPV4)[:size]
    for size in (53, 54, 61, 62, 125, 126, 165):
        yield f"ipv6 cut to {size}", ethernet(ipv6(udp(block), tos=TOS), IPV6)[:size]
    yield "empty", b""

    # Foreign: what is not read.
    yield "ipv4 with options", ethernet(ipv4(udp(block), tos=TOS, options=b"\1\1\1\0"), IPV4)
    yield (
        "ipv4 with options, wrong checksum",
        ethernet(ipv4(udp(block), tos=TOS, options=b"\1\1\1\0", check=b"\0\1"), IPV4),
    )
    for first in (0x44, 0x40, 0x55, 0x65, 0x05):
        yield f"ipv4 first byte {first:02x}", ethernet(ipv4(udp(block), tos=TOS, first_byte=first), IPV4)
    yield "ipv6 version 4", ethernet(ipv6(udp(block), tos=TOS, version=4), IPV6)
    yield "vlan", ethernet(b"\0\5\x08\0" + ipv4(udp(block), tos=TOS), VLAN)
    yield "arp", ethernet(bytes.fromhex("0001080006040001") + bytes(20), ARP)
    yield "ethernet header alone", ethernet(b"", 0x88CC)
    yield "ieee 802.3 length", ethernet(b"\x42\x42\3" + bytes(43), 46)
    yield "broadcast", ethernet(b"\0" * 46, 0x1234, destination=b"\xff" * 6)


def _identification_for_checksum(wanted: bytes, ecn: int = 1) -> int:
    """What to identify a packet by that its header's checksum comes out so."""
    for identification in range(2**16):
        if ipv4(udp(dlcp(40, path=0x1234)), tos=TOS | ecn, identification=identification)[10:12] == wanted:
            return identification
    raise AssertionError(wanted)


def _zero_checksum_when_trimmed() -> bytes:
    """A frame whose trimmed rest sums up to 0xffff before UDP's checksum is in it."""

    def frame(message_id: int) -> bytes:
        return ethernet(ipv6(udp(dlcp(40, message_id=message_id)), tos=TOS), IPV6)

    for message_id in range(2**16):
        trimmed = twin.trim(
            frame(message_id), twin.read_frame(frame(message_id), CLASSIFICATION), CLASSIFICATION
        )
        if trimmed[60:62] == b"\xff\xff":
            return frame(message_id)
    raise AssertionError


def _random_frames() -> Iterator[tuple[str, bytes]]:
    """Sound frames with bytes changed here and there, most of them in the headers."""
    draw = random.Random("frames")
    for index in range(60):
        content = dlcp(
            draw.choice((0, 1, 40)),
            type=draw.choice((1, 1, 2, 3, 4)),
            flags=draw.choice((0, 1, AUTHENTICATED)),
            importance=draw.randrange(256),
            path=draw.randrange(2**16),
            trimmed=draw.random() < 0.2,
        )
        for ip, frame in _either(udp(content), tos=draw.randrange(256)):
            changed = bytearray(frame)
            for _ in range(draw.choice((0, 1, 1, 3))):
                changed[draw.randrange(min(130, len(changed)))] = draw.randrange(256)
            yield f"{ip} random {index}", bytes(changed)


def frames() -> list[Record]:
    """Each frame, under the classification that replaces the DSCP of trimmed packets; some under the other."""
    records: list[Record] = []
    for name, frame in (*_frames(), *_random_frames()):
        records.append(_record(name, frame, CLASSIFICATION))
    for ip, frame in _either(udp(dlcp(40)), tos=TOS | 2):
        records.append(_record(f"{ip} trimmed packets keep their dscp", frame, KEEPS_DSCP))
    return records


def _record(name: str, frame: bytes, by: Classification) -> Record:
    read = twin.read_frame(frame, by)
    record: Record = [
        ("name", name),
        ("classes", " ".join(f"{dscp}={number}" for dscp, number in by.class_of_dscp.items())),
        ("foreign_class", str(by.foreign_class)),
        ("trimmed_dscp", "none" if by.trimmed_dscp is None else str(by.trimmed_dscp)),
        ("frame", frame.hex()),
        ("kind", read.kind),
    ]
    if read.kind == "malformed":
        return record
    packet = read.packet
    record += [
        *(
            (key, str(getattr(read, key)))
            for key in ("dscp", "ecn", "network_offset", "dlcp_offset", "path", "flow")
        ),
        ("traffic_class", str(packet.traffic_class)),
        ("foreign", str(int(packet.foreign))),
        ("importance", str(packet.importance)),
        ("ecn_capable", str(int(packet.ecn_capable))),
        ("trimmable", str(int(packet.trimmable))),
    ]
    if packet.ecn_capable:
        record.append(("marked", twin.mark(frame, read).hex()))
    if packet.trimmable:
        record.append(("trimmed", twin.trim(frame, read, by).hex()))
    return record
