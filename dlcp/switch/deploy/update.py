"""The writes that bring a switch from what it holds to what is wanted, and their order.

Pure. The order is safe for live traffic:

  1. First admission: buffer, thresholds, marks. Then the classes, which send packets to these.
  2. Then forwarding, from the end: members of a group, then its size; multicast groups, then flooding; MAC addresses
     and routes last. A fresh switch therefore forwards nothing until it forwards rightly.
  3. Deletions come last and in reverse order, when nothing refers to the deleted entry any more.

A group that is referred to does not change: with other next hops it gets another number (groups.py). Thresholds of a
class that rise are written first, from the most important level down; those that fall follow, from the least important
level up. At no moment is a packet trimmed or dropped where a less important one is kept, except, between two writes, at
a port with thresholds of its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from dlcp.switch.entries import (
    PORT_MASK,
    WRITE_ORDER,
    DefaultAction,
    Entry,
    Exact,
    Key,
    MulticastGroup,
    Prefix,
    TableEntry,
    Ternary,
    level_name,
)
from dlcp.switch.resolved import NEVER_BYTES


class UpdateKind(Enum):
    """What happens to an entry."""

    insert = "+"
    modify = "~"
    delete = "-"


@dataclass(frozen=True)
class Update:
    """One write. `before` is what the switch holds under the same identity, None if nothing."""

    kind: UpdateKind
    entry: Entry
    before: Entry | None = None

    def __str__(self) -> str:
        return f"{self.kind.name} {described(self.entry)}"


def described(entry: Entry) -> str:
    """An entry in a line."""
    match entry:
        case MulticastGroup():
            return f"multicast group {entry.group_id}: ports {', '.join(map(str, entry.ports))}"
        case DefaultAction():
            return f"{entry.table} otherwise: {_call(entry.action, entry.params)}"
        case TableEntry():
            keys = (
                ", ".join(f"{name} {_key(entry.table, name, key)}" for name, key in entry.match) or "anything"
            )
            return f"{entry.table} {keys}: {_call(entry.action, entry.params)}"


def was(entry: Entry, before: Entry) -> str:
    """The part of an entry's earlier value that changed."""
    if (
        isinstance(entry, MulticastGroup)
        or isinstance(before, MulticastGroup)
        or entry.action != before.action
    ):
        return described(before).rpartition(": ")[2]
    now = dict(entry.params)
    return ", ".join(
        f"{name}={_shown(name, value)}" for name, value in before.params if now.get(name) != value
    )


def _call(action: str, params: Iterable[tuple[str, int]]) -> str:
    if action == "set_thresholds":  # most of them are "never", which would fill the line
        params = [(name, value) for name, value in params if value != NEVER_BYTES]
    return f"{action}({', '.join(f'{name}={_shown(name, value)}' for name, value in params)})"


def _shown(name: str, value: int) -> str:
    if name == "mac" or name.endswith("_mac"):
        return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
    if name == "ip" or name.endswith("_ip"):
        return str(ipaddress.IPv4Address(value))
    return "never" if value == NEVER_BYTES else str(value)


def _key(table: str, name: str, key: Key) -> str:
    if isinstance(key, Exact):
        return level_name(key.value) if name == "level" else _shown(name, key.value)
    if isinstance(key, Prefix) and table in ("route_ipv4", "route_ipv6"):
        kind = ipaddress.IPv4Address if table == "route_ipv4" else ipaddress.IPv6Address
        return f"{kind(key.value)}/{key.length}"
    if isinstance(key, Ternary) and key.mask == PORT_MASK:
        return str(key.value)
    return str(key)


def difference(held: Iterable[Entry], wanted: Iterable[Entry]) -> list[Update]:
    """The writes that turn `held` into `wanted`, in order. Both are in the form in which the switch gives them back.

    A default action that is not wanted stays, since a table always has one.
    """
    before = {entry.identity: entry for entry in held}
    after = {entry.identity: entry for entry in wanted}
    updates = []
    for identity, entry in after.items():
        if identity not in before:
            # A table always has a default action, read or not. It is modified, never inserted.
            kind = UpdateKind.modify if isinstance(entry, DefaultAction) else UpdateKind.insert
            updates.append(Update(kind, entry))
        elif before[identity] != entry:
            updates.append(Update(UpdateKind.modify, entry, before[identity]))
    for identity, entry in before.items():
        if identity not in after and not isinstance(entry, DefaultAction):
            updates.append(Update(UpdateKind.delete, entry, entry))
    return in_order(updates)


def in_order(updates: Sequence[Update]) -> list[Update]:
    """The updates in the order that the head of this file explains."""
    return sorted(updates, key=_rank)


def _rank(update: Update) -> tuple[object, ...]:
    entry = update.entry
    table = "multicast" if isinstance(entry, MulticastGroup) else entry.table
    place = WRITE_ORDER.index(table) if table in WRITE_ORDER else len(WRITE_ORDER)
    if table == "thresholds":
        # Also when they are deleted, since that means "never".
        return (0, place, *_threshold_rank(update), described(entry))
    if table == "mark_ramp":
        # Deletions first. For a moment fewer packets are marked, but no packet matches two steps.
        return (0, place, update.kind is not UpdateKind.delete, described(entry))
    if update.kind is UpdateKind.delete:
        return (1, -place, described(entry))
    return (0, place, described(entry))


def _threshold_rank(update: Update) -> tuple[int, int]:
    """First thresholds that rise, from the top level down; then those that fall, from the lowest level up."""
    keys = dict(update.entry.match) if isinstance(update.entry, TableEntry) else {}
    level = keys.get("level")
    index = level.value if isinstance(level, Exact) else 0
    after = None if update.kind is UpdateKind.delete else update.entry
    return (0, -index) if _fate_bytes(after) >= _fate_bytes(update.before) else (1, index)


def _fate_bytes(entry: Entry | None) -> int:
    """The depth above which a level's packets are trimmed or dropped. Without an entry they are kept."""
    if not isinstance(entry, TableEntry):
        return NEVER_BYTES
    params = dict(entry.params)
    return min(params.get("trim_above_bytes", NEVER_BYTES), params.get("drop_above_bytes", NEVER_BYTES))
