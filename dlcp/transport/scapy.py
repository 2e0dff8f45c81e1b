"""A scapy layer, to read captures of dlcp's packets (`pip install '.[scapy]'` in a checkout).

    from scapy.utils import rdpcap
    from dlcp.transport.scapy import bind_ports, recognise

    bind_ports(7000)                     # packets to or from this UDP port, or:
    packets = recognise(rdpcap("run.pcap"))  # whatever looks like dlcp on any port
    packets.nsummary()

`python -m dlcp.transport.scapy run.pcap` prints a capture, one packet a line.

Layouts: native/engine/wire.hpp and frames.hpp. This reader shares no code with the engine. It verifies no tags and
decrypts nothing. Building a dissected packet gives its captured bytes again.
"""
# ruff: noqa: RUF012  fields_desc is how a scapy layer is declared

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from typing import Any, TypeVar

try:
    from scapy.fields import (
        ByteEnumField,
        ByteField,
        ConditionalField,
        FieldLenField,
        FieldListField,
        FlagsField,
        IntField,
        LongField,
        PacketListField,
        ShortField,
        StrFixedLenField,
        StrLenField,
        XIntField,
        XLongField,
        XStrFixedLenField,
    )
    from scapy.layers.inet import UDP
    from scapy.packet import Packet, Raw
except ImportError as error:
    raise ImportError(
        "dlcp.transport.scapy needs scapy: pip install '.[scapy]' in a checkout of dlcp"
    ) from error

VERSION = 2
HEADER_BYTES = 64
SHORT_HEADER_BYTES = 32
TAG_BYTES = 16
DATA, CONTROL, HELLO, SHORT_DATA = 1, 2, 3, 4
TYPES = {DATA: "data", CONTROL: "control", HELLO: "hello", SHORT_DATA: "short_data"}
# Lowest bit first.
FLAGS = [
    "critical",
    "authenticated",
    "encrypted",
    "ack_request",
    "first_pass_over",
    "repair",
    "reserved",
    "trimmed",
]
AUTHENTICATED, ENCRYPTED, RESERVED, TRIMMED = (
    1 << FLAGS.index(n) for n in ("authenticated", "encrypted", "reserved", "trimmed")
)
CONTROL_CLASS = 7
# More than fit in a payload; scapy's own limit for lists is 100.
LIST_MAX = 1 << 16
# 10 and 11 are not assigned.
FRAME_TYPES = {
    0: "padding",
    1: "ack",
    2: "complete",
    3: "outcome",
    4: "probe",
    5: "trimmed",
    6: "hold",
    7: "proceed",
    8: "refuse",
    9: "cancel",
    12: "close",
    13: "hello",
    14: "piece",
}

Packets = TypeVar("Packets", bound=Iterable[Packet])


def bind_ports(*ports: int) -> None:
    """Reads UDP payload to or from these ports as dlcp where it looks like it, before any other protocol."""
    ours = [({field: port}, DLCP) for port in ports for field in ("dport", "sport")]
    UDP.payload_guess = [*ours, *UDP.payload_guess]


def unbind_ports(*ports: int) -> None:
    """Takes `bind_ports` back."""
    ours = [({field: port}, DLCP) for port in ports for field in ("dport", "sport")]
    UDP.payload_guess = [guess for guess in UDP.payload_guess if guess not in ours]


def recognise(packets: Packets) -> Packets:
    """The same packets, with UDP payload that nobody claimed and that looks like dlcp read as dlcp."""
    for packet in packets:
        if UDP not in packet or type(packet[UDP].payload) is not Raw:
            continue
        udp = packet[UDP]
        load, behind = udp.payload.load, udp.payload.payload
        if looks_like_dlcp(load) or _is_cut(load, udp.len):
            udp.remove_payload()
            udp.add_payload(DLCP(load))
            if behind:
                udp.lastlayer().add_payload(behind)
    return packets


def looks_like_dlcp(payload: bytes) -> bool:
    """True if version, type, flags, class and length of a UDP payload are as in a dlcp packet.

    A short header states no length, so any that holds header and tag is right.
    """
    if not _header_is_plausible(payload):
        return False
    if payload[1] == SHORT_DATA:
        return bool(payload[2] & TRIMMED) or len(payload) >= _least_bytes(payload)
    return (
        len(payload) <= _whole_bytes(payload)
        if payload[2] & TRIMMED
        else len(payload) == _whole_bytes(payload)
    )


def block_count(message_bytes: int, block_bytes: int) -> int:
    """How many blocks a message has: at least one."""
    return -(-message_bytes // block_bytes) if message_bytes and block_bytes else 1


def bits(words: Iterable[int]) -> list[int]:
    """Positions of the one-bits in 64-bit words; the lowest bit of the first word is 0."""
    return [64 * w + i for w, word in enumerate(words) for i in range(64) if word >> i & 1]


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as text with runs joined, such as "1-4,7"; "none" if there are none."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in runs) or "none"


def _header_is_plausible(payload: bytes) -> bool:
    if len(payload) < SHORT_HEADER_BYTES:
        return False
    version, kind, flags, traffic_class = payload[:4]
    if (
        version != VERSION
        or kind not in TYPES
        or len(payload) < _header_bytes(payload)
        or flags & RESERVED
        or flags & (ENCRYPTED | AUTHENTICATED) == ENCRYPTED
    ):
        return False
    if kind in (DATA, SHORT_DATA):
        return traffic_class < CONTROL_CLASS
    return traffic_class == CONTROL_CLASS and not flags & TRIMMED


def _is_cut(load: bytes, udp_length: int | None) -> bool:
    """True for a plausible header whose end the capture did not take (tcpdump -s), as UDP's own length says."""
    if udp_length is None or len(load) >= udp_length - 8 or not _header_is_plausible(load):
        return False
    if load[1] == SHORT_DATA:
        return udp_length - 8 >= _least_bytes(load)
    return udp_length - 8 == _whole_bytes(load)


def _header_bytes(header: bytes) -> int:
    return SHORT_HEADER_BYTES if header[1] == SHORT_DATA else HEADER_BYTES


def _least_bytes(header: bytes) -> int:
    """Length of an untrimmed datagram with this header and no payload."""
    return _header_bytes(header) + (TAG_BYTES if header[2] & AUTHENTICATED else 0)


def _whole_bytes(header: bytes) -> int:
    """Length of the untrimmed datagram, as its long header says."""
    return _least_bytes(header) + int.from_bytes(header[58:60], "big")


# --- frames -----------------------------------------------------------------------------------------------


class DLCPFrame(Packet):
    """One frame of a control or hello packet; of this very class if of unknown type or malformed."""

    name = "dlcp frame"
    # Bytes of the body that every frame of this type has.
    fixed_bytes = 0
    fields_desc = [
        ByteEnumField("type", 0, FRAME_TYPES),
        ByteField("flags", 0),
        ShortField("length", None),
        StrLenField("body", b"", length_from=lambda p: p.length - 4),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **__: Any) -> type[Packet]:
        """The class that reads these bytes."""
        if cls is not DLCPFrame or not _pkt:
            return cls
        body = _pkt[4 : int.from_bytes(_pkt[2:4], "big")]
        known = FRAME_CLASSES.get(_pkt[0], DLCPFrame)
        return known if len(body) >= known.fixed_bytes and known.counts_agree(_pkt[1], body) else DLCPFrame

    @classmethod
    def counts_agree(cls, flags: int, body: bytes) -> bool:
        """True if the body, no shorter than `fixed_bytes`, has the length that its counts ask for."""
        return True

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """What follows is the next frame."""
        return b"", s

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fills in the length."""
        if self.length is None:
            pkt = pkt[:2] + struct.pack(">H", len(pkt)) + pkt[4:]
        return pkt + pay

    def mysummary(self) -> str:
        """The type, and what matters of the body."""
        return f"{FRAME_TYPES.get(self.type, f'frame {self.type}')}{self.says()}"

    def says(self) -> str:
        """What matters of the body."""
        return " malformed" if self.type in FRAME_CLASSES else f" ({len(self.body)} bytes)"


def _prefix(frame_type: int, flags: list[str] | None = None) -> list[Any]:
    return [
        ByteEnumField("type", frame_type, FRAME_TYPES),
        FlagsField("flags", 0, 8, flags) if flags else ByteField("flags", 0),
        ShortField("length", None),
    ]


def _list(entry: Any) -> list[Any]:
    """A count, and as many entries."""
    return [
        FieldLenField("count", None, count_of=entry.name, fmt=">H"),
        ShortField("zero", 0),
        FieldListField(entry.name, [], entry, count_from=lambda p: p.count, max_count=LIST_MAX),
    ]


def _words(name: str) -> FieldListField:
    """A bitmap."""
    return FieldListField(name, [], XLongField("", 0), count_from=lambda p: p.words, max_count=LIST_MAX)


def _more(fixed_bytes: int) -> StrLenField:
    """What a later version may append to a body of `fixed_bytes`."""
    return StrLenField("more", b"", length_from=lambda p: p.length - 4 - fixed_bytes)


class DLCPPadding(DLCPFrame):
    """Fills a hello to the datagram size that it tries out."""

    name = "dlcp padding"

    def says(self) -> str:
        """How much."""
        return f" ({len(self.body) + 4} bytes)"


class DLCPAck(DLCPFrame):
    """What arrived: bit i of word w is packet largest - 64·w - i."""

    name = "dlcp ack"
    fixed_bytes = 32
    fields_desc = [
        *_prefix(1, ["has_ce", "turn"]),
        LongField("largest", 0),
        IntField("ack_delay_ns", 0),
        IntField("queue_delay_ns", 0),
        LongField("credit_bytes", 0),
        IntField("ce_packets", 0),
        FieldLenField("words", None, count_of="received", fmt=">H"),
        ShortField("zero", 0),
        _words("received"),
        ConditionalField(
            _words("ce"),
            lambda p: bool(p.flags & 1),
        ),
    ]

    @classmethod
    def counts_agree(cls, flags: int, body: bytes) -> bool:
        """True if the bitmaps fill the body."""
        return len(body) == 32 + 8 * int.from_bytes(body[28:30], "big") * (1 + (flags & 1))

    def received_packets(self) -> list[int]:
        """Packet numbers that arrived, as far back as the bitmap goes."""
        return [self.largest - i for i in reversed(bits(self.received)) if i <= self.largest]

    def missing_packets(self) -> list[int]:
        """Packet numbers that had not arrived, as far back as the bitmap goes."""
        oldest = max(0, self.largest - 64 * len(self.received) + 1)
        return sorted({*range(oldest, self.largest + 1)} - {*self.received_packets()})

    def marked_packets(self) -> list[int]:
        """Packet numbers that arrived with congestion experienced."""
        return [self.largest - i for i in reversed(bits(self.ce or [])) if i <= self.largest]

    def says(self) -> str:
        """The largest, then what is not as it should be."""
        missing, marked = self.missing_packets(), self.marked_packets()
        return (
            f" {self.largest}"
            + (f" missing {ranges(missing)}" if missing else "")
            + (f" ce {ranges(marked)}" if marked else "")
        )


class DLCPMessageIds(DLCPFrame):
    """What complete, probe, hold and proceed have in common: a list of messages."""

    fixed_bytes = 4

    @classmethod
    def counts_agree(cls, flags: int, body: bytes) -> bool:
        """True if the list fills the body."""
        return len(body) == 4 + 4 * int.from_bytes(body[:2], "big")

    def says(self) -> str:
        """Which messages."""
        return f" {ranges(self.message_ids)}"


class DLCPComplete(DLCPMessageIds):
    """All blocks of these messages are delivered."""

    name = "dlcp complete"
    fields_desc = [*_prefix(2), *_list(IntField("message_ids", 0))]


class DLCPOutcome(DLCPFrame):
    """A message is over: bit i of word w is block 64·(word_offset + w) + i, 1 if it was abandoned."""

    name = "dlcp outcome"
    fixed_bytes = 16
    fields_desc = [
        *_prefix(3),
        IntField("message_id", 0),
        IntField("abandoned_blocks", 0),
        IntField("word_offset", 0),
        FieldLenField("words", None, count_of="abandoned", fmt=">H"),
        ShortField("zero", 0),
        _words("abandoned"),
    ]

    @classmethod
    def counts_agree(cls, flags: int, body: bytes) -> bool:
        """True if the bitmap fills the body."""
        return len(body) == 16 + 8 * int.from_bytes(body[12:14], "big")

    def abandoned_block_indices(self) -> list[int]:
        """Blocks that this frame names as abandoned."""
        return [64 * self.word_offset + i for i in bits(self.abandoned)]

    def says(self) -> str:
        """Message, and which of its blocks."""
        return (
            f" {self.message_id}: {self.abandoned_blocks} abandoned, {ranges(self.abandoned_block_indices())}"
        )


class DLCPProbe(DLCPMessageIds):
    """What do you have of these messages? None: an ack alone is asked for."""

    name = "dlcp probe"
    fields_desc = [*_prefix(4), *_list(IntField("message_ids", 0))]


class DLCPTrimmed(DLCPFrame):
    """A switch cut these packets."""

    name = "dlcp trimmed"
    fixed_bytes = 4
    fields_desc = [*_prefix(5), *_list(LongField("packet_numbers", 0))]

    @classmethod
    def counts_agree(cls, flags: int, body: bytes) -> bool:
        """True if the list fills the body."""
        return len(body) == 4 + 8 * int.from_bytes(body[:2], "big")

    def says(self) -> str:
        """Which packets."""
        return f" {ranges(self.packet_numbers)}"


class DLCPHold(DLCPMessageIds):
    """No room for these messages now."""

    name = "dlcp hold"
    fields_desc = [*_prefix(6), *_list(IntField("message_ids", 0))]


class DLCPProceed(DLCPMessageIds):
    """There is room for these messages again."""

    name = "dlcp proceed"
    fields_desc = [*_prefix(7), *_list(IntField("message_ids", 0))]


class DLCPRefuse(DLCPFrame):
    """The receiver will not take this message."""

    name = "dlcp refuse"
    fixed_bytes = 8
    fields_desc = [
        *_prefix(8),
        IntField("message_id", 0),
        ByteField("reason", 0),
        StrFixedLenField("zero", bytes(3), 3),
        _more(8),
    ]

    def says(self) -> str:
        """Which message, and why."""
        return f" {self.message_id} reason {self.reason}"


class DLCPCancel(DLCPFrame):
    """The sender gave this message up."""

    name = "dlcp cancel"
    fixed_bytes = 8
    fields_desc = [*_prefix(9), IntField("message_id", 0), IntField("zero", 0), _more(8)]

    def says(self) -> str:
        """Which message."""
        return f" {self.message_id}"


class DLCPClose(DLCPFrame):
    """The peer leaves."""

    name = "dlcp close"
    fixed_bytes = 4
    fields_desc = [*_prefix(12), ByteField("reason", 0), StrFixedLenField("zero", bytes(3), 3), _more(4)]

    def says(self) -> str:
        """Why."""
        return f" reason {self.reason}"


class DLCPHello(DLCPFrame):
    """Session set-up."""

    name = "dlcp hello"
    fixed_bytes = 32
    fields_desc = [
        *_prefix(13),
        XLongField("own_session", 0),
        XLongField("echo_session", 0),
        IntField("destination_rank", 0),
        ShortField("max_datagram_bytes", 0),
        ShortField("received_datagram_bytes", 0),
        FlagsField("hello_flags", 0, 32, ["established", "answer"]),
        XIntField("ciphers", 0),
        _more(32),
    ]

    def says(self) -> str:
        """To whom, which sessions, which datagram sizes."""
        return (
            f" to rank {self.destination_rank} session {self.own_session:#x}"
            + (f" echo {self.echo_session:#x}" if self.echo_session else "")
            + f" datagram {self.max_datagram_bytes}"
            + (f" (got {self.received_datagram_bytes})" if self.received_datagram_bytes else "")
            + (" established" if self.hello_flags.established else "")
        )


class DLCPPiece(DLCPFrame):
    """What stands at `offset` of a data packet that is larger than the path carries."""

    name = "dlcp piece"
    fixed_bytes = 12
    fields_desc = [
        *_prefix(14, ["virtual"]),
        LongField("packet_number", 0),
        ShortField("datagram_bytes", 0),
        ShortField("offset", 0),
        StrLenField("data", b"", length_from=lambda p: p.length - 16),
    ]

    @classmethod
    def counts_agree(cls, flags: int, body: bytes) -> bool:
        """True if the piece lies within its packet."""
        return int.from_bytes(body[10:12], "big") + len(body) - 12 <= int.from_bytes(body[8:10], "big")

    def says(self) -> str:
        """Where in which packet."""
        end = self.offset + len(self.data)
        return f" of packet {self.packet_number} bytes {self.offset} to {end} of {self.datagram_bytes}"


_ALL: tuple[type[DLCPFrame], ...] = (
    DLCPPadding, DLCPAck, DLCPComplete, DLCPOutcome, DLCPProbe, DLCPTrimmed, DLCPHold, DLCPProceed, DLCPRefuse,
    DLCPCancel, DLCPClose, DLCPHello, DLCPPiece,
)  # fmt: skip
FRAME_CLASSES: dict[Any, type[DLCPFrame]] = {kind.fields_desc[0].default: kind for kind in _ALL}
"""By its number, which its own prefix says."""


def _next_frame(_packet: Any, _before: Any, _last: Any, rest: bytes) -> type[Packet]:
    """A frame if its prefix is right; else the rest is not frames."""
    length = int.from_bytes(rest[2:4], "big")
    return DLCPFrame if len(rest) >= 4 and 4 <= length <= len(rest) else Raw


class DLCPFrames(Packet):
    """The payload of a control or hello packet. A malformed end is a last element of class Raw."""

    name = "dlcp frames"
    fields_desc = [PacketListField("frames", [], next_cls_cb=_next_frame, max_count=LIST_MAX)]

    def mysummary(self) -> Any:
        """All frames but padding, in order."""
        shown = [f for f in self.frames if not isinstance(f, DLCPPadding)]
        return "; ".join("malformed" if type(f) is Raw else f.mysummary() for f in shown) or "no frames", [
            DLCP
        ]


class DLCPBlock(Raw):
    """The payload of a data packet, or of an encrypted one."""

    name = "dlcp block"
    show_summary = False

    def mysummary(self) -> str:
        """Nothing: the header says it all."""
        return ""


# --- the header -------------------------------------------------------------------------------------------


def _first_fields(packet_type: int) -> list[Any]:
    """What both headers start with."""
    return [
        ByteField("version", VERSION),
        ByteEnumField("type", packet_type, TYPES),
        FlagsField("flags", 0, 8, FLAGS),
        ByteField("traffic_class", 0),
        ByteField("importance", 0),
        ByteField("key_epoch", 0),
        ShortField("path", 0),
        IntField("job", 0),
    ]


_AUTH_TAG = ConditionalField(
    XStrFixedLenField("auth_tag", bytes(TAG_BYTES), TAG_BYTES), lambda p: bool(p.flags.authenticated)
)


class DLCP(Packet):
    """The 64-byte header and, behind the payload on the wire, the authentication tag."""

    name = "dlcp"
    match_subclass = True
    header_bytes = HEADER_BYTES
    fields_desc = [
        *_first_fields(DATA),
        IntField("source_rank", 0),
        XIntField("session", 0),
        IntField("timestamp_ns", 0),
        LongField("packet_number", 0),
        XLongField("tag", 0),
        IntField("message_id", 0),
        IntField("message_bytes", 0),
        IntField("block_index", 0),
        IntField("critical_blocks", 0),
        ShortField("block_bytes", 0),
        ShortField("payload_bytes", None),
        ShortField("budget", 0),
        ShortField("deadline", 0),
        _AUTH_TAG,
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **__: Any) -> type[Packet]:
        """DLCP, DLCPShort, either's Shortened if the end is missing, Raw if this is something else."""
        if _pkt is None or not issubclass(cls, DLCP):
            return cls
        if _header_is_plausible(_pkt) and _pkt[1] == SHORT_DATA:
            whole = not _pkt[2] & TRIMMED and len(_pkt) >= _least_bytes(_pkt)
            return DLCPShort if whole else DLCPShortShortened
        if not _header_is_plausible(_pkt) or len(_pkt) > _whole_bytes(_pkt):
            return Raw
        return DLCP if len(_pkt) == _whole_bytes(_pkt) else DLCPShortened

    def pre_dissect(self, s: bytes) -> bytes:
        """Fetches the tag from behind the payload, since scapy reads a layer's own bytes first."""
        if not s[2] & AUTHENTICATED:
            return s
        return s[: self.header_bytes] + s[-TAG_BYTES:] + s[self.header_bytes : -TAG_BYTES]

    def post_dissect(self, s: bytes) -> bytes:
        """Drops scapy's copy of the layer's bytes, which has the tag in the wrong place."""
        self.raw_packet_cache = None
        return s

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Frames where they can be read."""
        return DLCPBlock if self.type in (DATA, SHORT_DATA) or self.flags.encrypted else DLCPFrames

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fills in the payload's length and moves the tag behind the payload."""
        if self.header_bytes == HEADER_BYTES and self.payload_bytes is None:
            pkt = pkt[:58] + struct.pack(">H", len(pay)) + pkt[60:]
        return pkt[: self.header_bytes] + pay + pkt[self.header_bytes :]

    def whence(self) -> str:
        """Who sent it."""
        return f"from rank {self.source_rank}"

    def extent(self) -> str:
        """Of how many blocks, and how long."""
        return f" of {block_count(self.message_bytes, self.block_bytes)}, {self.payload_bytes} bytes"

    def mysummary(self) -> Any:
        """Who sent what, and what is special about it."""
        text = f"dlcp {TYPES.get(self.type, self.type)} #{self.packet_number} {self.whence()}"
        if self.type in (DATA, SHORT_DATA):
            value = "critical" if self.flags.critical else f"importance {self.importance}"
            text += f" message {self.message_id} block {self.block_index}{self.extent()}"
            text += f" {value} class {self.traffic_class}"
        special = [str(n) for n in FLAGS if n != "critical" and getattr(self.flags, n)]
        text += f" path {self.path}" + (f" [{' '.join(special)}]" if special else "")
        return text, [UDP]


class DLCPShortened(DLCP):
    """A packet whose end is missing: trimmed by a switch, or cut by the capture (tcpdump -s)."""

    name = "dlcp (shortened)"
    fields_desc = DLCP.fields_desc[:-1]

    def pre_dissect(self, s: bytes) -> bytes:
        """There is no tag to fetch."""
        return s


class DLCPShort(DLCP):
    """The 32-byte header of a block whose message the receiver knows, and the tag behind the payload."""

    name = "dlcp short"
    header_bytes = SHORT_HEADER_BYTES
    fields_desc = [
        *_first_fields(SHORT_DATA),
        XIntField("session", 0),
        IntField("timestamp_ns", 0),
        IntField("packet_number", 0),
        IntField("message_id", 0),
        IntField("block_index", 0),
        _AUTH_TAG,
    ]

    def whence(self) -> str:
        """The receiver's session says who sent it."""
        return f"session {self.session:#x}"

    def extent(self) -> str:
        """How long."""
        return f", {len(self.payload)} bytes"


class DLCPShortShortened(DLCPShort):
    """A packet with a short header whose end is missing."""

    name = "dlcp short (shortened)"
    fields_desc = DLCPShort.fields_desc[:-1]

    def pre_dissect(self, s: bytes) -> bytes:
        """There is no tag to fetch."""
        return s


def main(arguments: list[str]) -> int:
    """Prints a capture, one packet a line: seconds since the first, then the packet."""
    from scapy.utils import PcapReader

    if len(arguments) != 1:
        print("usage: python -m dlcp.transport.scapy CAPTURE", file=sys.stderr)
        return 2
    start = None
    with PcapReader(arguments[0]) as reader:
        for packet in reader:
            start = float(packet.time) if start is None else start
            print(f"{float(packet.time) - start:12.6f}  {recognise([packet])[0].summary()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
