"""Table entries: from a message to the interpreter's table and back (specification: TableEntry).

Every rule of it that a v1model program without action profiles, meters and idle timeouts can break is here,
each where it is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4i, p4r

from tests.support.bmv2 import Entry, Table
from tests.support.bmv2.tables import Key, Match

from . import bytestrings
from .pipeline import Pipeline
from .status import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    Refused,
)

_PRIORITISED = {p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL}


def write(pipeline: Pipeline, kind: int, message: p4r.TableEntry) -> None:
    """One update of a table."""
    info = _info(pipeline, message.table_id)
    table = pipeline.table(info)
    if message.is_const:
        raise Refused(INVALID_ARGUMENT, "is_const is the server's to say")
    if kind != p4r.Update.DELETE:
        if message.HasField("time_since_last_hit"):
            raise Refused(INVALID_ARGUMENT, "time_since_last_hit is the server's to say")
        if message.idle_timeout_ns and info.idle_timeout_behavior != p4i.Table.NOTIFY_CONTROL:
            raise Refused(INVALID_ARGUMENT, f"{table.name} has no idle timeout")
        if message.HasField("meter_config"):
            raise Refused(INVALID_ARGUMENT, f"{table.name} has no direct meter")
        if message.HasField("counter_data") and message.table_id not in pipeline.direct_counters:
            raise Refused(INVALID_ARGUMENT, f"{table.name} has no direct counter")
    if message.is_default_action:
        _write_default(pipeline, info, table, kind, message)
        return
    if not info.match_fields:
        raise Refused(INVALID_ARGUMENT, f"{table.name} has no key, so no entries")
    if info.is_const_table or table.constant:
        raise Refused(PERMISSION_DENIED, f"{table.name} is constant")
    matches, priority = _key(info, table, message)
    existing = table.find(matches, priority)
    if kind == p4r.Update.INSERT:
        if existing is not None:
            raise Refused(ALREADY_EXISTS, f"{table.name} has this entry")
        name, data = _action(pipeline, info, message, default=False)
        if len(table.entries) >= info.size:
            raise Refused(RESOURCE_EXHAUSTED, f"{table.name} is full: {info.size} entries")
        entry = table.insert(matches, name, data, priority)
        _annotate(entry, message)
        return
    if existing is None:
        raise Refused(NOT_FOUND, f"{table.name} has no such entry")
    if existing.constant:
        raise Refused(PERMISSION_DENIED, "the entry is constant")
    if kind == p4r.Update.MODIFY:
        if message.HasField("action"):
            name, data = _action(pipeline, info, message, default=False)
            table.modify(matches, name, data, priority)
        _annotate(existing, message)
    else:
        table.delete(matches, priority)


def read(pipeline: Pipeline, message: p4r.TableEntry) -> Iterator[p4r.Entity]:
    """The entries that a request means: what it leaves out stands for anything."""
    if message.table_id == 0:
        if message.match or message.priority:
            raise Refused(INVALID_ARGUMENT, "a filter needs a table")
        infos = list(pipeline.tables.values())
    else:
        infos = [_info(pipeline, message.table_id)]
    for info in infos:
        for table_entry in entries(pipeline, info, message):
            yield p4r.Entity(table_entry=table_entry)


def entries(pipeline: Pipeline, info: p4i.Table, wanted: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
    """Of one table."""
    table = pipeline.table(info)
    if wanted.is_default_action:
        if wanted.match or wanted.priority:
            raise Refused(INVALID_ARGUMENT, "a default entry has neither match nor priority")
        yield _default_message(pipeline, info, table)
        return
    found = table.entries
    if wanted.match:
        # Without a priority: all entries with this key.
        matches, _ = _key(info, table, wanted, any_priority=True)
        key = tuple(each.normal(match) for each, match in zip(table.keys, matches, strict=True))
        found = [entry for entry in found if entry.matches == key]
    for entry in found:
        answer = _message(pipeline, info, table, entry)
        if wanted.priority and answer.priority != wanted.priority:
            continue
        if wanted.controller_metadata and answer.controller_metadata != wanted.controller_metadata:
            continue
        if wanted.metadata and answer.metadata != wanted.metadata:
            continue
        if wanted.HasField("action") and answer.action.action.action_id != wanted.action.action.action_id:
            continue
        if wanted.HasField("counter_data") and message_counts(pipeline, info):
            answer.counter_data.CopyFrom(counter_data(pipeline, info, entry))
        yield answer


def find(pipeline: Pipeline, message: p4r.TableEntry) -> Entry:
    """The one entry that a message names; Refused if it is not there."""
    info = _info(pipeline, message.table_id)
    table = pipeline.table(info)
    entry = table.find(*_key(info, table, message))
    if entry is None:
        raise Refused(NOT_FOUND, f"{table.name} has no such entry")
    return entry


def message_counts(pipeline: Pipeline, info: p4i.Table) -> bool:
    """Whether the table has a direct counter."""
    return info.preamble.id in pipeline.direct_counters


def counter_data(pipeline: Pipeline, info: p4i.Table, entry: Entry) -> p4r.CounterData:
    """What an entry has counted, in the units its counter is declared in."""
    return in_units(
        pipeline.direct_counters[info.preamble.id].spec, entry.counter.packets, entry.counter.bytes
    )


def in_units(spec: p4i.CounterSpec, packets: int, size_bytes: int) -> p4r.CounterData:
    """Only what the counter is declared to count."""
    data = p4r.CounterData()
    if spec.unit != p4i.CounterSpec.BYTES:
        data.packet_count = packets
    if spec.unit != p4i.CounterSpec.PACKETS:
        data.byte_count = size_bytes
    return data


# ---- from messages ----


def _info(pipeline: Pipeline, table_id: int) -> p4i.Table:
    info = pipeline.tables.get(table_id)
    if info is None:
        raise Refused(INVALID_ARGUMENT, f"no table has id {table_id:#x}")
    return info


def _key(
    info: p4i.Table, table: Table, message: p4r.TableEntry, any_priority: bool = False
) -> tuple[list[Match | None], int]:
    """Matches in the order of the key, and the priority."""
    given: dict[int, p4r.FieldMatch] = {}
    known = {field.id: field for field in info.match_fields}
    for field in message.match:
        if field.field_id not in known:
            raise Refused(INVALID_ARGUMENT, f"{table.name} has no match field {field.field_id}")
        if field.field_id in given:
            raise Refused(INVALID_ARGUMENT, f"{table.name}: match field {field.field_id} twice")
        given[field.field_id] = field
    matches: list[Match | None] = []
    for field_info, key in zip(info.match_fields, table.keys, strict=True):
        one = given.get(field_info.id)
        if one is None:
            if key.kind == "exact":
                raise Refused(INVALID_ARGUMENT, f"{table.name}: {key.name} is missing")
            matches.append(None)
        else:
            matches.append(_match(key, Pipeline.match_kind(field_info), one))
    prioritised = any(field.match_type in _PRIORITISED for field in info.match_fields)
    if not prioritised and message.priority != 0:
        raise Refused(INVALID_ARGUMENT, f"{table.name}: its entries have no priority")
    if message.priority < 0 or (prioritised and message.priority == 0 and not any_priority):
        raise Refused(INVALID_ARGUMENT, f"{table.name}: an entry needs a priority above 0")
    return matches, message.priority


def _match(key: Key, wanted: str, message: p4r.FieldMatch) -> Match:
    kind = message.WhichOneof("field_match_type")
    if kind != wanted:
        raise Refused(INVALID_ARGUMENT, f"{key.name} is matched {wanted}, not {kind}")

    def number(value: bytes) -> int:
        return bytestrings.decode(value, key.bits, key.name)

    match kind:
        case "exact":
            return number(message.exact.value)
        case "optional":
            return number(message.optional.value), (1 << key.bits) - 1
        case "lpm":
            value, prefix = number(message.lpm.value), message.lpm.prefix_len
            if not 0 < prefix <= key.bits:
                raise Refused(INVALID_ARGUMENT, f"{key.name}: prefix length {prefix} of 1 to {key.bits}")
            if value & ((1 << (key.bits - prefix)) - 1):
                raise Refused(INVALID_ARGUMENT, f"{key.name}: bits behind the prefix are not 0")
            return value, prefix
        case "ternary":
            value, mask = number(message.ternary.value), number(message.ternary.mask)
            if mask == 0:
                raise Refused(INVALID_ARGUMENT, f"{key.name}: a match that looks at nothing is left out")
            if value & ~mask:
                raise Refused(INVALID_ARGUMENT, f"{key.name}: bits outside the mask are not 0")
            return value, mask
        case _:
            low, high = number(message.range.low), number(message.range.high)
            if low > high:
                raise Refused(INVALID_ARGUMENT, f"{key.name}: {low} is above {high}")
            if low == 0 and high == (1 << key.bits) - 1:
                raise Refused(INVALID_ARGUMENT, f"{key.name}: a match that looks at nothing is left out")
            return low, high


def _action(
    pipeline: Pipeline, info: p4i.Table, message: p4r.TableEntry, default: bool
) -> tuple[str, list[int]]:
    kind = message.action.WhichOneof("type")
    if kind is None:
        raise Refused(INVALID_ARGUMENT, f"{info.preamble.name}: no action")
    if kind != "action":
        raise Refused(INVALID_ARGUMENT, f"{info.preamble.name} takes actions, not {kind}")
    action = message.action.action
    refs = {ref.id: ref for ref in info.action_refs}
    if action.action_id not in refs:
        raise Refused(INVALID_ARGUMENT, f"{info.preamble.name} has no action {action.action_id:#x}")
    wrong_scope = p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY
    if refs[action.action_id].scope == wrong_scope:
        raise Refused(PERMISSION_DENIED, "the action is only for " + ("entries" if default else "misses"))
    action_info = pipeline.actions[action.action_id]
    name = action_info.preamble.name
    given: dict[int, bytes] = {}
    for param in action.params:
        if param.param_id in given:
            raise Refused(INVALID_ARGUMENT, f"{name}: parameter {param.param_id} twice")
        given[param.param_id] = param.value
    wanted = [param.id for param in action_info.params]
    if set(given) != set(wanted):
        raise Refused(INVALID_ARGUMENT, f"{name} takes parameters {wanted}, not {sorted(given)}")
    data = [bytestrings.decode(given[p.id], p.bitwidth, f"{name}: {p.name}") for p in action_info.params]
    return name, data


def _write_default(
    pipeline: Pipeline, info: p4i.Table, table: Table, kind: int, message: p4r.TableEntry
) -> None:
    if kind != p4r.Update.MODIFY:
        raise Refused(INVALID_ARGUMENT, "a default entry is always there: it can only be modified")
    if message.match or message.priority:
        raise Refused(INVALID_ARGUMENT, "a default entry has neither match nor priority")
    if info.const_default_action_id or table.default_constant:
        raise Refused(PERMISSION_DENIED, f"the default entry of {table.name} is constant")
    if message.HasField("action"):
        table.set_default(*_action(pipeline, info, message, default=True))
    else:
        table.set_default(None)


def _annotate(entry: Entry, message: p4r.TableEntry) -> None:
    entry.note = (message.controller_metadata, message.metadata)
    if message.HasField("counter_data"):
        entry.counter.packets = message.counter_data.packet_count
        entry.counter.bytes = message.counter_data.byte_count


# ---- to messages ----


def _message(pipeline: Pipeline, info: p4i.Table, table: Table, entry: Entry) -> p4r.TableEntry:
    message = p4r.TableEntry(table_id=info.preamble.id, priority=entry.priority, is_const=entry.constant)
    for field_info, key, match in zip(info.match_fields, table.keys, entry.matches, strict=True):
        field = _field(key, Pipeline.match_kind(field_info), match)
        if field is not None:
            field.field_id = field_info.id
            message.match.append(field)
    message.action.action.CopyFrom(_action_message(pipeline, entry.action.name, entry.data))
    if entry.note is not None:
        message.controller_metadata, message.metadata = entry.note
    return message


def _field(key: Key, kind: str, match: Match) -> p4r.FieldMatch | None:
    encode = bytestrings.encode
    message = p4r.FieldMatch()
    if isinstance(match, int):
        message.exact.value = encode(match)
        return message
    first, second = match
    match kind:
        case "lpm":
            message.lpm.value, message.lpm.prefix_len = encode(first), second
            return message if second else None
        case "optional":
            message.optional.value = encode(first)
            return message if second else None
        case "ternary":
            message.ternary.value, message.ternary.mask = encode(first), encode(second)
            return message if second else None
        case _:
            message.range.low, message.range.high = encode(first), encode(second)
            return None if (first, second) == (0, (1 << key.bits) - 1) else message


def _action_message(pipeline: Pipeline, name: str, data: list[int]) -> p4r.Action:
    info: Any = next(a for a in pipeline.actions.values() if a.preamble.name == name)
    message = p4r.Action(action_id=info.preamble.id)
    for param, value in zip(info.params, data, strict=True):
        message.params.add(param_id=param.id, value=bytestrings.encode(value))
    return message


def _default_message(pipeline: Pipeline, info: p4i.Table, table: Table) -> p4r.TableEntry:
    message = p4r.TableEntry(table_id=info.preamble.id, is_default_action=True)
    if table.default_action is None:
        raise Refused(UNIMPLEMENTED, f"{table.name} has no default entry")
    message.is_const = bool(info.const_default_action_id or table.default_constant)
    message.action.action.CopyFrom(_action_message(pipeline, table.default_action.name, table.default_data))
    return message
