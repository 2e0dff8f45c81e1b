"""A tiny program with a table of every kind, the P4Info that belongs to it, and messages about it in few words."""

from __future__ import annotations

import json
from typing import Any

from finsy.proto import p4r
from google.protobuf import text_format

from tests.support.bmv2.tiny import action, assign, data, field, program, table

# The first byte says what an object is (P4Ids.Prefix).
SET_ID, ROUTE_ID = 0x01000001, 0x01000002
EXACT_ID, TERNARY_ID, RANGE_ID, LPM_ID, OPTIONAL_ID, FIXED_ID, KEYLESS_ID = range(0x02000001, 0x02000008)
COUNTER_ID = 0x12000001
REGISTER_ID = 0x16000001

SET = action(3, "set", [assign(field("meta", "byte"), data(0))], (8,))
ROUTE = action(4, "route", [assign(field("standard_metadata", "egress_spec"), data(0))], (9,))

INFO = """
pkg_info { arch: "v1model" }
tables { preamble { id: 0x02000001 name: "exact" alias: "exact" } size: 2 direct_resource_ids: 0x13000001
  match_fields { id: 1 name: "h.word" bitwidth: 32 match_type: EXACT }
  action_refs { id: 0x01000001 } action_refs { id: 0x01000002 scope: DEFAULT_ONLY } }
tables { preamble { id: 0x02000002 name: "ternary" alias: "ternary" } size: 16
  match_fields { id: 1 name: "h.word" bitwidth: 32 match_type: TERNARY }
  match_fields { id: 2 name: "h.kind" bitwidth: 8 match_type: EXACT }
  action_refs { id: 0x01000001 scope: TABLE_ONLY } action_refs { id: 0x01000002 } }
tables { preamble { id: 0x02000003 name: "range" alias: "range" } size: 16
  match_fields { id: 1 name: "h.length" bitwidth: 16 match_type: RANGE }
  action_refs { id: 0x01000001 } }
tables { preamble { id: 0x02000004 name: "lpm" alias: "lpm" } size: 16
  match_fields { id: 1 name: "h.word" bitwidth: 32 match_type: LPM }
  action_refs { id: 0x01000001 } }
tables { preamble { id: 0x02000005 name: "optional" alias: "optional" } size: 16
  match_fields { id: 1 name: "h.word" bitwidth: 32 match_type: OPTIONAL }
  action_refs { id: 0x01000001 } }
tables { preamble { id: 0x02000006 name: "fixed" alias: "fixed" } size: 16 const_default_action_id: 0x01000001
  match_fields { id: 1 name: "h.word" bitwidth: 32 match_type: EXACT }
  action_refs { id: 0x01000001 } }
tables { preamble { id: 0x02000007 name: "keyless" alias: "keyless" } size: 16 action_refs { id: 0x01000002 } }
actions { preamble { id: 0x01000001 name: "set" alias: "set" } params { id: 1 name: "p0" bitwidth: 8 } }
actions { preamble { id: 0x01000002 name: "route" alias: "route" } params { id: 1 name: "p0" bitwidth: 9 } }
counters { preamble { id: 0x12000001 name: "packets" alias: "packets" } spec { unit: PACKETS } size: 4 }
direct_counters { preamble { id: 0x13000001 name: "hits" alias: "hits" } spec { unit: BOTH }
  direct_table_id: 0x02000001 }
registers { preamble { id: 0x16000001 name: "cells" alias: "cells" } size: 4
  type_spec { bitstring { bit { bitwidth: 16 } } } }
"""


def tables() -> list[dict[str, Any]]:
    word = ("h", "word")
    both = [SET, ROUTE]
    return [
        table("exact", [("exact", *word)], both, (4, [1]), "ternary", with_counters=True, max_size=1024),
        table("ternary", [("ternary", *word), ("exact", "h", "kind")], both, (4, [1]), "range"),
        table("range", [("range", "h", "length")], [SET], (3, [0]), "lpm"),
        table("lpm", [("lpm", *word)], [SET], (3, [0]), "optional"),
        table("optional", [("ternary", *word)], [SET], (3, [0]), "fixed"),
        table("fixed", [("exact", *word)], [SET], (3, [0]), "keyless"),
        table("keyless", [], [ROUTE], (4, [1])),
    ]


def config(cookie: int | None = 77, **more: Any) -> p4r.ForwardingPipelineConfig:
    made = p4r.ForwardingPipelineConfig()
    text_format.Parse(INFO, made.p4info)
    made.p4_device_config = json.dumps(program(tables=tables(), actions=[SET, ROUTE], **more)).encode()
    if cookie is not None:
        made.cookie.cookie = cookie
    return made


FIVE = {1: {"exact": {"value": b"\x05"}}}


def entry(
    table_id: int, match: dict[int, Any], value: bytes = b"\x01", action_id: int = SET_ID, **more: Any
) -> p4r.Entity:
    made = p4r.TableEntry(table_id=table_id, **more)
    for field_id, kinds in match.items():
        made.match.append(p4r.FieldMatch(field_id=field_id, **kinds))
    if action_id:
        made.action.action.action_id = action_id
        made.action.action.params.add(param_id=1, value=value)
    return p4r.Entity(table_entry=made)


def default(
    table_id: int, value: bytes | None = b"\x02", action_id: int = ROUTE_ID, **more: Any
) -> p4r.Entity:
    return entry(
        table_id, {}, value or b"", action_id if value is not None else 0, is_default_action=True, **more
    )


def insert(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.INSERT, entity=entity)


def modify(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.MODIFY, entity=entity)


def delete(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=entity)


def group(number: int, *replicas: p4r.Replica) -> p4r.Entity:
    made = p4r.Entity()
    made.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = number
    made.packet_replication_engine_entry.multicast_group_entry.replicas.extend(replicas)
    return made


def counter(index: int | None, counter_id: int = COUNTER_ID, packets: int | None = None) -> p4r.Entity:
    made = p4r.CounterEntry(counter_id=counter_id)
    if index is not None:
        made.index.index = index
    if packets is not None:
        made.data.packet_count = packets
    return p4r.Entity(counter_entry=made)
