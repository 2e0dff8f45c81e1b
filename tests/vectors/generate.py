"""Writes the golden vectors from the Python twin, and schedules: `python -m tests.vectors.generate`.

Same twin, same bytes: no randomness, no time. A test compares what this would write with what is committed,
so a change of the wire format shows as a diff of these files.
"""

from __future__ import annotations

import dataclasses

from tests.support import vectors
from tests.support import wire_twin as twin
from tests.support.vectors import Record
from tests.vectors import aggregation, schedules, switch, switch_frames

U16, U32, U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1


def pattern(n: int) -> bytes:
    """Payload that shows its own position."""
    return bytes((37 * i + 11) & 0xFF for i in range(n))


# --- headers.txt ------------------------------------------------------------------------------------------

# A droppable block in the middle of a message: 20 blocks of 8 bytes, the last holds 4.
DROPPABLE = twin.Header(
    type=twin.DATA,
    traffic_class=2,
    importance=100,
    key_epoch=3,
    path=5,
    job=0x11223344,
    source_rank=7,
    session=0x89ABCDEF,
    timestamp_ns=0x01020304,
    packet_number=0x1122334455667788,
    tag=0xA1A2A3A4A5A6A7A8,
    message_id=9,
    message_bytes=156,
    block_index=12,
    critical_blocks=6,
    block_bytes=8,
    payload_bytes=8,
    budget=twin.encode_budget(0.25),
    deadline=twin.encode_deadline(5_000_000),
)
CRITICAL = dataclasses.replace(DROPPABLE, flags=twin.CRITICAL, importance=255, block_index=3)
CONTROL = twin.Header(
    type=twin.CONTROL,
    traffic_class=7,
    job=0x11223344,
    source_rank=7,
    session=0x89ABCDEF,
    timestamp_ns=0x01020304,
    packet_number=77,
    message_id=4,
)
HELLO = dataclasses.replace(CONTROL, type=twin.HELLO, session=0, packet_number=0, message_id=0)
# A block of a message that the receiver knows: what a short header has, and how long the payload is.
SHORT = twin.Header(
    type=twin.SHORT_DATA,
    traffic_class=2,
    importance=100,
    key_epoch=3,
    path=5,
    job=0x11223344,
    session=0x89ABCDEF,
    timestamp_ns=0x01020304,
    packet_number=0x55667788,
    message_id=9,
    block_index=12,
    payload_bytes=40,
)
EMPTY = dataclasses.replace(
    DROPPABLE, message_bytes=0, block_index=0, critical_blocks=0, payload_bytes=0, block_bytes=1408
)
HUGE = dataclasses.replace(
    DROPPABLE,
    message_bytes=U32,
    block_bytes=9000,
    block_index=477218,
    payload_bytes=5295,
    critical_blocks=477219,
)


def header_record(name: str, datagram: bytes, virtual_payload_bytes: int = 0) -> Record:
    """What the twin says about one datagram."""
    record = [("name", name), ("bytes", datagram.hex())]
    if virtual_payload_bytes:
        record.append(("virtual_payload_bytes", str(virtual_payload_bytes)))
    parsed = twin.parse(datagram, virtual_payload_bytes)
    if isinstance(parsed, str):
        return [*record, ("expect", parsed)]
    record.append(("expect", "ok"))
    for field in dataclasses.fields(twin.Header):
        value = getattr(parsed.header, field.name)
        record.append((field.name, twin.TYPE_NAMES[value] if field.name == "type" else str(value)))
    record.append(("payload", "none" if parsed.payload is None else parsed.payload.hex() or "empty"))
    record.append(("auth_tag", "none" if parsed.tag is None else parsed.tag.hex()))
    return record


def headers() -> str:
    """headers.txt: whole datagrams, well-formed and each parse error at its boundary."""
    records: list[Record] = []
    names: set[str] = set()

    def add(name: str, expect: str, datagram: bytes, virtual: int = 0) -> None:
        assert name not in names, name
        names.add(name)
        record = header_record(name, datagram, virtual)
        assert ("expect", expect) in record, (name, expect, dict(record)["expect"])
        records.append(record)

    def packet(name: str, expect: str, base: twin.Header, payload: int | None = None, **changes: int) -> None:
        """A packet whose payload and tag are as long as its header says, unless `payload` says otherwise."""
        header = dataclasses.replace(base, **changes)
        n = header.payload_bytes if payload is None else payload
        tag = bytes(range(16)) if header.flags & twin.AUTHENTICATED else b""
        add(name, expect, twin.write(header) + pattern(n) + tag)

    # Well-formed data.
    packet("droppable", "ok", DROPPABLE)
    packet("critical", "ok", CRITICAL)
    packet("importance lowest", "ok", DROPPABLE, importance=0)
    packet("importance highest of droppable", "ok", DROPPABLE, importance=254)
    packet("class highest of data", "ok", DROPPABLE, traffic_class=6)
    packet("last block is short", "ok", DROPPABLE, block_index=19, payload_bytes=4)
    packet(
        "one block of one byte",
        "ok",
        CRITICAL,
        message_bytes=1,
        block_index=0,
        critical_blocks=1,
        payload_bytes=1,
    )
    packet("message is one full block", "ok", DROPPABLE, message_bytes=8, block_index=0, critical_blocks=0)
    packet("all blocks critical", "ok", CRITICAL, critical_blocks=20)
    packet("no block critical", "ok", DROPPABLE, critical_blocks=0)
    packet("empty message", "ok", EMPTY)
    packet("empty message without block size", "ok", EMPTY, block_bytes=0)
    packet("empty message critical", "ok", EMPTY, flags=twin.CRITICAL, importance=255, critical_blocks=1)
    packet("authenticated", "ok", DROPPABLE, flags=twin.AUTHENTICATED)
    packet("encrypted", "ok", DROPPABLE, flags=twin.AUTHENTICATED | twin.ENCRYPTED)
    packet("authenticated and empty", "ok", EMPTY, flags=twin.AUTHENTICATED)
    packet(
        "flags of the sender",
        "ok",
        CRITICAL,
        flags=twin.CRITICAL | twin.ACK_REQUEST | twin.FIRST_PASS_OVER | twin.REPAIR,
    )
    packet(
        "small fields at their largest", "ok", DROPPABLE,
        key_epoch=255, path=U16, job=U32, source_rank=U32, session=U32, timestamp_ns=U32, packet_number=U64,
        tag=U64, message_id=U32, budget=U16, deadline=U16,
    )  # fmt: skip
    packet(
        "small fields zero", "ok", DROPPABLE,
        traffic_class=0, importance=0, key_epoch=0, path=0, job=0, source_rank=0, session=0, timestamp_ns=0,
        packet_number=0, tag=0, message_id=0, critical_blocks=0, budget=0, deadline=0,
    )  # fmt: skip

    # Virtual payload: lengths without bytes.
    add("virtual", "ok", twin.write(DROPPABLE), 8)
    add("virtual largest message last block", "ok", twin.write(HUGE), HUGE.payload_bytes)
    largest_block = dataclasses.replace(
        HUGE, block_bytes=U16, block_index=65536, payload_bytes=U16, critical_blocks=65537
    )
    add("virtual largest block", "ok", twin.write(largest_block), U16)
    virtual_tag = twin.write(dataclasses.replace(DROPPABLE, flags=twin.AUTHENTICATED)) + bytes(range(16))
    add("virtual authenticated", "ok", virtual_tag, 8)

    # Trimmed: a switch kept the header, or more of it.
    trimmed = dataclasses.replace(DROPPABLE, flags=twin.TRIMMED)
    packet("trimmed to the header", "ok", trimmed, payload=0)
    packet("trimmed in the payload", "ok", trimmed, payload=3)
    packet("trimmed but whole", "ok", trimmed)
    packet("trimmed critical", "ok", CRITICAL, payload=0, flags=twin.CRITICAL | twin.TRIMMED)
    sealed_trimmed = twin.write(dataclasses.replace(DROPPABLE, flags=twin.TRIMMED | twin.AUTHENTICATED))
    add("trimmed authenticated to the header", "ok", sealed_trimmed)
    add("trimmed authenticated but whole", "ok", sealed_trimmed + pattern(8) + bytes(range(16)))
    packet("trimmed empty", "ok", EMPTY, flags=twin.TRIMMED)

    # Short headers.
    packet("short", "ok", SHORT)
    packet("short critical", "ok", SHORT, flags=twin.CRITICAL, importance=255)
    packet("short authenticated", "ok", SHORT, flags=twin.AUTHENTICATED)
    packet("short encrypted", "ok", SHORT, flags=twin.AUTHENTICATED | twin.ENCRYPTED)
    packet("short without payload", "ok", SHORT, payload_bytes=0)
    packet("short authenticated without payload", "ok", SHORT, flags=twin.AUTHENTICATED, payload_bytes=0)
    packet(
        "short fields at their largest", "ok", SHORT,
        key_epoch=255, path=U16, job=U32, session=U32, timestamp_ns=U32, packet_number=U32, message_id=U32,
        block_index=U32,
    )  # fmt: skip
    add("short virtual", "ok", twin.write(SHORT), 8960)
    add("short virtual largest", "ok", twin.write(SHORT), U16)
    short_sealed = twin.write(dataclasses.replace(SHORT, flags=twin.AUTHENTICATED)) + bytes(range(16))
    add("short virtual authenticated", "ok", short_sealed, 8960)
    short_trimmed = twin.write(dataclasses.replace(SHORT, flags=twin.TRIMMED))
    add("short trimmed to the header", "ok", short_trimmed)
    add("short trimmed to a long header's length", "ok", short_trimmed + pattern(32))
    add(
        "short trimmed authenticated in the tag", "ok",
        twin.write(dataclasses.replace(SHORT, flags=twin.TRIMMED | twin.AUTHENTICATED)) + bytes(3),
    )  # fmt: skip

    # Control and hello.
    packet("control without frames", "ok", CONTROL)
    frames = twin.write_frame(twin.Cancel(0x01020304))
    control = dataclasses.replace(CONTROL, payload_bytes=len(frames))
    add("control with a frame", "ok", twin.write(control) + frames)
    add(
        "control authenticated", "ok",
        twin.write(dataclasses.replace(control, flags=twin.AUTHENTICATED)) + frames + bytes(range(16)),
    )  # fmt: skip
    packet(
        "control with message fields is not looked at",
        "ok",
        CONTROL,
        message_bytes=1,
        block_index=9,
        importance=255,
    )
    hello_frame = twin.write_frame(twin.Hello(0x0102030405060708, 0, 3, 1472, 0)) + twin.padding(16)
    hello = dataclasses.replace(HELLO, payload_bytes=len(hello_frame))
    add("hello", "ok", twin.write(hello) + hello_frame)

    # One rule broken at a time, at its edge.
    whole = twin.write(DROPPABLE) + pattern(8)
    add("nothing", "too_short", b"")
    add("header less a byte", "too_short", whole[:63])
    add("header less a byte but virtual", "too_short", whole[:63], 9)
    add("version 0", "bad_version", b"\0" + whole[1:])
    add("version 1", "bad_version", b"\1" + whole[1:])
    add("version 3", "bad_version", b"\3" + whole[1:])
    short = twin.write(SHORT)
    add("short header less a byte", "too_short", short[:31])
    add("long header as long as a short one", "too_short", whole[:32])
    add(
        "short without its tag",
        "bad_length",
        twin.write(dataclasses.replace(SHORT, flags=twin.AUTHENTICATED)),
    )
    add("short less a byte of the tag", "bad_length", short_sealed[:-1])
    add("short virtual more than a payload can be", "bad_length", short, U16 + 1)
    add("short virtual and real", "bad_length", short + b"\0", 8)
    add("short virtual trimmed", "bad_length", short_trimmed, 8)
    packet("short critical with importance 254", "bad_importance", SHORT, flags=twin.CRITICAL, importance=254)
    packet("short droppable with importance 255", "bad_importance", SHORT, importance=255)
    packet("short in the class of control", "bad_class", SHORT, traffic_class=7)
    packet("short with the reserved flag", "bad_flags", SHORT, flags=twin.RESERVED)
    packet("type 0", "bad_type", DROPPABLE, type=0)
    packet("type 5", "bad_type", DROPPABLE, type=5)
    packet("type 255", "bad_type", DROPPABLE, type=255)
    packet("flag reserved", "bad_flags", DROPPABLE, flags=twin.RESERVED)
    packet("flag encrypted alone", "bad_flags", DROPPABLE, flags=twin.ENCRYPTED)
    packet("flag trimmed on control", "bad_flags", CONTROL, flags=twin.TRIMMED)
    packet("flag trimmed on hello", "bad_flags", HELLO, flags=twin.TRIMMED)
    packet("class 8", "bad_class", DROPPABLE, traffic_class=8)
    packet("class 255", "bad_class", DROPPABLE, traffic_class=255)
    packet("class of control on data", "bad_class", DROPPABLE, traffic_class=7)
    packet("class of data on control", "bad_class", CONTROL, traffic_class=6)
    packet("class of data on hello", "bad_class", HELLO, traffic_class=0)
    packet("class 8 on control", "bad_class", CONTROL, traffic_class=8)
    packet("length less a byte", "bad_length", DROPPABLE, payload=7)
    packet("length more a byte", "bad_length", DROPPABLE, payload=9)
    packet("length of control more a byte", "bad_length", CONTROL, payload=1)
    authenticated = twin.write(dataclasses.replace(DROPPABLE, flags=twin.AUTHENTICATED)) + pattern(8)
    add("length without the tag", "bad_length", authenticated)
    add("length less a byte of the tag", "bad_length", authenticated + bytes(15))
    add("length more a byte behind the tag", "bad_length", authenticated + bytes(17))
    packet("length of trimmed more a byte", "bad_length", trimmed, payload=9)
    add("virtual less a byte", "bad_length", twin.write(DROPPABLE), 7)
    add("virtual more a byte", "bad_length", twin.write(DROPPABLE), 9)
    add("virtual and real", "bad_length", whole[:-1], 1)
    add("virtual behind a whole packet", "bad_length", whole, 1)
    add("virtual in control", "bad_length", twin.write(dataclasses.replace(CONTROL, payload_bytes=8)), 8)
    add("virtual part of a trimmed packet", "bad_length", twin.write(trimmed), 7)
    add("virtual largest", "bad_length", twin.write(DROPPABLE), U32)
    packet(
        "block size 0",
        "bad_block",
        DROPPABLE,
        block_bytes=0,
        block_index=0,
        payload_bytes=0,
        critical_blocks=0,
    )
    packet("block index one too large", "bad_block", DROPPABLE, block_index=20)
    packet(
        "block index one too large, full blocks", "bad_block", DROPPABLE, message_bytes=160, block_index=20
    )
    packet("block index largest", "bad_block", DROPPABLE, block_index=U32)
    wrapping = dataclasses.replace(
        DROPPABLE, block_bytes=32768, block_index=1 << 17, message_bytes=1 << 31, payload_bytes=32768
    )
    add("block offset wraps 32 bits", "bad_block", twin.write(wrapping), 32768)
    packet("payload less a byte", "bad_block", DROPPABLE, payload_bytes=7)
    packet("payload more a byte", "bad_block", DROPPABLE, payload_bytes=9)
    packet("payload of the last block as of a full one", "bad_block", DROPPABLE, block_index=19)
    packet("payload of an empty message", "bad_block", EMPTY, payload_bytes=1)
    packet("payload none", "bad_block", DROPPABLE, payload_bytes=0)
    packet("block 1 of an empty message", "bad_block", EMPTY, block_index=1)
    packet("trimmed block index one too large", "bad_block", trimmed, payload=0, block_index=20)
    packet("critical with importance 254", "bad_importance", CRITICAL, importance=254)
    packet("critical with importance 0", "bad_importance", CRITICAL, importance=0)
    packet("droppable with importance 255", "bad_importance", DROPPABLE, importance=255)
    packet("critical blocks one too many", "bad_importance", DROPPABLE, critical_blocks=21)
    packet(
        "critical blocks one too many, full blocks",
        "bad_importance",
        DROPPABLE,
        message_bytes=152,
        critical_blocks=20,
    )
    packet("critical blocks of an empty message", "bad_importance", EMPTY, critical_blocks=2)
    packet("critical blocks largest", "bad_importance", DROPPABLE, critical_blocks=U32)
    add(
        "critical blocks one too many in the largest message", "bad_importance",
        twin.write(dataclasses.replace(HUGE, critical_blocks=477220)), HUGE.payload_bytes,
    )  # fmt: skip

    # Two rules broken: the first in order is named.
    add("version before type", "bad_version", bytes([9, 9]) + whole[2:])
    packet("type before flags", "bad_type", DROPPABLE, type=9, flags=twin.RESERVED)
    packet("flags before class", "bad_flags", DROPPABLE, flags=twin.RESERVED, traffic_class=9)
    packet("class before length", "bad_class", DROPPABLE, payload=0, traffic_class=9)
    packet("length before block", "bad_length", DROPPABLE, payload=0, block_bytes=0)
    packet("block before importance", "bad_block", DROPPABLE, importance=255, block_index=20)

    return vectors.dump(
        "Datagrams, and what parsing them gives. `expect`: ok, or the rule broken first.", records
    )


# --- frames.txt -------------------------------------------------------------------------------------------


def frames() -> str:
    """frames.txt: payloads of control and hello packets."""
    records: list[Record] = []

    def add(name: str, payload: bytes, expect: str = "ok", canonical: bool = False) -> None:
        found, malformed = twin.parse_frames(payload)
        assert expect == ("malformed" if malformed else "ok"), name
        records.append(
            [
                ("name", name),
                ("bytes", payload.hex()),
                ("expect", expect),
                # Writing the frames again gives these bytes.
                ("canonical", "yes" if canonical else "no"),
                *(("frame", vectors.frame_line(f)) for f in found),
            ]
        )

    def written(name: str, *written_frames: twin.Frame) -> None:
        payload = b"".join(map(twin.write_frame, written_frames))
        assert twin.parse_frames(payload) == (list(written_frames), False), name
        add(name, payload, canonical=True)

    words = (0x8000000000000001, 0x0123456789ABCDEF, U64, 0)
    ack = twin.Ack(1000, 12_345, 67_890, 1 << 21, 17, words)
    hello = twin.Hello(0x0102030405060708, 0x1112131415161718, 42, 1472, 1500, 1, 0x321E)
    written("no frames")
    written("ack", ack)
    written("ack with marks", dataclasses.replace(ack, ce=(1, 0, 2, U64)))
    written("ack with a turn", dataclasses.replace(ack, turn=True))
    written("ack without words", twin.Ack(0, 0, 0, 0, 0))
    written("ack without words with marks", twin.Ack(0, 0, 0, 0, 0, (), ()))
    written("ack at its largest", twin.Ack(U64, U32, U32, U64, U32, (U64,) * 128, (U64,) * 128))
    for kind in twin.ID_LISTS:
        written(f"{kind} none", twin.Ids(kind, ()))
        written(f"{kind} some", twin.Ids(kind, (1, 2, U32)))
    written("trimmed none", twin.Trimmed(()))
    written("trimmed some", twin.Trimmed((0, 1 << 40, U64)))
    written("outcome none", twin.Outcome(5, 0, 0))
    written("outcome some", twin.Outcome(U32, 3, 7, (0x3, 1 << 63)))
    written("refuse", twin.Refuse(9, 20))
    written("cancel", twin.Cancel(0x01020304))
    written("close", twin.Close(255))
    written("hello", hello)
    written("hello at its largest", twin.Hello(U64, U64, U32, U16, U16, U32, U32))
    written("piece", twin.Piece(0x0102030405060708, 1472, 1184, b"\1\2\3"))
    written("piece of a virtual packet", twin.Piece(U64, U16, U16 - 4, bytes(4), 1))
    written("piece without bytes", twin.Piece(9, 100, 100, b""))
    written(
        "a control packet",
        ack,
        twin.Ids("complete", (3, 4)),
        twin.Outcome(6, 2, 0, (5,)),
        twin.Ids("probe", ()),
        twin.Cancel(9),
        twin.Close(1),
    )

    # Skipped without a word.
    cancel = twin.write_frame(twin.Cancel(8))
    add("padding alone", twin.padding(4))
    add("padding around", twin.padding(12) + cancel + twin.padding(5))
    add("padding holds anything", twin.raw_frame(0, 255, b"\1\2\3") + cancel)
    add("hello and padding", twin.write_frame(hello) + twin.padding(100))
    add("unknown type", twin.raw_frame(15, 0, b"new") + cancel)
    add("unknown type 255 without body", cancel + twin.raw_frame(255, 0, b""))
    for number in (10, 11):
        add(f"unassigned type {number}", cancel + twin.raw_frame(number, 0, pattern(8)) + cancel)
    # Longer than needed: the rest belongs to a later version.
    add("unknown flags", twin.raw_frame(9, 0xFE, bytes(8)))
    for name in ("refuse", "cancel", "close", "hello"):
        fixed = twin.FIXED_BODY_BYTES[name]
        add(f"{name} longer", twin.raw_frame(twin.FRAME_TYPES.index(name), 0, pattern(fixed + 5)) + cancel)

    # Malformed: what came before stands.
    for n in (1, 2, 3):
        add(f"prefix of {n} bytes", cancel + cancel[:n], "malformed")
    add("length 0", cancel + bytes(8), "malformed")
    add("length 3", cancel + bytes([9, 0, 0, 3, 0, 0]), "malformed")
    add("length beyond the payload", cancel + cancel[:-1], "malformed")
    add("length far beyond the payload", bytes([0, 0, 255, 255]), "malformed")
    for name, fixed in twin.FIXED_BODY_BYTES.items():
        number = twin.FRAME_TYPES.index(name)
        add(
            f"{name} a byte short", cancel + twin.raw_frame(number, 0, bytes(fixed - 1)) + cancel, "malformed"
        )
        add(f"{name} without body", twin.raw_frame(number, 0, b""), "malformed")

    # Counts that disagree with the length: that frame is no good, the next one stands.
    def miscounted(name: str, number: int, body: bytes, flags: int = 0) -> None:
        add(f"{name} miscounted", twin.raw_frame(number, flags, body) + cancel)

    ack_body = twin.write_frame(ack)[4:]
    miscounted("ack less a byte", 1, ack_body[:-1])
    miscounted("ack more a byte", 1, ack_body + b"\0")
    miscounted("ack more a word", 1, ack_body + bytes(8))
    miscounted("ack without its marks", 1, ack_body, twin.ACK_HAS_CE)
    miscounted("ack of 65535 words", 1, ack_body[:28] + b"\xff\xff\0\0")
    outcome_body = twin.write_frame(twin.Outcome(1, 1, 0, (1,)))[4:]
    miscounted("outcome less a byte", 3, outcome_body[:-1])
    miscounted("outcome more a word", 3, outcome_body + bytes(8))
    for kind in twin.ID_LISTS:
        body = twin.write_frame(twin.Ids(kind, (1, 2)))[4:]
        number = twin.FRAME_TYPES.index(kind)
        miscounted(f"{kind} less a byte", number, body[:-1])
        miscounted(f"{kind} more an id", number, body + bytes(4))
        miscounted(f"{kind} of 65535 ids", number, b"\xff\xff\0\0" + body[4:])
    miscounted("piece beyond its packet", 14, bytes(8) + b"\0\5\0\2" + bytes(4))
    miscounted("trimmed with short numbers", 5, b"\0\2\0\0" + bytes(8))
    miscounted("trimmed less a byte", 5, b"\0\1\0\0" + bytes(7))

    return vectors.dump(
        "Payloads of control and hello packets. `frame`: what a reader gets, in order.\n"
        "`canonical`: yes if writing these frames gives these bytes.",
        records,
    )


# --- protected.txt ----------------------------------------------------------------------------------------


def protected() -> str:
    """protected.txt: key derivation and packet protection."""
    records: list[Record] = []
    job_key = bytes(range(32))
    packet_scope = twin.KeyScope("packet", 0x11223344, 3, 7, 0x0102030405060708, 0xF1F2F3F4F5F6F7F8, 7, 0)
    hello_scope = twin.KeyScope("hello", 0x11223344, 7, 3, 0xF1F2F3F4F5F6F7F8, 0, 7, 0)

    def add(
        name: str,
        scope: twin.KeyScope,
        header: twin.Header,
        flip: int | None = None,
        cipher: str = "aes_128_gcm",
    ) -> None:
        key = twin.derive_packet_key(job_key, scope)
        payload = pattern(header.payload_bytes)
        datagram = twin.seal(key, header, payload, cipher)
        if flip is not None:
            at, bit = divmod(flip, 8)
            datagram = datagram[:at] + bytes([datagram[at] ^ 1 << bit]) + datagram[at + 1 :]
        parsed = twin.parse(datagram)
        assert isinstance(parsed, twin.Datagram), (name, parsed)
        opened = twin.unseal(key, parsed, cipher)
        assert opened == (payload if flip is None else None), name
        records.append(
            [
                ("name", name),
                ("job_key", job_key.hex()),
                *((f.name, str(getattr(scope, f.name))) for f in dataclasses.fields(scope)),
                ("packet_key", key.hex()),
                ("cipher", cipher),
                ("packet_number", str(parsed.header.packet_number)),
                ("plain", payload.hex()),
                ("bytes", datagram.hex()),
                ("expect", "bad_tag" if opened is None else "ok"),
            ]
        )

    def block(n: int, flags: int, **changes: int) -> twin.Header:
        return dataclasses.replace(
            DROPPABLE, flags=flags, payload_bytes=n, block_bytes=max(n, 1), message_bytes=n * 20,
            block_index=12 if n else 0, **{"critical_blocks": 0, "key_epoch": 0, **changes},
        )  # fmt: skip

    for word, flags in (
        ("authenticated", twin.AUTHENTICATED),
        ("encrypted", twin.AUTHENTICATED | twin.ENCRYPTED),
    ):
        for n in (0, 1, 15, 16, 17, 64, 255, 1392):
            add(f"{word} {n} bytes", packet_scope, block(n, flags))
        add(f"{word} first packet", packet_scope, block(8, flags, packet_number=0))
        add(f"{word} last packet", packet_scope, block(8, flags, packet_number=U64))
        epoch = dataclasses.replace(packet_scope, epoch=1)
        add(f"{word} next epoch", epoch, block(8, flags, key_epoch=1))
        add(
            f"{word} other direction",
            dataclasses.replace(packet_scope, source_rank=3),
            block(8, flags, source_rank=3),
        )
        for n in (32, 1392):
            add(
                f"{word} short {n} bytes",
                packet_scope,
                dataclasses.replace(SHORT, flags=flags, payload_bytes=n, key_epoch=0),
            )
        header = block(8, flags)
        add(f"{word} header damaged", packet_scope, header, flip=16 * 8)
        add(f"{word} packet number damaged", packet_scope, header, flip=31 * 8 + 7)
        add(f"{word} payload damaged", packet_scope, header, flip=64 * 8 + 3)
        add(f"{word} tag damaged at its start", packet_scope, header, flip=72 * 8)
        add(f"{word} tag damaged at its end", packet_scope, header, flip=87 * 8 + 7)
        frame = twin.write_frame(twin.Hello(hello_scope.low_session, 0, 3, 1472, 0))
        hello = dataclasses.replace(HELLO, flags=flags, payload_bytes=len(frame))
        add(f"{word} hello", hello_scope, hello)
        ciphers = dataclasses.replace(packet_scope, low_ciphers=0x0000321E, high_ciphers=0x000032AF)
        for n in (0, 1, 31, 32, 63, 64, 65, 255, 1392):
            add(f"{word} {n} bytes with AEGIS", ciphers, block(n, flags), cipher="aegis_128x2")
        short = dataclasses.replace(SHORT, flags=flags, payload_bytes=100, key_epoch=0)
        add(f"{word} short with AEGIS", ciphers, short, cipher="aegis_128x2")
        last = block(8, flags, packet_number=U64)
        add(f"{word} last packet with AEGIS", ciphers, last, cipher="aegis_128x2")
        add(f"{word} payload damaged with AEGIS", ciphers, header, 64 * 8 + 3, "aegis_128x2")
        add(f"{word} tag damaged with AEGIS", ciphers, header, 87 * 8 + 7, "aegis_128x2")
        add(f"{word} ciphers", ciphers, block(8, flags))
    limits = twin.KeyScope("packet", U32, 0, U32, U64, U64, U32, 255)
    for more, numbers in (
        ("", {}),
        (", incarnation", {"incarnation": U64}),
        (", ciphers", {"incarnation": U64, "low_ciphers": U32, "high_ciphers": U32}),
    ):
        scope = dataclasses.replace(limits, **numbers)
        add(f"scope at its largest{more}", scope, block(8, twin.AUTHENTICATED, key_epoch=255))

    return vectors.dump(
        "Protected packets. `packet_key` derives from `job_key` and the lines between (protection.hpp).\n"
        "`plain`: the payload before encryption. `bytes`: the datagram; its last 16 bytes are the tag.\n"
        "`expect`: ok, or bad_tag where a bit was flipped on the way.",
        records,
    )


# --- codes.txt --------------------------------------------------------------------------------------------


def codes() -> str:
    """codes.txt: deadline and budget codes."""
    records: list[Record] = []
    us = 1000
    times = [
        0,
        1,
        999,
        us,
        us + 1,
        2 * us,
        2047 * us,
        2047 * us + 1,
        2048 * us,
        2049 * us,
        2050 * us,
        4094 * us,
    ]
    times += [4095 * us, 4096 * us, 5_000_000, 10**9, 60 * 10**9, 3600 * 10**9, 86400 * 10**9]
    for e in (1, 2, 10, 30, 31):
        top = (2047 << e) * us
        times += [top - 1, top, top + 1]
    times += [2**63 - 1]
    for t in sorted(set(times)):
        code = twin.encode_deadline(t)
        records.append(
            [
                ("name", f"deadline {t} ns"),
                ("deadline_ns", str(t)),
                ("code", str(code)),
                ("decoded_ns", str(twin.decode_deadline(code))),
            ]
        )
    for code in (0, 1, 2047, 2048, 2049, 4095, 1 << 11 | 1024, 0x5555, 0xAAAA, 31 << 11, 0xFFFF):
        records.append(
            [
                ("name", f"deadline code {code}"),
                ("code", str(code)),
                ("decoded_ns", str(twin.decode_deadline(code))),
            ]
        )
    ratios = (
        0.0,
        1e-9,
        1 / 65536,
        1.5 / 65536,
        0.001,
        0.01,
        0.05,
        0.1,
        0.25,
        1 / 3,
        0.5,
        0.9,
        0.99,
        65535 / 65536,
    )
    for ratio in (*ratios, 0.9999999999999999):
        budget = twin.encode_budget(ratio)
        for message_bytes in (0, 1, 65535, 65536, 25_000_000, U32):
            records.append(
                [
                    ("name", f"budget {ratio!r} of {message_bytes}"),
                    ("loss_ratio", repr(ratio)),
                    ("budget", str(budget)),
                    ("message_bytes", str(message_bytes)),
                    ("budget_bytes", str(twin.budget_bytes(message_bytes, budget))),
                ]
            )
    return vectors.dump("Deadline and budget codes (wire.hpp).", records)


# --- schedules.txt ----------------------------------------------------------------------------------------


def schedule_records() -> str:
    return vectors.dump(
        "Schedules of all ranks, by collective, algorithm and world size.", schedules.records()
    )


# --- switch_*.txt -----------------------------------------------------------------------------------------


def switch_policies() -> str:
    return vectors.dump(
        "Switch policies: buffers, DSCP values, thresholds per class and level.",
        switch.policies(),
    )


def switch_decisions() -> str:
    return vectors.dump("What becomes of a packet at an output queue.", switch.decisions())


def switch_paths() -> str:
    return vectors.dump("Which of equal paths a packet takes.", switch.paths())


def switch_verdicts() -> str:
    return vectors.dump(
        "What becomes of a packet in the end, foreign ones too, when a trimmed one has to find room once more.",
        switch.verdicts(),
    )


def frames_at_switch() -> str:
    return vectors.dump(
        "Ethernet frames: what a switch reads of them, and the frames that marking and trimming make of them.",
        switch_frames.frames(),
    )


def aggregation_frames() -> str:
    return vectors.dump(
        "Frames through an aggregating switch, in this order, and what leaves it (tests/vectors/aggregation.py).",
        aggregation.records(),
    )


FILES = {
    "headers.txt": headers,
    "frames.txt": frames,
    "protected.txt": protected,
    "codes.txt": codes,
    "schedules.txt": schedule_records,
    "switch_policies.txt": switch_policies,
    "switch_decisions.txt": switch_decisions,
    "switch_verdicts.txt": switch_verdicts,
    "switch_paths.txt": switch_paths,
    "switch_frames.txt": frames_at_switch,
    "aggregation.txt": aggregation_frames,
}


def main() -> None:
    """Writes all files."""
    for name, text in FILES.items():
        (vectors.DIRECTORY / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
