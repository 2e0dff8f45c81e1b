"""The Python twin of the wire format: it wrote the golden vectors, and holds what the format promises."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlcp import _native
from tests.support import vectors
from tests.support import wire_twin as twin
from tests.support.aegis_twin import Aegis128X2
from tests.vectors import generate

U8, U16, U32, U64 = (st.integers(0, 2**n - 1) for n in (8, 16, 32, 64))
WORDS = st.lists(U64, max_size=4).map(tuple)
FIELD_WIDTHS = dict(
    zip(
        (f.name for f in dataclasses.fields(twin.Header)),
        [U8] * 5 + [U16] + [U32] * 4 + [U64] * 2 + [U32] * 4 + [U16] * 4,
        strict=True,
    )
)  # fmt: skip

any_header = st.builds(twin.Header, **FIELD_WIDTHS)
any_frame = st.one_of(
    st.builds(twin.Ack, U64, U32, U32, U64, U32, WORDS),
    st.lists(st.tuples(U64, U64), max_size=4).flatmap(
        lambda pairs: st.builds(
            twin.Ack, U64, U32, U32, U64, U32,
            st.just(tuple(a for a, _ in pairs)), st.just(tuple(b for _, b in pairs)),
        )
    ),
    st.builds(twin.Ids, st.sampled_from(twin.ID_LISTS), st.lists(U32, max_size=5).map(tuple)),
    st.builds(twin.Trimmed, st.lists(U64, max_size=5).map(tuple)),
    st.builds(twin.Outcome, U32, U32, U32, WORDS),
    st.builds(twin.Refuse, U32, U8),
    st.builds(twin.Cancel, U32),
    st.builds(twin.Close, U8),
    st.builds(twin.Hello, U64, U64, U32, U16, U16, U32, U32),
    st.builds(
        lambda number, offset, data, more, flags: twin.Piece(number, offset + len(data) + more, offset, data, flags),
        U64, U8, st.binary(max_size=20), U8, st.integers(0, 1),
    ),
)  # fmt: skip


@st.composite
def data_packets(draw: st.DrawFn) -> tuple[twin.Header, bytes]:
    """A well-formed data packet: a block of a message that has it."""
    block_bytes = draw(st.integers(1, 300))
    message_bytes = draw(st.integers(0, 5000))
    blocks = twin.block_count(message_bytes, block_bytes)
    index = draw(st.integers(0, blocks - 1))
    held = min(block_bytes, message_bytes - index * block_bytes)
    critical = draw(st.booleans())
    protection = draw(st.sampled_from([0, twin.AUTHENTICATED, twin.AUTHENTICATED | twin.ENCRYPTED]))
    header = dataclasses.replace(
        draw(any_header),
        type=twin.DATA,
        flags=protection | (twin.CRITICAL if critical else 0),
        traffic_class=draw(st.integers(0, 6)),
        importance=255 if critical else draw(st.integers(0, 254)),
        message_bytes=message_bytes,
        block_index=index,
        block_bytes=block_bytes,
        payload_bytes=held,
        critical_blocks=draw(st.integers(0, blocks)),
    )
    return header, draw(st.binary(min_size=held, max_size=held))


# --- the files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", generate.FILES)
def test_vectors_are_what_the_twin_would_write(name: str) -> None:
    committed = (vectors.DIRECTORY / name).read_text(encoding="utf-8")
    assert generate.FILES[name]() == committed, "run: python -m tests.vectors.generate, and look at the diff"


@pytest.mark.parametrize("name", generate.FILES)
def test_vectors_have_unique_names(name: str) -> None:
    names = [record["name"] for record in vectors.load(name)]
    assert len(set(names)) == len(names) > 0


def test_vectors_cover_every_parse_error_and_frame_type() -> None:
    expected = {record["expect"] for record in vectors.load("headers.txt")}
    assert expected == {"ok", *twin.PARSE_ERRORS[1:]}
    lines = "\n".join(record.get("frame", "") for record in vectors.load("frames.txt")).splitlines()
    assert {line.split()[0] for line in lines if line} == set(twin.FRAME_TYPES[1:]) - {None}


def test_header_by_hand() -> None:
    """One datagram written out by hand from the table in wire.hpp, so that the twin cannot drift alone."""
    datagram = bytes.fromhex(
        "02 01 0b 06  ff 02 0304"  # version, type, flags, class, importance, epoch, path
        "00000005  00000006"  # job, source_rank
        "00000007  00000008"  # session, timestamp_ns
        "0000000000000009"  # packet_number
        "000000000000000a"  # tag
        "0000000b  00000005"  # message_id, message_bytes
        "00000002  00000003"  # block_index, critical_blocks
        "0002 0001 000e 080f"  # block_bytes, payload_bytes, budget, deadline
        "55" + "66" * 16
    )
    expected = twin.Header(1, 0x0B, 6, 255, 2, 0x0304, 5, 6, 7, 8, 9, 10, 11, 5, 2, 3, 2, 1, 14, 0x080F)
    assert twin.parse(datagram) == twin.Datagram(expected, datagram[:64], b"\x55", b"\x66" * 16)


def test_short_header_by_hand() -> None:
    """The short header likewise."""
    datagram = bytes.fromhex(
        "02 04 0b 06  ff 02 0304"  # version, type, flags, class, importance, epoch, path
        "00000005  00000006  00000007"  # job, session, timestamp_ns
        "00000008  00000009  0000000a"  # packet_number, message_id, block_index
        "5555" + "66" * 16
    )
    expected = twin.Header(
        type=4, flags=0x0B, traffic_class=6, importance=255, key_epoch=2, path=0x0304, job=5, session=6,
        timestamp_ns=7, packet_number=8, message_id=9, block_index=10, payload_bytes=2,
    )  # fmt: skip
    assert twin.parse(datagram) == twin.Datagram(expected, datagram[:32], b"\x55" * 2, b"\x66" * 16)


@given(U64.filter(lambda n: n < 2**62), st.integers(-(2**31) + 1, 2**31))
def test_packet_number_survives_its_low_half(largest: int, distance: int) -> None:
    """A number within half of 2^32 of the largest received is found again."""
    number = max(0, largest + distance)
    assume(abs(number - largest) < 2**31)
    assert twin.expand_packet_number(number % 2**32, largest) == number


# --- headers ----------------------------------------------------------------------------------------------


@given(any_header)
def test_header_write_is_64_bytes_and_keeps_every_field(header: twin.Header) -> None:
    written = twin.write(header)
    assert len(written) == 64
    as_control = dataclasses.replace(header, type=twin.CONTROL, flags=0, traffic_class=7, payload_bytes=0)
    parsed = twin.parse(twin.write(as_control))
    assert isinstance(parsed, twin.Datagram)
    assert parsed.header == as_control


@given(data_packets())
def test_data_packet_round_trip(packet: tuple[twin.Header, bytes]) -> None:
    header, payload = packet
    tag = bytes(16) if header.flags & twin.AUTHENTICATED else b""
    datagram = twin.write(header) + payload + tag
    assert twin.parse(datagram) == twin.Datagram(header, datagram[:64], payload, tag or None)
    virtual = twin.parse(twin.write(header) + tag, len(payload))
    assert virtual == twin.Datagram(header, datagram[:64], None if payload else b"", tag or None)
    trimmed = twin.parse(twin.trim(datagram))
    assert isinstance(trimmed, twin.Datagram)
    assert (trimmed.payload, trimmed.tag) == (None, None)
    assert trimmed.header == dataclasses.replace(header, flags=header.flags | twin.TRIMMED)


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_parse_of_any_bytes_answers(datagram: bytes, virtual_payload_bytes: int) -> None:
    result = twin.parse(datagram, virtual_payload_bytes)
    assert isinstance(result, twin.Datagram) or result in twin.PARSE_ERRORS[1:]


@given(data_packets(), st.integers(0, 63), U8)
def test_parse_of_a_damaged_packet_answers(packet: tuple[twin.Header, bytes], at: int, value: int) -> None:
    header, payload = packet
    datagram = bytearray(twin.write(header) + payload + bytes(16 if header.flags & twin.AUTHENTICATED else 0))
    datagram[at] = value
    result = twin.parse(bytes(datagram))
    if isinstance(result, twin.Datagram) and result.header.type == twin.DATA:
        h = result.header
        assert h.block_index * h.block_bytes + h.payload_bytes <= h.message_bytes
        assert h.critical_blocks <= twin.block_count(h.message_bytes, h.block_bytes)


# --- frames -----------------------------------------------------------------------------------------------


@given(st.lists(any_frame, max_size=5))
def test_frames_round_trip(frames: list[twin.Frame]) -> None:
    assert twin.parse_frames(b"".join(map(twin.write_frame, frames))) == (frames, False)


@given(st.lists(any_frame, max_size=3), st.integers(4, 40), st.integers(15, 255), st.binary(max_size=20))
def test_padding_and_unknown_frames_are_skipped(
    frames: list[twin.Frame], padding_bytes: int, unknown: int, body: bytes
) -> None:
    between = twin.padding(padding_bytes) + twin.raw_frame(unknown, 0, body)
    payload = between + between.join(map(twin.write_frame, frames)) + between
    assert twin.parse_frames(payload) == (frames, False)


@given(st.binary(max_size=200))
def test_frames_of_any_bytes_answer(payload: bytes) -> None:
    twin.parse_frames(payload)


@given(st.lists(any_frame, min_size=1, max_size=4), st.data())
def test_frames_before_a_cut_stand(frames: list[twin.Frame], data: st.DataObject) -> None:
    written = [twin.write_frame(f) for f in frames]
    cut = data.draw(st.integers(1, len(written[-1]) - 1))
    found, malformed = twin.parse_frames(b"".join(written)[:-cut])
    assert malformed
    assert found == frames[:-1]


# --- codes ------------------------------------------------------------------------------------------------


@given(st.integers(1, (2047 << 31) * 1000))
def test_deadline_code_rounds_up_by_little(deadline_ns: int) -> None:
    coded = twin.decode_deadline(twin.encode_deadline(deadline_ns))
    assert deadline_ns <= coded
    assert coded - deadline_ns < 1000 or (coded - deadline_ns) * 1000 < deadline_ns


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_deadline_code_keeps_order(a: int, b: int) -> None:
    assume(a <= b)
    assert twin.encode_deadline(a) <= twin.encode_deadline(b)


@given(st.floats(0, 1, exclude_max=True), U32)
def test_budget_never_exceeds_the_ratio(loss_ratio: float, message_bytes: int) -> None:
    budget = twin.budget_bytes(message_bytes, twin.encode_budget(loss_ratio))
    assert budget <= Fraction(loss_ratio) * message_bytes
    assert budget < message_bytes or message_bytes == 0
    assert budget >= Fraction(loss_ratio) * message_bytes - Fraction(message_bytes, 65536) - 1


# --- protection -------------------------------------------------------------------------------------------

KEY = bytes(range(16))


@given(data_packets())
def test_sealed_packet_opens(packet: tuple[twin.Header, bytes]) -> None:
    header, payload = packet
    assume(header.flags & twin.AUTHENTICATED)
    parsed = twin.parse(twin.seal(KEY, header, payload))
    assert isinstance(parsed, twin.Datagram)
    assert twin.unseal(KEY, parsed) == payload
    assert twin.unseal(bytes(16), parsed) is None


@given(data_packets(), st.data())
def test_sealed_packet_with_a_flipped_bit_does_not_open(
    packet: tuple[twin.Header, bytes], data: st.DataObject
) -> None:
    header, payload = packet
    assume(header.flags & twin.AUTHENTICATED)
    datagram = bytearray(twin.seal(KEY, header, payload))
    bit = data.draw(st.integers(0, 8 * len(datagram) - 1))
    datagram[bit // 8] ^= 1 << bit % 8
    parsed = twin.parse(bytes(datagram))
    if isinstance(parsed, twin.Datagram):
        assert twin.unseal(KEY, parsed) is None


def test_aegis_twin_gives_the_published_vectors() -> None:
    """draft-irtf-cfrg-aegis-aead-18, AEGIS-128X2: test vectors 1 and 2."""
    cipher, nonce = Aegis128X2(bytes(range(16))), bytes(range(16, 32))
    assert cipher.encrypt(nonce, b"", b"").hex() == "63117dc57756e402819a82e13eca8379"
    text = (
        "5795544301997f93621b278809d6331b3bfa6f18e90db12c4aa35965b5e98c5fc6fb4e54bcb6111842c20637252eff74"
        "7cb3a8f85b37de80919a589fe0f24872bc926360696739e05520647e390989e1eb5fd42f99678a0276a498f8c454761c"
        "9d6aacb647ad56be62b29c22cd4b5761b38f43d5a5ee062f"
    )
    plain, associated = bytes([4, 5, 6, 7]) * 30, bytes([1, 2, 3, 4]) * 2
    assert cipher.encrypt(nonce, plain, associated).hex() == text + "1aebc200804f405cab637f2adebb6d77"


def test_aegis_is_there_and_gives_the_vectors() -> None:
    """By the package aeg, or by libaegis of this machine."""
    if "aes" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("no AES instructions on this processor")
    assert "aegis_128x2" in _native.offered_ciphers()
    tried = 0
    for record in vectors.load("protected.txt"):
        if record["cipher"] != "aegis_128x2" or record["expect"] != "ok":
            continue
        datagram = twin.parse(bytes.fromhex(record["bytes"]))
        assert isinstance(datagram, twin.Datagram)
        if datagram.header.flags & twin.ENCRYPTED:
            continue
        tag = _native.authenticate(
            bytes.fromhex(record["packet_key"]),
            datagram.header_bytes,
            datagram.header.packet_number,
            datagram.payload,
            cipher="aegis_128x2",
        )
        assert tag == datagram.tag, record["name"]
        tried += 1
    assert tried


def test_packet_key_differs_in_every_part_of_its_scope() -> None:
    scope = twin.KeyScope("packet", 1, 2, 3, 4, 5, 6, 7)
    others = [dataclasses.replace(scope, label="hello")] + [
        dataclasses.replace(scope, **{f.name: getattr(scope, f.name) + 1})
        for f in dataclasses.fields(scope)
        if f.name != "label"
    ]
    keys = {twin.derive_packet_key(bytes(32), s) for s in [scope, *others]}
    assert len(keys) == 1 + len(others) == 12
