"""Entries to P4Runtime's messages and back, by the names and widths of a P4Info.

Values are written in the shortest form that holds them, as P4Runtime 1.3, 8.4 wants it; both forms are read. What
cannot be said with the entries of `dlcp.switch.entries` (action profiles, metadata) is not ours: `decode` gives None.
"""

from __future__ import annotations

from collections.abc import Collection

from finsy.proto import p4i, p4r

from dlcp.switch.deploy.errors import ProgramError
from dlcp.switch.deploy.pipeline import Schema, TableSchema
from dlcp.switch.deploy.update import Update, UpdateKind
from dlcp.switch.entries import (
    DefaultAction,
    Entry,
    Exact,
    Key,
    MulticastGroup,
    Prefix,
    Range,
    TableEntry,
    Ternary,
)

KINDS = {"EXACT": Exact, "OPTIONAL": Exact, "TERNARY": Ternary, "LPM": Prefix, "RANGE": Range}

_TYPES = {
    UpdateKind.insert: p4r.Update.INSERT,
    UpdateKind.modify: p4r.Update.MODIFY,
    UpdateKind.delete: p4r.Update.DELETE,
}


def encode(entry: Entry, schema: Schema) -> p4r.Entity:
    """The message for an entry. ProgramError: the program has not what it names, or a value is too wide."""
    if isinstance(entry, MulticastGroup):
        group = p4r.MulticastGroupEntry(
            multicast_group_id=entry.group_id,
            # A port's copies are told apart by their instance, from 1.
            replicas=[
                p4r.Replica(egress_port=port, instance=entry.ports[: place + 1].count(port))
                for place, port in enumerate(entry.ports)
            ],
        )
        return p4r.Entity(
            packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
        )
    table = schema.table(entry.table)
    message = p4r.TableEntry(table_id=table.id)
    action = schema.action(entry.table, entry.action)
    message.action.action.action_id = action.preamble.id
    params = {param.name: param for param in action.params}
    _check_names(f"action {entry.action!r}", dict(entry.params), params, needed=params)
    for name, value in entry.params:
        encoded = _bytes(f"{entry.action}.{name}", value, params[name].bitwidth)
        message.action.action.params.add(param_id=params[name].id, value=encoded)
    if isinstance(entry, DefaultAction):
        message.is_default_action = True
        return p4r.Entity(table_entry=message)
    keys = dict(entry.match)
    _check_names(f"table {entry.table!r}", keys, table.fields)
    exact = [name for name, field in table.fields.items() if field.match_type == p4i.MatchField.EXACT]
    if missing := [name for name in exact if name not in keys]:
        raise ProgramError(f"table {entry.table!r} needs a key for {', '.join(missing)}")
    for name, key in keys.items():
        message.match.append(_field_match(entry.table, table.fields[name], key))
    if table.needs_priority != (entry.priority > 0):
        raise ProgramError(f"table {entry.table!r}: priority {entry.priority} does not fit its keys")
    message.priority = entry.priority
    return p4r.Entity(table_entry=message)


def encode_update(update: Update, schema: Schema) -> p4r.Update:
    """The message for a write. ProgramError as by `encode`."""
    return p4r.Update(type=_TYPES[update.kind], entity=encode(update.entry, schema))


def decode(entity: p4r.Entity, schema: Schema) -> Entry | None:
    """The entry that a message says; None if ours never look like that."""
    match entity.WhichOneof("entity"):
        case "packet_replication_engine_entry":
            return _decode_group(entity.packet_replication_engine_entry)
        case "table_entry":
            return _decode_table_entry(entity.table_entry, schema)
    return None


def _decode_group(message: p4r.PacketReplicationEngineEntry) -> Entry | None:
    if message.WhichOneof("type") != "multicast_group_entry":
        return None
    group = message.multicast_group_entry
    # Newer servers give the port as bytes (P4Runtime 1.4), with the older number left empty.
    ports = [
        _int(replica.port) if replica.WhichOneof("port_kind") == "port" else replica.egress_port
        for replica in group.replicas
    ]
    return MulticastGroup(group.multicast_group_id, tuple(sorted(ports)))


def _decode_table_entry(message: p4r.TableEntry, schema: Schema) -> Entry | None:
    table = next((t for t in schema.tables.values() if t.id == message.table_id), None)
    if table is None or message.action.WhichOneof("type") != "action":
        return None
    action_id = message.action.action.action_id
    action = next((a for a in table.actions.values() if a.preamble.id == action_id), None)
    if action is None:
        return None
    values = {p.param_id: _int(p.value) for p in message.action.action.params}
    params = tuple((p.name, values.get(p.id, 0)) for p in action.params)
    names = table.info.preamble.alias, action.preamble.alias
    if message.is_default_action:
        return DefaultAction(*names, params)
    return TableEntry(names[0], _keys(message, table), names[1], params, message.priority)


def _keys(message: p4r.TableEntry, table: TableSchema) -> tuple[tuple[str, Key], ...]:
    fields = {f.id: f for f in table.fields.values()}
    keys: list[tuple[str, Key]] = []
    for match in message.match:
        if match.field_id not in fields:
            raise ProgramError(
                f"the switch has an entry in table {table.info.preamble.alias!r} with a key that is none of it"
            )
        name = fields[match.field_id].name
        match match.WhichOneof("field_match_type"):
            case "exact":
                keys.append((name, Exact(_int(match.exact.value))))
            case "optional":
                keys.append((name, Exact(_int(match.optional.value))))
            case "ternary":
                keys.append((name, Ternary(_int(match.ternary.value), _int(match.ternary.mask))))
            case "lpm":
                keys.append((name, Prefix(_int(match.lpm.value), match.lpm.prefix_len)))
            case "range":
                keys.append((name, Range(_int(match.range.low), _int(match.range.high))))
    return tuple(sorted(keys, key=lambda item: item[0]))


def canonical(entry: Entry, schema: Schema) -> Entry:
    """The entry as the switch will give it back: parameters in the program's order, equal keys written alike."""
    decoded = decode(encode(entry, schema), schema)
    assert decoded is not None, f"{entry} does not come back"
    return decoded


def _field_match(table: str, field: p4i.MatchField, key: Key) -> p4r.FieldMatch:
    where, bits = f"{table}.{field.name}", field.bitwidth
    kind = p4i.MatchField.MatchType.Name(field.match_type)
    if type(key) is not KINDS.get(kind):
        raise ProgramError(f"{where} is matched {kind}, not by {type(key).__name__}")
    match = p4r.FieldMatch(field_id=field.id)
    if isinstance(key, Exact):
        exact = match.optional if kind == "OPTIONAL" else match.exact
        exact.value = _bytes(where, key.value, bits)
    elif isinstance(key, Ternary):
        if not key.mask or key.value & ~key.mask:
            raise ProgramError(f"{where}: {key} is not a key: bits outside the mask, or none in it")
        match.ternary.value = _bytes(where, key.value, bits)
        match.ternary.mask = _bytes(where, key.mask, bits)
    elif isinstance(key, Prefix):
        if not 0 < key.length <= bits or key.value & ((1 << bits - key.length) - 1):
            raise ProgramError(f"{where}: {key} is not a prefix of {bits} bits")
        match.lpm.value = _bytes(where, key.value, bits)
        match.lpm.prefix_len = key.length
    else:
        if key.low > key.high:
            raise ProgramError(f"{where}: {key} is empty")
        match.range.low = _bytes(where, key.low, bits)
        match.range.high = _bytes(where, key.high, bits)
    return match


def _check_names(
    where: str, names: Collection[str], known: Collection[str], needed: Collection[str] = ()
) -> None:
    for name in names:
        if name not in known:
            raise ProgramError(f"{where} has no {name!r}; it has {', '.join(known)}")
    if missing := set(needed) - set(names):
        raise ProgramError(f"{where} needs {', '.join(sorted(missing))}")


def _bytes(where: str, value: int, bits: int) -> bytes:
    if not 0 <= value < 1 << bits:
        raise ProgramError(f"{where} is {value}; the program has {bits} bits for it")
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _int(value: bytes) -> int:
    return int.from_bytes(value, "big")
