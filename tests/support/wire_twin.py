"""The wire format a second time: slow, obvious, written from the comments of the C++ headers.

It is the oracle for the golden vectors and for tests that draw packets at random. It shares no code with the
engine and prefers the plainest formulation (ceiling division, lists of integers) over the engine's. It never
raises on bytes from outside: a datagram is either a `Datagram` or the name of a parse error.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.support.aegis_twin import NONCE_BYTES, Aegis128X2

VERSION = 2
HEADER_BYTES = 64
SHORT_HEADER_BYTES = 32
TAG_BYTES = 16

DATA, CONTROL, HELLO, SHORT_DATA = 1, 2, 3, 4
TYPE_NAMES = {DATA: "data", CONTROL: "control", HELLO: "hello", SHORT_DATA: "short_data"}

CRITICAL = 1 << 0
AUTHENTICATED = 1 << 1
ENCRYPTED = 1 << 2
ACK_REQUEST = 1 << 3
FIRST_PASS_OVER = 1 << 4
REPAIR = 1 << 5
RESERVED = 1 << 6
TRIMMED = 1 << 7

CONTROL_CLASS = 7
IMPORTANCE_CRITICAL = 255

# In the order of the checks, as wire::ParseError.
PARSE_ERRORS = (
    "none",
    "too_short",
    "bad_version",
    "bad_type",
    "bad_flags",
    "bad_class",
    "bad_length",
    "bad_block",
    "bad_importance",
)


# --- the header -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """The fields behind the version byte, in wire order, with their widths in `HEADER_FORMAT`.

    Of a short header the fields in `SHORT_FIELDS` count, and of the packet number its low 32 bits.
    """

    type: int = DATA
    flags: int = 0
    traffic_class: int = 0
    importance: int = 0
    key_epoch: int = 0
    path: int = 0
    job: int = 0
    source_rank: int = 0
    session: int = 0
    timestamp_ns: int = 0
    packet_number: int = 0
    tag: int = 0
    message_id: int = 0
    message_bytes: int = 0
    block_index: int = 0
    critical_blocks: int = 0
    block_bytes: int = 0
    payload_bytes: int = 0
    budget: int = 0
    deadline: int = 0


HEADER_FORMAT = ">BBBBBBH" + "IIII" + "QQ" + "IIII" + "HHHH"
assert struct.calcsize(HEADER_FORMAT) == HEADER_BYTES
SHORT_FIELDS = (
    "type", "flags", "traffic_class", "importance", "key_epoch", "path", "job",
    "session", "timestamp_ns", "packet_number", "message_id", "block_index",
)  # fmt: skip
SHORT_FORMAT = ">BBBBBBH" + "IIIIII"
assert struct.calcsize(SHORT_FORMAT) == SHORT_HEADER_BYTES


@dataclass(frozen=True)
class Datagram:
    """A datagram that parsed. `payload` and `tag` are None where the bytes are not there."""

    header: Header
    header_bytes: bytes
    payload: bytes | None
    tag: bytes | None


def write(header: Header) -> bytes:
    """The bytes of a header; nothing is checked but that each value fits its field."""
    if header.type == SHORT_DATA:
        values = {name: getattr(header, name) for name in SHORT_FIELDS}
        values["packet_number"] %= 1 << 32
        return struct.pack(SHORT_FORMAT, VERSION, *values.values())
    return struct.pack(HEADER_FORMAT, VERSION, *(getattr(header, f.name) for f in fields(Header)))


def block_count(message_bytes: int, block_bytes: int) -> int:
    """How many blocks a message has: at least one."""
    return 1 if message_bytes == 0 else -(-message_bytes // block_bytes)


def expand_packet_number(low: int, largest: int) -> int:
    """The packet number with these low 32 bits that is nearest to `largest`; of two as near, the smaller."""
    around = largest >> 32
    candidates = [(epoch << 32) + low for epoch in range(max(0, around - 1), around + 2)]
    return min(candidates, key=lambda n: abs(n - largest))


def parse(datagram: bytes, virtual_payload_bytes: int = 0) -> Datagram | str:
    """The parsed datagram, or the name of the first rule it breaks."""
    if len(datagram) < SHORT_HEADER_BYTES:
        return "too_short"
    if datagram[0] != VERSION:
        return "bad_version"
    if datagram[1] not in TYPE_NAMES:
        return "bad_type"
    is_short = datagram[1] == SHORT_DATA
    header_bytes = SHORT_HEADER_BYTES if is_short else HEADER_BYTES
    if len(datagram) < header_bytes:
        return "too_short"
    if is_short:
        _, *values = struct.unpack(SHORT_FORMAT, datagram[:header_bytes])
        h = Header(**dict(zip(SHORT_FIELDS, values, strict=True)))
    else:
        _, *values = struct.unpack(HEADER_FORMAT, datagram[:header_bytes])
        h = Header(*values)
    is_data = h.type in (DATA, SHORT_DATA)

    if h.flags & RESERVED or (h.flags & ENCRYPTED and not h.flags & AUTHENTICATED):
        return "bad_flags"
    if h.flags & TRIMMED and not is_data:
        return "bad_flags"
    if h.traffic_class not in (range(7) if is_data else [CONTROL_CLASS]):
        return "bad_class"

    tag_bytes = TAG_BYTES if h.flags & AUTHENTICATED else 0
    length = len(datagram) + virtual_payload_bytes
    if is_short and not h.flags & TRIMMED:
        if not 0 <= length - header_bytes - tag_bytes <= 0xFFFF:
            return "bad_length"
        h = replace(h, payload_bytes=length - header_bytes - tag_bytes)
    # Of a trimmed packet with a short header, any length is right.
    whole = length if is_short else header_bytes + h.payload_bytes + tag_bytes
    if length > whole or (length < whole and not h.flags & TRIMMED):
        return "bad_length"
    if virtual_payload_bytes and (not is_data or virtual_payload_bytes != h.payload_bytes):
        return "bad_length"

    if h.type == DATA:
        if h.message_bytes > 0 and h.block_bytes == 0:
            return "bad_block"
        if h.block_index >= block_count(h.message_bytes, h.block_bytes):
            return "bad_block"
        start = h.block_index * h.block_bytes
        if h.payload_bytes != min(h.block_bytes, h.message_bytes - start):
            return "bad_block"
        if h.critical_blocks > block_count(h.message_bytes, h.block_bytes):
            return "bad_importance"
    if is_data and bool(h.flags & CRITICAL) != (h.importance == IMPORTANCE_CRITICAL):
        return "bad_importance"

    trimmed = bool(h.flags & TRIMMED)
    payload = tag = None
    if not trimmed and not virtual_payload_bytes:
        payload = datagram[header_bytes : header_bytes + h.payload_bytes]
    if not trimmed and tag_bytes:
        tag = datagram[-TAG_BYTES:]
    return Datagram(h, datagram[:header_bytes], payload, tag)


# --- codes ------------------------------------------------------------------------------------------------


def decode_deadline(code: int) -> int:
    """Nanoseconds that a deadline code stands for."""
    exponent, mantissa = code >> 11, code & 0x7FF
    return (mantissa << exponent) * 1000


def encode_deadline(deadline_ns: int) -> int:
    """The code of the soonest time that is not before `deadline_ns`; the last code if there is none."""
    if deadline_ns <= 0:
        return 0
    for exponent in range(32):
        mantissa = -(-deadline_ns // (1000 << exponent))
        if mantissa < 2048:
            return exponent << 11 | mantissa
    return 0xFFFF


def encode_budget(loss_ratio: float) -> int:
    """`loss_ratio` in 65536ths, rounded down; outside [0, 1) the nearer end, NaN 0."""
    if math.isnan(loss_ratio) or loss_ratio < 0:
        return 0
    if loss_ratio >= 1:
        return 65535
    return math.floor(Fraction(loss_ratio) * 65536)


def budget_bytes(message_bytes: int, budget: int) -> int:
    """Bytes that may be abandoned, rounded down."""
    return message_bytes * budget // 65536


# --- frames -----------------------------------------------------------------------------------------------

FRAME_TYPES: tuple[str | None, ...] = (
    "padding",
    "ack",
    "complete",
    "outcome",
    "probe",
    "trimmed",
    "hold",
    "proceed",
    "refuse",
    "cancel",
    None,  # 10 and 11 are not assigned
    None,
    "close",
    "hello",
    "piece",
)
ID_LISTS = ("complete", "probe", "hold", "proceed")
ACK_HAS_CE = 1
ACK_TURN = 2

# Bytes of the part of each body that is always there.
FIXED_BODY_BYTES = {
    "ack": 32,
    "complete": 4,
    "outcome": 16,
    "probe": 4,
    "trimmed": 4,
    "hold": 4,
    "proceed": 4,
    "refuse": 8,
    "cancel": 8,
    "close": 4,
    "hello": 32,
    "piece": 12,
}


@dataclass(frozen=True)
class Ack:
    """What arrived: bit i of word w is packet `largest` - 64·w - i."""

    largest: int
    ack_delay_ns: int
    queue_delay_ns: int
    credit_bytes: int
    ce_packets: int
    received: tuple[int, ...] = ()
    ce: tuple[int, ...] | None = None
    turn: bool = False


@dataclass(frozen=True)
class Ids:
    """complete, probe, hold or proceed."""

    type: str
    message_ids: tuple[int, ...]


@dataclass(frozen=True)
class Trimmed:
    """Packets that a switch cut."""

    packet_numbers: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """Which blocks were abandoned: bit i of word w is block 64·(word_offset + w) + i."""

    message_id: int
    abandoned_blocks: int
    word_offset: int
    abandoned: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refuse:
    """The receiver will not take this message."""

    message_id: int
    reason: int


@dataclass(frozen=True)
class Cancel:
    """The sender gave this message up."""

    message_id: int


@dataclass(frozen=True)
class Close:
    """The peer leaves."""

    reason: int


@dataclass(frozen=True)
class Hello:
    """Session set-up."""

    own_session: int
    echo_session: int
    destination_rank: int
    max_datagram_bytes: int
    received_datagram_bytes: int
    flags: int = 0
    ciphers: int = 0


@dataclass(frozen=True)
class Piece:
    """What stands at `offset` of a data packet that is larger than the path carries. Flag 1: its payload is virtual."""

    packet_number: int
    datagram_bytes: int
    offset: int
    data: bytes
    flags: int = 0


@dataclass(frozen=True)
class Miscounted:
    """A frame whose counts and length disagree: the reader yields it, its own read function refuses it."""

    type: str


Frame = Ack | Ids | Trimmed | Outcome | Refuse | Cancel | Close | Hello | Piece | Miscounted


def raw_frame(type_number: int, flags: int, body: bytes) -> bytes:
    """Prefix and body."""
    return struct.pack(">BBH", type_number, flags, 4 + len(body)) + body


def frame_type(frame: Frame) -> str:
    """The word for a frame's type."""
    if isinstance(frame, Ids | Miscounted):
        return frame.type
    return type(frame).__name__.lower()


def write_frame(frame: Frame) -> bytes:
    """The bytes of one frame."""
    flags = 0
    match frame:
        case Ack(largest, delay, owd, credit, ce_packets, received, ce, turn):
            body = struct.pack(">QIIQIHH", largest, delay, owd, credit, ce_packets, len(received), 0)
            body += struct.pack(f">{len(received)}Q", *received)
            flags = ACK_TURN if turn else 0
            if ce is not None:
                flags |= ACK_HAS_CE
                body += struct.pack(f">{len(ce)}Q", *ce)
        case Ids(_, ids):
            body = struct.pack(f">HH{len(ids)}I", len(ids), 0, *ids)
        case Trimmed(numbers):
            body = struct.pack(f">HH{len(numbers)}Q", len(numbers), 0, *numbers)
        case Outcome(message_id, blocks, offset, words):
            body = struct.pack(f">IIIHH{len(words)}Q", message_id, blocks, offset, len(words), 0, *words)
        case Refuse(message_id, reason):
            body = struct.pack(">IB3x", message_id, reason)
        case Cancel(message_id):
            body = struct.pack(">II", message_id, 0)
        case Close(reason):
            body = struct.pack(">B3x", reason)
        case Hello(own, echo, rank, most, received_bytes, hello_flags, ciphers):
            body = struct.pack(">QQIHHII", own, echo, rank, most, received_bytes, hello_flags, ciphers)
        case Piece(number, datagram_bytes, offset, data, flags):
            body = struct.pack(">QHH", number, datagram_bytes, offset) + data
        case Miscounted():
            raise ValueError("a miscounted frame has no bytes of its own")
    return raw_frame(FRAME_TYPES.index(frame_type(frame)), flags, body)


def padding(frame_bytes: int) -> bytes:
    """A padding frame of that many bytes, prefix included."""
    return raw_frame(0, 0, bytes(frame_bytes - 4))


def _read_body(name: str, flags: int, body: bytes) -> Frame:
    fixed, rest = body[: FIXED_BODY_BYTES[name]], body[FIXED_BODY_BYTES[name] :]

    def entries(code: str, count: int, data: bytes) -> tuple[int, ...] | None:
        width = struct.calcsize(">" + code)
        return struct.unpack(f">{count}{code}", data) if len(data) == count * width else None

    if name == "ack":
        largest, delay, owd, credit, ce_packets, words, _ = struct.unpack(">QIIQIHH", fixed)
        bitmaps = entries("Q", words * (2 if flags & ACK_HAS_CE else 1), rest)
        if bitmaps is None:
            return Miscounted(name)
        ce = bitmaps[words:] if flags & ACK_HAS_CE else None
        return Ack(largest, delay, owd, credit, ce_packets, bitmaps[:words], ce, bool(flags & ACK_TURN))
    if name == "outcome":
        message_id, blocks, offset, words, _ = struct.unpack(">IIIHH", fixed)
        bitmap = entries("Q", words, rest)
        return Miscounted(name) if bitmap is None else Outcome(message_id, blocks, offset, bitmap)
    if name in ID_LISTS:
        ids = entries("I", struct.unpack(">HH", fixed)[0], rest)
        return Miscounted(name) if ids is None else Ids(name, ids)
    if name == "trimmed":
        numbers = entries("Q", struct.unpack(">HH", fixed)[0], rest)
        return Miscounted(name) if numbers is None else Trimmed(numbers)
    if name == "refuse":
        return Refuse(*struct.unpack(">IB3x", fixed))
    if name == "cancel":
        return Cancel(*struct.unpack(">I4x", fixed))
    if name == "close":
        return Close(*struct.unpack(">B3x", fixed))
    if name == "piece":
        number, datagram_bytes, offset = struct.unpack(">QHH", fixed)
        fits = offset + len(rest) <= datagram_bytes
        return Piece(number, datagram_bytes, offset, rest, flags) if fits else Miscounted(name)
    assert name == "hello"
    return Hello(*struct.unpack(">QQIHHII", fixed))


def parse_frames(payload: bytes) -> tuple[list[Frame], bool]:
    """The frames before the first malformed one, without padding and unknown types; True if there was one."""
    found: list[Frame] = []
    while payload:
        if len(payload) < 4:
            return found, True
        type_number, flags, length = struct.unpack(">BBH", payload[:4])
        if not 4 <= length <= len(payload):
            return found, True
        body, payload = payload[4:length], payload[length:]
        if type_number == 0 or type_number >= len(FRAME_TYPES):
            continue
        name = FRAME_TYPES[type_number]
        if name is None:
            continue
        if len(body) < FIXED_BODY_BYTES[name]:
            return found, True
        found.append(_read_body(name, flags, body))
    return found, False


# --- packet protection --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyScope:
    """What one packet key is for; see protection.hpp."""

    label: str
    job: int = 0
    low_rank: int = 0
    high_rank: int = 0
    low_session: int = 0
    high_session: int = 0
    source_rank: int = 0
    epoch: int = 0
    incarnation: int = 0
    low_ciphers: int = 0
    high_ciphers: int = 0


def derive_packet_key(job_key: bytes, scope: KeyScope) -> bytes:
    """HKDF-SHA256 (RFC 5869): the 16-byte key of one direction of one session and epoch."""
    info = scope.label.encode("ascii") + struct.pack(
        ">IIIQQIB",
        scope.job,
        scope.low_rank,
        scope.high_rank,
        scope.low_session,
        scope.high_session,
        scope.source_rank,
        scope.epoch,
    )
    if scope.low_ciphers or scope.high_ciphers:
        info += struct.pack(">QII", scope.incarnation, scope.low_ciphers, scope.high_ciphers)
    elif scope.incarnation:
        info += struct.pack(">Q", scope.incarnation)
    return HKDF(hashes.SHA256(), length=16, salt=b"dlcp v1", info=info).derive(job_key)


CIPHERS: dict[str, tuple[type[AESGCM] | type[Aegis128X2], int]] = {
    "aes_128_gcm": (AESGCM, 12),
    "aegis_128x2": (Aegis128X2, NONCE_BYTES),
}
"""By name: what protects a packet, and the bytes of its nonce."""


def _cipher(name: str, key: bytes, packet_number: int) -> tuple[AESGCM | Aegis128X2, bytes]:
    make, nonce_bytes = CIPHERS[name]
    return make(key), packet_number.to_bytes(nonce_bytes, "big")


def _authenticated_header(header: bytes) -> bytes:
    return header[:2] + bytes([header[2] & ~TRIMMED]) + header[3:]


def seal(key: bytes, header: Header, payload: bytes, cipher: str = "aes_128_gcm") -> bytes:
    """The whole datagram, protected as the header's flags say."""
    if not header.flags & AUTHENTICATED:
        return write(header) + payload
    head = _authenticated_header(write(header))
    sealer, nonce = _cipher(cipher, key, header.packet_number)
    if header.flags & ENCRYPTED:
        return write(header) + sealer.encrypt(nonce, payload, head)
    return write(header) + payload + sealer.encrypt(nonce, b"", head + payload)


def unseal(key: bytes, datagram: Datagram, cipher: str = "aes_128_gcm") -> bytes | None:
    """The payload if the tag is right, else None."""
    if datagram.payload is None or datagram.tag is None:
        return None
    head = _authenticated_header(datagram.header_bytes)
    opener, nonce = _cipher(cipher, key, datagram.header.packet_number)
    try:
        if datagram.header.flags & ENCRYPTED:
            return opener.decrypt(nonce, datagram.payload + datagram.tag, head)
        opener.decrypt(nonce, datagram.tag, head + datagram.payload)
    except InvalidTag:
        return None
    return datagram.payload


def trim(datagram: bytes) -> bytes:
    """What a switch leaves of a datagram that it trims: the header, marked."""
    return datagram[:2] + bytes([datagram[2] | TRIMMED]) + datagram[3:HEADER_BYTES]
