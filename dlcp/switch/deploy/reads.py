"""What to ask a switch for to read everything, and how to write everything back.

Registers and values of counters are not among it: few servers offer registers over P4Runtime, and what was counted
under a pipeline has no meaning after another one.
"""

from __future__ import annotations

from collections.abc import Iterable

from finsy.proto import p4r

from dlcp.switch.deploy.pipeline import Schema


def all_of(schema: Schema) -> list[p4r.Entity]:
    """Requests for all that entries of ours can be: of every table, its default action, and multicast groups."""
    wishes = []
    for table in schema.tables.values():
        wishes.append(p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id)))
        if not table.info.const_default_action_id:
            default = p4r.TableEntry(table_id=table.id, is_default_action=True)
            wishes.append(p4r.Entity(table_entry=default))
    group = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    wishes.append(p4r.Entity(packet_replication_engine_entry=group))
    return wishes


def everything_of(schema: Schema) -> list[p4r.Entity]:
    """The same, and what only other programs have."""
    session = p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry())
    return [
        *all_of(schema),
        p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
        p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
        p4r.Entity(packet_replication_engine_entry=session),
    ]


# What others refer to goes first.
_ORDER = ("action_profile_member", "action_profile_group", "packet_replication_engine_entry", "table_entry")


def restoring(entities: Iterable[bytes], fresh: Iterable[bytes]) -> list[p4r.Update]:
    """The updates that write read entities back, under a pipeline that was just pushed and began with `fresh`."""
    before, now = set(entities), set(fresh)
    messages = [p4r.Entity.FromString(entity) for entity in sorted(before - now)]
    messages.sort(key=lambda entity: _ORDER.index(entity.WhichOneof("entity") or ""))
    # Entries that the program itself begins with, and its controller had changed. Default actions are overwritten.
    started = [p4r.Entity.FromString(entity) for entity in sorted(now - before)]
    updates = [
        p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in started if not _is_default(entity)
    ]
    for entity in messages:
        kind = p4r.Update.MODIFY if _is_default(entity) else p4r.Update.INSERT
        updates.append(p4r.Update(type=kind, entity=entity))
    return updates


def _is_default(entity: p4r.Entity) -> bool:
    return entity.HasField("table_entry") and entity.table_entry.is_default_action
