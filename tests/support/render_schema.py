"""What CONFIG_DB accepts of the tables that the SONiC renderer writes: leaf names, types, ranges and references.

Written from the YANG models of sonic-buildimage (sonic-wred-profile, -scheduler, -queue, -port-qos-map, -dscp-tc-map,
-tc-queue-map, -tc-priority-group-map, -trimming, -hash, -buffer-queue), for these leaves alone. Every value is a text,
as Redis holds it; only lists of hash fields are lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9_]{0,31})")
ECN = {
    "ecn_none",
    "ecn_green",
    "ecn_yellow",
    "ecn_red",
    "ecn_green_yellow",
    "ecn_green_red",
    "ecn_yellow_red",
} | {"ecn_all"}
HASH_FIELDS = {"DST_IP", "SRC_IP", "IP_PROTOCOL", "L4_DST_PORT", "L4_SRC_PORT", "IPV6_FLOW_LABEL"}
Leaf = Callable[[str], bool]


def number(least: int, most: int) -> Leaf:
    """An integer in decimal, in a range."""
    return lambda text: re.fullmatch(r"-?\d+", text) is not None and least <= int(text) <= most


def one_of(*words: str) -> Leaf:
    """An enumeration."""
    return lambda text: text in words


U64 = number(0, 2**64 - 1)
MAPS: dict[str, tuple[Leaf, Leaf]] = {
    "DSCP_TO_TC_MAP": (number(0, 63), number(0, 15)),
    "TC_TO_QUEUE_MAP": (number(0, 15), number(0, 9)),
    "TC_TO_PRIORITY_GROUP_MAP": (number(0, 15), number(0, 7)),
}
_COLOURS = ("green", "yellow", "red")
LEAVES: dict[str, dict[str, Leaf]] = {
    "SCHEDULER": {
        "type": one_of("DWRR", "WRR", "STRICT"),
        "weight": number(1, 100),
        "meter_type": one_of("packets", "bytes"),
        "cir": U64,
        "pir": U64,
    },
    "WRED_PROFILE": {"ecn": lambda text: text in ECN}
    | {f"wred_{c}_enable": one_of("true", "false") for c in _COLOURS}
    | {f"{c}_{edge}_threshold": U64 for c in _COLOURS for edge in ("min", "max")}
    | {f"{c}_drop_probability": number(0, 100) for c in _COLOURS},
    "BUFFER_PROFILE": {
        "pool": lambda text: text == "egress_lossy_pool",  # the vendor's, not in the file
        "size": U64,
        "dynamic_th": number(-7, 7),
        "static_th": U64,
        "packet_discard_action": one_of("drop", "trim"),
    },
    "PORT_QOS_MAP": {
        "pfc_enable": lambda text: re.fullmatch(r"([0-7](,[0-7])*)?", text) is not None,
    },
    "SWITCH_TRIMMING": {
        "size": number(0, 2**32 - 1),
        "dscp_value": number(0, 63),
        "queue_index": number(0, 255),
    },
    "QUEUE": {},
    "BUFFER_QUEUE": {},
}
REFERENCES = {
    ("PORT_QOS_MAP", "dscp_to_tc_map"): "DSCP_TO_TC_MAP",
    ("PORT_QOS_MAP", "tc_to_queue_map"): "TC_TO_QUEUE_MAP",
    ("PORT_QOS_MAP", "tc_to_pg_map"): "TC_TO_PRIORITY_GROUP_MAP",
    ("PORT_QOS_MAP", "scheduler"): "SCHEDULER",
    ("QUEUE", "scheduler"): "SCHEDULER",
    ("QUEUE", "wred_profile"): "WRED_PROFILE",
    ("BUFFER_QUEUE", "profile"): "BUFFER_PROFILE",
}
QUEUE_KEY = re.compile(r"Ethernet\d+\|(1[0-5]|[0-9])")


def faults(tables: dict[str, Any]) -> Iterator[str]:
    """Everything in the tables that the models would refuse."""
    for table, rows in tables.items():
        for key, row in rows.items():
            where = f"{table}|{key}"
            if table == "SWITCH_HASH":
                for leaf, fields in row.items():
                    if leaf not in ("ecmp_hash", "lag_hash") or not set(fields) <= HASH_FIELDS:
                        yield f"{where}: {leaf} {fields}"
                continue
            if not all(isinstance(value, str) for value in row.values()):
                yield f"{where}: not all values are texts"
            elif table in MAPS:
                yield from _map(table, key, row)
            elif table in LEAVES:
                yield from _row(tables, table, key, row)
            else:
                yield f"{table} is unknown"


def _map(table: str, name: str, row: dict[str, str]) -> Iterator[str]:
    if not NAME.fullmatch(name):
        yield f"{table}: the name {name}"
    accepts_key, accepts_value = MAPS[table]
    for key, value in row.items():
        if not accepts_key(key) or not accepts_value(value):
            yield f"{table}|{name}: {key} {value}"


def _row(tables: dict[str, Any], table: str, key: str, row: dict[str, str]) -> Iterator[str]:
    where = f"{table}|{key}"
    if table == "WRED_PROFILE" and not NAME.fullmatch(key):
        yield f"{where}: the name"
    if table in ("QUEUE", "BUFFER_QUEUE"):
        if not QUEUE_KEY.fullmatch(key):
            yield f"{where}: the key"
        elif key.split("|")[0] not in tables["PORT_QOS_MAP"]:
            yield f"{where}: a port that is not bound"
    for leaf, value in row.items():
        target = REFERENCES.get((table, leaf))
        if target is not None:
            if value not in tables.get(target, {}):
                yield f"{where}: {leaf} refers to {target}|{value}, which is not there"
        elif leaf not in LEAVES[table]:
            yield f"{where}: {leaf} is unknown"
        elif not LEAVES[table][leaf](value):
            yield f"{where}: {leaf} is {value}"
    if table == "WRED_PROFILE":
        for colour in _COLOURS:
            low, high = (int(row[f"{colour}_{edge}_threshold"]) for edge in ("min", "max"))
            if high < low:
                yield f"{where}: {colour} max {high} below min {low}"
    if table == "BUFFER_PROFILE" and ("static_th" in row) == ("dynamic_th" in row):
        yield f"{where}: one of static_th and dynamic_th"
    if table == "SCHEDULER" and "cbs" in row and "cir" not in row:
        yield f"{where}: cbs without cir"
