"""The interpreter of BMv2's JSON against its format's description: expressions, primitives, hashes and checksums.

Programs are a few lines of JSON each (tests/support/bmv2/tiny.py); figures are worked out by hand, or of RFCs.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.bmv2 import Packet, Program, Seeded, UnsupportedError, Words
from tests.support.bmv2.calculations import ALGORITHMS
from tests.support.bmv2.tiny import (
    action,
    assign,
    field,
    header,
    number,
    operation,
    program,
    step,
    table,
)

WIDE = field("meta", "wide")
BYTE = field("meta", "byte")
FRAME = bytes.fromhex("08 0020 deadbeef") + b"payload"


def after(steps: list[dict[str, Any]], frame: bytes = FRAME, **more: Any) -> Packet:
    """The packet when ingress has run these steps on it."""
    (queued,) = Program(program(steps, **more)).ingress(frame, 3)
    return queued.packet


# ---- expressions ----


@pytest.mark.parametrize(
    ("op", "left", "right", "result"),
    [
        ("+", 0xFFFF_FFFF_FFFF_FFFF, 1, 0),  # wrapped when written
        ("-", 0, 1, 0xFFFF_FFFF_FFFF_FFFF),
        ("*", 0x1_0000_0001, 0x1_0000_0001, 0x2_0000_0001),
        ("&", 0b1100, 0b1010, 0b1000),
        ("|", 0b1100, 0b1010, 0b1110),
        ("^", 0b1100, 0b1010, 0b0110),
        ("<<", 1, 63, 1 << 63),
        ("<<", 1, 64, 0),
        (">>", 0xF0, 4, 0xF),
        (">>", -16, 2, 0xFFFF_FFFF_FFFF_FFFC),  # arithmetic of signed values
        ("/", 17, 5, 3),
        ("%", 17, 5, 2),
        ("two_comp_mod", 257, 8, 1),
        ("two_comp_mod", -129, 8, 127),
        ("usat_cast", 300, 8, 255),
        ("usat_cast", -1, 8, 0),
        ("sat_cast", 200, 8, 127),
        ("sat_cast", -200, 8, 2**64 - 128),
    ],
)
def test_expression_of_numbers(op: str, left: int, right: int, result: int) -> None:
    packet = after([assign(WIDE, operation(op, number(left), number(right)))])
    assert packet["meta.wide"] == result


@pytest.mark.parametrize(
    ("op", "left", "right", "result"),
    [("==", 1, 1, 1), ("!=", 1, 1, 0), ("<", 1, 2, 1), ("<=", 2, 2, 1), (">", 1, 2, 0), (">=", 1, 2, 0)],
)
def test_expression_compares(op: str, left: int, right: int, result: int) -> None:
    compared = operation("b2d", None, operation(op, number(left), number(right)))
    assert after([assign(BYTE, compared)])["meta.byte"] == result


def test_expression_of_truth_values() -> None:
    yes = operation("d2b", None, number(7))
    no = operation("not", None, yes)
    for op, left, right, result in [
        ("and", yes, no, 0),
        ("and", yes, yes, 1),
        ("or", no, yes, 1),
        ("or", no, no, 0),
    ]:
        assert (
            after([assign(BYTE, operation("b2d", None, operation(op, left, right)))])["meta.byte"] == result
        )


def test_expression_chooses() -> None:
    chosen = operation("?", number(3), number(4), cond=operation("==", field("h", "kind"), number(8)))
    assert after([assign(BYTE, chosen)])["meta.byte"] == 3


def test_expression_negates_bits_and_slices() -> None:
    packet = after([assign(BYTE, operation("~", None, number(0x0F)))])
    assert packet["meta.byte"] == 0xF0
    # word[23:16], as the compiler writes it
    slice_ = operation("&", operation(">>", field("h", "word"), number(16)), number(0xFF))
    assert after([assign(BYTE, slice_)])["meta.byte"] == 0xAD


def test_signed_field_wraps_as_twos_complement() -> None:
    packet = after([assign(field("meta", "signed"), number(200))])
    assert packet.fields[packet.layout.field("meta", "signed").slot] == -56


def test_expression_of_validity() -> None:
    for name, valid in [("h", 1), ("second", 0)]:
        assert after([assign(BYTE, field(name, "$valid$"))])["meta.byte"] == valid
        assert (
            after([assign(BYTE, operation("b2d", None, operation("valid", None, header(name))))])["meta.byte"]
            == valid
        )


# ---- primitives ----


def test_headers_added_copied_and_removed_count_into_the_length() -> None:
    added = step("add_header", header("second"))
    egress = [assign(WIDE, field("standard_metadata", "packet_length"))]
    one = Program(program([added, assign(field("second", "kind"), number(5))], egress=egress))
    assert one.process(FRAME, 0) == [(1, FRAME[:7] + bytes([5, 0, 0, 0, 0, 0, 0]) + b"payload")]
    (queued,) = one.ingress(FRAME, 0)
    one.egress(queued)
    assert queued.packet["meta.wide"] == len(FRAME) + 7
    removed = Program(
        program([step("remove_header", header("h")), step("remove_header", header("second"))], egress=egress)
    )
    assert removed.process(FRAME, 0) == [(1, b"payload")]
    (queued,) = removed.ingress(FRAME, 0)
    removed.egress(queued)
    assert queued.packet["meta.wide"] == len(FRAME) - 7
    copied = Program(program([step("assign_header", header("second"), header("h"))]))
    assert copied.process(FRAME, 0) == [(1, FRAME[:7] + FRAME)]


def test_a_header_added_anew_is_zero() -> None:
    steps = [step("remove_header", header("h")), step("add_header", header("h"))]
    assert Program(program(steps)).process(FRAME, 0) == [(1, bytes(7) + b"payload")]


def test_registers_keep_their_width_and_their_state() -> None:
    cells = {"type": "register_array", "value": "cells"}
    steps = [
        step("register_read", WIDE, cells, number(2)),
        step("register_write", cells, number(2), operation("+", WIDE, number(0x9000))),
    ]
    one = Program(program(steps))
    for _ in range(2):
        one.process(FRAME, 0)
    assert one.register("cells") == [0, 0, 0x2000, 0]
    one.register("cells")[2] = 7
    (queued,) = one.ingress(FRAME, 0)
    assert queued.packet["meta.wide"] == 7


def test_register_outside_its_array_is_an_error() -> None:
    outside = step("register_read", WIDE, {"type": "register_array", "value": "cells"}, number(4))
    with pytest.raises(IndexError):
        after([outside])


def test_counter_counts_packets_and_the_bytes_they_came_with() -> None:
    count = step("count", {"type": "counter_array", "value": "packets"}, number(1))
    one = Program(program([step("remove_header", header("h")), count]))
    for _ in range(3):
        one.process(FRAME, 0)
    counters = one.counter("packets")
    assert [(c.packets, c.bytes) for c in counters] == [(0, 0), (3, 3 * len(FRAME)), (0, 0), (0, 0)]


def test_random_words_are_given_or_seeded() -> None:
    draw = step("modify_field_rng_uniform", WIDE, number(3), number(9))
    one = Program(program([draw]))
    one.random = Words([3, 9])
    assert [one.ingress(FRAME, 0)[0].packet["meta.wide"] for _ in range(2)] == [3, 9]
    with pytest.raises(IndexError, match="no word left"):
        one.ingress(FRAME, 0)
    one.random = Words([10])
    with pytest.raises(ValueError, match="0xa is not in"):
        one.ingress(FRAME, 0)
    drawn = []
    for _ in range(2):
        one.random = Seeded(5)
        drawn.append([one.ingress(FRAME, 0)[0].packet["meta.wide"] for _ in range(100)])
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) == set(range(3, 10))  # both ends are included


def test_random_of_an_empty_range_writes_nothing() -> None:
    draw = step("modify_field_rng_uniform", WIDE, number(9), number(3))
    assert after([assign(WIDE, number(77)), draw])["meta.wide"] == 77


def test_truncate_cuts_the_whole_packet_at_the_least_length() -> None:
    one = Program(program([step("truncate", number(9)), step("truncate", number(12))]))
    assert one.process(FRAME, 0) == [(1, FRAME[:9])]


def test_mark_to_drop_takes_the_group_as_well() -> None:
    steps = [
        assign(field("standard_metadata", "mcast_grp"), number(1)),
        step("mark_to_drop", header("standard_metadata")),
    ]
    one = Program(program(steps))
    one.set_group(1, [2, 3])
    assert one.process(FRAME, 0) == []


def test_exit_ends_the_control() -> None:
    mark = action(3, "mark", [assign(field("h", "kind"), number(9))])
    one = Program(program([step("exit")], tables=[table("t", [], [mark], (3, []))], actions=[mark]))
    assert one.process(FRAME, 0) == [(1, FRAME)]


def test_jumps_inside_an_action() -> None:
    # if (kind == 0) byte = 1 else byte = 2
    steps = [
        step("_jump_if_zero", field("h", "kind"), number(3)),
        assign(BYTE, number(2)),
        step("_jump", number(4)),
        assign(BYTE, number(1)),
        assign(WIDE, number(5)),
    ]
    for kind, byte in [(0, 1), (8, 2)]:
        packet = after(steps, bytes([kind]) + FRAME[1:])
        assert (packet["meta.byte"], packet["meta.wide"]) == (byte, 5)


def test_log_message_and_assertion() -> None:
    values = {"type": "parameters_vector", "value": [field("h", "kind"), number(4)]}
    one = Program(program([step("log_msg", {"type": "string", "value": "kind {} of {}"}, values)]))
    one.process(FRAME, 0)
    assert one.messages == ["kind 8 of 4"]
    with pytest.raises(AssertionError, match="the program's own"):
        after([step("assert", operation("==", field("h", "kind"), number(9)))])


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([step("execute_meter", number(1))], "primitive execute_meter"),
        ([assign(WIDE, operation("frobnicate", number(1), number(2)))], "operator frobnicate"),
        ([assign(WIDE, {"type": "union_stack_field", "value": []})], "operand union_stack_field"),
    ],
)
def test_what_is_unknown_is_named_when_the_program_is_loaded(steps: list[dict[str, Any]], name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        Program(program(steps))


def test_members_that_are_not_there_are_named() -> None:
    with pytest.raises(UnsupportedError, match="meter_arrays m"):
        Program(program(meter_arrays=[{"name": "m"}]))
    with pytest.raises(UnsupportedError, match="version"):
        Program(program(__meta__={"version": [3, 0]}))
    with pytest.raises(UnsupportedError, match="hash algorithm crc8"):
        Program(program(calculations=[{"name": "c", "algo": "crc8", "input": []}]))


# ---- hashes and checksums ----


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [
        # The check values of these algorithms: of "123456789".
        ("crc32", 0xCBF43926),
        ("crc16", 0xBB3D),
        ("crcCCITT", 0x29B1),
        ("identity", 0x3132333435363738),
        ("xor16", 0x3132 ^ 0x3334 ^ 0x3536 ^ 0x3738 ^ 0x3900),
        ("xor32", 0x31323334 ^ 0x35363738 ^ 0x39000000),
    ],
)
def test_algorithm_has_its_check_value(algorithm: str, value: int) -> None:
    assert ALGORITHMS[algorithm](b"123456789") == value


def test_csum16_is_the_internet_checksum() -> None:
    # RFC 1071, 3: the sum of 00 01 f2 03 f4 f5 f6 f7 is ddf2.
    assert ALGORITHMS["csum16"](bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2 ^ 0xFFFF
    assert ALGORITHMS["csum16"](bytes.fromhex("0102 03")) == (0x0102 + 0x0300) ^ 0xFFFF
    assert ALGORITHMS["csum16"](b"") == 0xFFFF


CHECKSUM = {
    "calculations": [
        {
            "name": "c",
            "algo": "csum16",
            "input": [field("h", "kind"), field("h", "word"), {"type": "payload"}],
        },
        {
            "name": "d",
            "algo": "crc32",
            "input": [field("second", "word"), {**number(5), "bitwidth": 4}, {**number(10), "bitwidth": 4}],
        },
    ],
    "checksums": [
        {
            "name": "sum",
            "id": 0,
            "target": ["h", "length"],
            "type": "generic",
            "calculation": "c",
            "verify": True,
            "update": True,
            "if_cond": operation("!=", field("h", "kind"), number(1)),
        }
    ],
}


def test_checksum_is_verified_and_written_only_where_it_applies() -> None:
    one = Program(program(**CHECKSUM))
    right = ALGORITHMS["csum16"](bytes([8]) + FRAME[3:])
    good = bytes([8]) + right.to_bytes(2, "big") + FRAME[3:]
    for frame, wrong in [(good, 0), (FRAME, 1), (bytes([1]) + FRAME[1:], 0)]:
        (queued,) = one.ingress(frame, 0)
        assert queued.packet["standard_metadata.checksum_error"] == wrong
    assert one.process(FRAME, 0) == [(1, good)]
    other = bytes([1]) + FRAME[1:]
    assert one.process(other, 0) == [(1, other)]


def test_hash_leaves_out_invalid_headers_and_keeps_to_its_range() -> None:
    calculation = {"type": "calculation", "value": "d"}
    steps = [step("modify_field_with_hash_based_offset", WIDE, number(100), calculation, number(7))]
    expected = 100 + ALGORITHMS["crc32"](b"\x5a") % 7
    assert after(steps, **CHECKSUM)["meta.wide"] == expected
