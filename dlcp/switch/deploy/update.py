"""What to write to a switch so that it holds what is wanted: a difference, and the order to write it in.

Pure. The order is chosen so that live traffic never meets an unsafe mixture:

  1. What decides about packets, before what sends any to it: buffer, thresholds, marks; then who is in which class.
  2. What forwarding refers to, before forwarding does: members of a group, then the group's size; multicast groups,
     then flooding; at last MAC addresses and routes. So a fresh switch forwards nothing until it can do so rightly.
  3. What is no longer wanted goes last and the other way round: nothing refers any more to what is deleted.

Groups do not change under those who refer to them: groups.py gives one with other ways another number. Thresholds of a
class rise from the most important level down, then others fall from the least important up: at no moment is a packet
cut or dropped where a less important one is kept (between two writes, a port with thresholds of its own may be the
exception).
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


class Kind(Enum):
    """What happens to an entry."""

    insert = "+"
    modify = "~"
    delete = "-"


@dataclass(frozen=True)
class Update:
    """One write. `before` is what the switch holds under the same identity, None if nothing."""

    kind: Kind
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
    """What an entry was before, as far as it is otherwise now."""
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
    if action == "set_thresholds":  # most are never met: only those that are, or the line is all "never"
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
    """The writes that make `wanted` of `held`, in their order; both as the switch would read them back.

    Default actions that are not wanted stay: a table always has one.
    """
    before = {entry.identity: entry for entry in held}
    after = {entry.identity: entry for entry in wanted}
    updates = []
    for identity, entry in after.items():
        if identity not in before:
            # A table's default action is always there, if unread: it is modified, never inserted.
            kind = Kind.modify if isinstance(entry, DefaultAction) else Kind.insert
            updates.append(Update(kind, entry))
        elif before[identity] != entry:
            updates.append(Update(Kind.modify, entry, before[identity]))
    for identity, entry in before.items():
        if identity not in after and not isinstance(entry, DefaultAction):
            updates.append(Update(Kind.delete, entry, entry))
    return in_order(updates)


def in_order(updates: Sequence[Update]) -> list[Update]:
    """The updates in the order that this module's first paragraph gives the reasons for."""
    return sorted(updates, key=_rank)


def _rank(update: Update) -> tuple[object, ...]:
    entry = update.entry
    table = "multicast" if isinstance(entry, MulticastGroup) else entry.table
    place = WRITE_ORDER.index(table) if table in WRITE_ORDER else len(WRITE_ORDER)
    if table == "thresholds":
        # Also when they are deleted, since that means "never".
        return (0, place, *_threshold_rank(update), described(entry))
    if table == "mark_ramp":
        # Old steps go before new ones come: for a moment fewer packets are marked, but never two steps match one.
        return (0, place, update.kind is not Kind.delete, described(entry))
    if update.kind is Kind.delete:
        return (1, -place, described(entry))
    return (0, place, described(entry))


def _threshold_rank(update: Update) -> tuple[int, int]:
    """First those that cut or drop later than before, from the top level; then those that do so earlier."""
    keys = dict(update.entry.match) if isinstance(update.entry, TableEntry) else {}
    level = keys.get("level")
    index = level.value if isinstance(level, Exact) else 0
    after = None if update.kind is Kind.delete else update.entry
    return (0, -index) if _fate_bytes(after) >= _fate_bytes(update.before) else (1, index)


def _fate_bytes(entry: Entry | None) -> int:
    """The depth above which a level's packets are cut or dropped. Without an entry they are kept."""
    if not isinstance(entry, TableEntry):
        return NEVER_BYTES
    params = dict(entry.params)
    return min(params.get("trim_above_bytes", NEVER_BYTES), params.get("drop_above_bytes", NEVER_BYTES))
