"""The interpreter's parser and tables: what is read of a packet, and which entry it hits.

Programs are a few lines of JSON each (tests/support/bmv2/tiny.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.bmv2 import Packet, Program, TableError
from tests.support.bmv2.tiny import (
    action,
    assign,
    data,
    field,
    number,
    operation,
    parse_state,
    parser,
    program,
    table,
)

WIDE = field("meta", "wide")
BYTE = field("meta", "byte")
FRAME = bytes.fromhex("08 0020 deadbeef") + b"payload"


# ---- parser ----


def test_parser_selects_by_value_mask_and_default() -> None:
    states = [
        parse_state(
            "start",
            ["h"],
            [field("h", "kind"), field("h", "length")],
            [(0x08_0020, None, "more"), (0x10_0000, 0xF0_0000, "more"), (None, None, None)],
        ),
        parse_state("more", ["second"]),
    ]
    one = Program(program(parsers=parser(states)))
    for first, more in [("080020", True), ("080021", False), ("1fffff", True), ("2f0000", False)]:
        assert one.parse(bytes.fromhex(first) + bytes(11)).is_valid("second") == more


def test_parser_looks_ahead_without_taking() -> None:
    look = {"op": "set", "parameters": [WIDE, {"type": "lookahead", "value": [4, 12]}]}
    states = [
        parse_state("start", [], operations=[look], transitions=[(None, None, "take")]),
        parse_state("take", ["h"]),
    ]
    one = Program(program(parsers=parser(states)))
    packet = one.parse(FRAME)
    assert packet["meta.wide"] == 0x800
    assert packet["h.word"] == 0xDEADBEEF
    assert one.parse(b"\x01")["standard_metadata.parser_error"] == 1


def test_parser_errors_leave_the_rest_as_payload() -> None:
    states = [parse_state("start", ["h", "second"])]
    one = Program(program(parsers=parser(states)))
    packet = one.parse(FRAME[:10])
    assert packet["standard_metadata.parser_error"] == 1
    assert packet.is_valid("h")
    assert not packet.is_valid("second")
    assert one.process(FRAME[:10], 0) == [(1, FRAME[:10])]


def test_parser_verifies_and_advances() -> None:
    verify = {"op": "verify", "parameters": [operation("==", field("h", "kind"), number(8)), number(2)]}
    advance = {"op": "advance", "parameters": [operation("<<", field("h", "kind"), number(0))]}
    states = [parse_state("start", ["h"], operations=[verify, advance])]
    one = Program(program(parsers=parser(states)))
    assert one.process(FRAME, 0) == [(1, FRAME[:7] + b"ayload")]
    assert one.parse(bytes([9]) + FRAME[1:])["standard_metadata.parser_error"] == 2
    assert one.parse(FRAME[:7])["standard_metadata.parser_error"] == 1


def test_value_set_is_the_control_planes() -> None:
    states = [parse_state("start", ["h"], [field("h", "kind")]), parse_state("more", ["second"])]
    states[0]["transitions"] = [
        {"type": "parse_vset", "value": "kinds", "mask": None, "next_state": "more"},
        {"type": "default", "value": None, "mask": None, "next_state": None},
    ]
    one = Program(program(parsers=parser(states), parse_vsets=[{"name": "kinds"}]))
    frame = FRAME + bytes(7)
    assert not one.parse(frame).is_valid("second")
    one.value_sets["kinds"].add(8)
    assert one.parse(frame).is_valid("second")


def test_header_stack_fills_up_and_overflows() -> None:
    stack = {
        "headers": [
            *program()["headers"],
            {"name": "s[0]", "id": 4, "header_type": "h_t", "metadata": False},
            {"name": "s[1]", "id": 5, "header_type": "h_t", "metadata": False},
        ],
        "header_stacks": [{"name": "s", "id": 0, "header_type": "h_t", "header_ids": [4, 5]}],
        "deparsers": [{"name": "d", "id": 0, "order": ["s[0]", "s[1]"], "primitives": []}],
    }
    extract = {"op": "extract", "parameters": [{"type": "stack", "value": "s"}]}
    key = [{"type": "stack_field", "value": ["s", "kind"]}]
    states = [parse_state("start", [], key, [(0, None, None), (None, None, "start")], [extract])]
    last = operation("last_stack_index", None, {"type": "header_stack", "value": "s"})
    element = operation("dereference_header_stack", {"type": "header_stack", "value": "s"}, number(1))
    target = {"type": "expression", "value": {"op": "access_field", "left": element, "right": 1}}
    one = Program(
        program([assign(BYTE, last), assign(target, number(0x1234))], parsers=parser(states), **stack)
    )
    more, end = bytes([1]) + bytes(6), bytes(7)
    (queued,) = one.ingress(more + end + b"x", 0)
    assert queued.packet["meta.byte"] == 1
    assert one.process(more + end + b"x", 0) == [(1, more + bytes.fromhex("00 1234 00000000") + b"x")]
    assert one.parse(more * 3)["standard_metadata.parser_error"] == 3


# ---- tables ----

SET = action(3, "set", [assign(BYTE, data(0))], (8,))


def with_table(*kinds: tuple[str, str, str], default: int = 0, **more: Any) -> Program:
    """A program with table `t` that writes its parameter into meta.byte."""
    return Program(program(tables=[table("t", list(kinds), [SET], (3, [default]), **more)], actions=[SET]))


def byte(one: Program, word: int) -> int:
    (queued,) = one.ingress(bytes.fromhex("080020") + word.to_bytes(4, "big"), 0)
    return queued.packet["meta.byte"]


def test_exact_table() -> None:
    one = with_table(("exact", "h", "word"), ("exact", "h", "kind"), default=9)
    one.insert("t", {"word": 5, "kind": 8}, "set", [1])
    one.insert("t", {"word": 6, "kind": 7}, "set", {"p0": 2})
    assert [byte(one, word) for word in (5, 6, 7)] == [1, 9, 9]
    one.delete("t", {"word": 5, "kind": 8})
    assert byte(one, 5) == 9


def test_longest_prefix_wins() -> None:
    one = with_table(("lpm", "h", "word"), default=9)
    one.insert("t", {"word": (0x0A000000, 8)}, "set", [1])
    one.insert("t", {"word": (0x0A0B0C00, 24)}, "set", [3])
    one.insert("t", {"word": (0x0A0B0000, 16)}, "set", [2])
    words = (0x0A000001, 0x0A0B0001, 0x0A0B0C01, 0x0B000000)
    assert [byte(one, word) for word in words] == [1, 2, 3, 9]
    one.insert("t", {"word": (0, 0)}, "set", [4])
    assert byte(one, 0x0B000000) == 4


def test_larger_priority_wins_and_the_first_among_equals() -> None:
    one = with_table(("ternary", "h", "word"), default=9)
    one.insert("t", {"word": (0x00, 0x0F)}, "set", [1], priority=10)
    one.insert("t", {"word": (0x10, 0xF0)}, "set", [2], priority=20)
    one.insert("t", {"word": (0x00, 0x03)}, "set", [3], priority=10)
    assert [byte(one, word) for word in (0x20, 0x10, 0x14, 0x24, 0x21)] == [1, 2, 2, 3, 9]
    one.insert("t", {}, "set", [5], priority=1)
    assert byte(one, 0x21) == 5


def test_ranges_include_both_ends() -> None:
    one = with_table(("range", "h", "word"), ("exact", "h", "kind"), default=9)
    one.insert("t", {"word": (10, 20), "kind": 8}, "set", [1], priority=1)
    assert [byte(one, word) for word in (9, 10, 20, 21)] == [9, 1, 1, 9]


def test_validity_is_a_key() -> None:
    one = with_table(("exact", "second", "$valid$"), default=9)
    one.insert("t", {"second.$valid$": 0}, "set", [1])
    assert byte(one, 0) == 1


def test_entries_that_come_with_the_program_keep_their_order() -> None:
    def entry(value: int, mask: int, priority: int) -> dict[str, Any]:
        key = {"match_type": "ternary", "key": hex(value), "mask": hex(mask)}
        return {
            "match_key": [key],
            "action_entry": {"action_id": 3, "action_data": [hex(priority)]},
            "priority": priority,
        }

    # Here, and only here, the smaller number is the higher priority.
    one = with_table(
        ("ternary", "h", "word"), default=9, entries=[entry(0, 1, 2), entry(0, 0, 3), entry(4, 4, 1)]
    )
    assert [byte(one, word) for word in (4, 2, 1)] == [1, 2, 3]


def test_default_action_is_set_and_set_back() -> None:
    one = with_table(("exact", "h", "word"), default=9)
    one.set_default("t", "set", [7])
    assert byte(one, 0) == 7
    one.table("t").set_default(None)
    assert byte(one, 0) == 9


def test_table_refuses() -> None:
    one = with_table(("exact", "h", "word"), max_size=1)
    one.insert("t", {"word": 5}, "set", [1])
    with pytest.raises(TableError, match="already"):
        one.insert("t", {"word": 5}, "set", [2])
    with pytest.raises(TableError, match="full"):
        one.insert("t", {"word": 6}, "set", [2])
    with pytest.raises(TableError, match="8 bits"):
        one.set_default("t", "set", [256])
    with pytest.raises(TableError, match="no such entry"):
        one.delete("t", {"word": 6})
    with pytest.raises(TableError, match="takes p0"):
        one.insert("t", {"word": 6}, "set", {"q": 1})
    with pytest.raises(KeyError, match="no action of t"):
        one.insert("t", {"word": 6}, "unset")


def test_direct_counter_counts_hits() -> None:
    one = with_table(("exact", "h", "word"), with_counters=True)
    entry = one.insert("t", {"word": 5}, "set", [1])
    for word in (5, 6, 5):
        byte(one, word)
    assert (entry.counter.packets, entry.counter.bytes) == (2, 14)


def test_next_table_by_hit_and_by_action() -> None:
    other = action(4, "other", [])
    later = table("later", [], [SET], (3, [7]))
    for nexts, hit, miss in [
        ({"__HIT__": "later", "__MISS__": None}, 7, 0),
        ({"set": None, "other": "later"}, 1, 7),
    ]:
        first = table("t", [("exact", "h", "word")], [SET, other], (4, []), next_tables=nexts)
        one = Program(program(tables=[first, later], actions=[SET, other]))
        one.insert("t", {"word": 5}, "set", [1])
        assert (byte(one, 5), byte(one, 6)) == (hit, miss)


def test_hooks_set_what_a_control_finds() -> None:
    one = with_table(("exact", "meta", "wide"), default=9)
    one.insert("t", {"wide": 1234}, "set", [1])

    def hook(packet: Packet) -> None:
        packet["meta.wide"] = 1234

    one.before("ingress", hook)
    assert byte(one, 0) == 1
    one.before("ingress", None)
    assert byte(one, 0) == 9
