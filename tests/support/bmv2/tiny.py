"""A tiny program in BMv2's JSON, put together by hand, to which a test adds what it is about.

One header `h` (kind 8, length 16, word 32) behind no other, metadata `meta` (wide 64, byte 8, signed 8), and controls
that send to the port in `meta.byte` or to port 1. What a test gives as `actions` is the steps of the one action that
ingress runs on each packet.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_STANDARD = [
    ("ingress_port", 9),
    ("egress_spec", 9),
    ("egress_port", 9),
    ("instance_type", 32),
    ("packet_length", 32),
    ("enq_timestamp", 32),
    ("enq_qdepth", 19),
    ("deq_timedelta", 32),
    ("deq_qdepth", 19),
    ("ingress_global_timestamp", 48),
    ("egress_global_timestamp", 48),
    ("mcast_grp", 16),
    ("egress_rid", 16),
    ("checksum_error", 1),
    ("parser_error", 32),
    ("priority", 3),
]
_ALIASES = {
    "queueing_metadata": ["enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"],
    "intrinsic_metadata": [
        "ingress_global_timestamp",
        "egress_global_timestamp",
        "mcast_grp",
        "egress_rid",
        "priority",
    ],
}


def field(header: str, name: str) -> Json:
    """An operand: a field."""
    return {"type": "field", "value": [header, name]}


def number(value: int) -> Json:
    """An operand: a constant."""
    return {"type": "hexstr", "value": hex(value)}


def data(index: int) -> Json:
    """An operand: the action's parameter of this index."""
    return {"type": "runtime_data", "value": index}


def operation(op: str, left: Json | None, right: Json, **more: Json) -> Json:
    """An operand: an expression."""
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def step(op: str, *parameters: Json) -> Json:
    """A primitive call."""
    return {"op": op, "parameters": list(parameters)}


def header(name: str) -> Json:
    """An operand: a header."""
    return {"type": "header", "value": name}


def assign(target: Json, source: Json) -> Json:
    """A primitive call: target = source."""
    return step("assign", target, source)


def action(number_: int, name: str, steps: list[Json], bits: tuple[int, ...] = ()) -> Json:
    """An action with parameters p0, p1 … of so many bits."""
    parameters = [{"name": f"p{i}", "bitwidth": width} for i, width in enumerate(bits)]
    return {"name": name, "id": number_, "runtime_data": parameters, "primitives": steps}


def table(
    name: str,
    keys: list[tuple[str, str, str]],
    actions: list[Json],
    default: tuple[int, list[int]] | None,
    next_table: str | None = None,
    **more: Any,
) -> Json:
    """A table; a key is (kind, header, field)."""
    kinds = [kind for kind, _, _ in keys]
    kind = next((k for k in ("range", "ternary", "lpm") if k in kinds), "exact")
    entry = None
    if default is not None:
        entry = {
            "action_id": default[0],
            "action_const": False,
            "action_data": [hex(word) for word in default[1]],
            "action_entry_const": False,
        }
    return {
        "name": name,
        "id": 0,
        "match_type": kind,
        "type": "simple",
        "max_size": 1024,
        "with_counters": False,
        "support_timeout": False,
        "direct_meters": None,
        "key": [{"match_type": k, "name": f"{h}.{f}", "target": [h, f], "mask": None} for k, h, f in keys],
        "action_ids": [each["id"] for each in actions],
        "actions": [each["name"] for each in actions],
        "base_default_next": next_table,
        "next_tables": {each["name"]: next_table for each in actions},
        "default_entry": entry,
        **more,
    }


def program(
    steps: list[Json] | None = None,
    tables: list[Json] | None = None,
    actions: list[Json] | None = None,
    egress: list[Json] | None = None,
    **more: Any,
) -> Json:
    """The whole.

    `steps` run at ingress on each packet, before `tables` (the first is entered, each names its next); `egress` at
    egress; `more` replaces whole members.
    """
    first = action(0, "first", [*(steps or [])])
    send = action(1, "send", [assign(field("standard_metadata", "egress_spec"), number(1))])
    last = action(2, "last", egress or [])
    tables = tables or []
    start = table("start", [], [send], (1, []), "steps")
    middle = table("steps", [], [first], (0, []), tables[0]["name"] if tables else None)
    end = table("end", [], [last], (2, []))
    json: Json = {
        "__meta__": {"version": [2, 23]},
        "header_types": [
            {"name": "h_t", "id": 0, "fields": [["kind", 8, False], ["length", 16, False], ["word", 32, False]]},
            {"name": "meta_t", "id": 1, "fields": [["wide", 64, False], ["byte", 8, False], ["signed", 8, True]]},
            {"name": "standard_metadata", "id": 2, "fields": [[n, bits, False] for n, bits in _STANDARD]},
        ],
        "headers": [
            {"name": "meta", "id": 0, "header_type": "meta_t", "metadata": True},
            {"name": "standard_metadata", "id": 1, "header_type": "standard_metadata", "metadata": True},
            {"name": "h", "id": 2, "header_type": "h_t", "metadata": False},
            {"name": "second", "id": 3, "header_type": "h_t", "metadata": False},
        ],
        "header_stacks": [],
        "field_lists": [],
        "errors": [["NoError", 0], ["PacketTooShort", 1], ["NoMatch", 2], ["StackOutOfBounds", 3]],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [parse_state("start", ["h"])]}],
        "parse_vsets": [],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h", "second"], "primitives": []}],
        "meter_arrays": [],
        "counter_arrays": [{"name": "packets", "id": 0, "size": 4, "is_direct": False}],
        "register_arrays": [{"name": "cells", "id": 0, "size": 4, "bitwidth": 16}],
        "calculations": [],
        "checksums": [],
        "learn_lists": [],
        "actions": [first, send, last, *(actions or [])],
        "pipelines": [
            {"name": "ingress", "id": 0, "init_table": "start", "tables": [start, middle, *tables], "conditionals": []},
            {"name": "egress", "id": 1, "init_table": "end", "tables": [end], "conditionals": []},
        ],
        "extern_instances": [],
        "field_aliases": [
            [f"{struct}.{name}", ["standard_metadata", name]] for struct, names in _ALIASES.items() for name in names
        ],
    }  # fmt: skip
    return json | more


def parse_state(
    name: str,
    headers: list[str],
    key: list[Json] | None = None,
    transitions: list[tuple[int | None, int | None, str | None]] | None = None,
    operations: list[Json] | None = None,
) -> Json:
    """A state that extracts headers and goes on by (value, mask, next); a value of None is the default."""
    extracts = [{"op": "extract", "parameters": [{"type": "regular", "value": each}]} for each in headers]
    return {
        "name": name,
        "id": 0,
        "parser_ops": [*extracts, *(operations or [])],
        "transition_key": key or [],
        "transitions": [
            {
                "type": "default" if value is None else "hexstr",
                "value": None if value is None else hex(value),
                "mask": None if mask is None else hex(mask),
                "next_state": target,
            }
            for value, mask, target in (transitions or [(None, None, None)])
        ],
    }


def parser(states: list[Json], start: str = "start") -> list[Json]:
    """For `program(parsers=…)`."""
    return [{"name": "parser", "id": 0, "init_state": start, "parse_states": states}]
