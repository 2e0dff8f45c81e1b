"""Match-action tables: what an entry is, which entry a packet hits, and how entries come and go.

A match is an integer (exact), or (value, prefix length), (value, mask), (low, high). Priority is as the control plane
has it: the larger wins; of equal ones the entry that was there first. Names and widths of P4Runtime are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .actions import Action
from .layout import Layout, UnsupportedError
from .packet import Packet
from .primitives import Counter

Match = int | tuple[int, int]
# BMv2's own priorities count the other way round.
_HIGHEST_PRIORITY = 2**31 - 1


class TableError(ValueError):
    """An entry that the table cannot take, does not have, or has already."""


@dataclass(frozen=True)
class Key:
    """One field of a table's key."""

    name: str
    kind: str  # exact, lpm, ternary, range, optional
    bits: int
    slot: int | None  # None: a header's validity
    header: int
    mask: int

    def read(self, packet: Packet) -> int:
        """What the packet has there."""
        if self.slot is None:
            return int(packet.valid[self.header])
        return packet.fields[self.slot] & self.mask

    def normal(self, match: Match | None) -> Match:
        """The match with every bit it does not look at cleared; None looks at none."""
        full = (1 << self.bits) - 1
        if self.kind == "exact":
            if not isinstance(match, int):
                raise TableError(f"{self.name}: an exact match is one number, not {match}")
            return match
        if match is None:
            return (0, full) if self.kind == "range" else (0, 0)
        if isinstance(match, int):
            whole = {"lpm": (match, self.bits), "range": (match, match)}
            return whole.get(self.kind, (match, full))
        first, second = match
        if self.kind == "lpm":
            return first & full & ~(full >> second), second
        return (first & second, second) if self.kind != "range" else (first, second)

    def hits(self, match: Match, value: int) -> bool:
        """Whether a normal match takes the value."""
        if isinstance(match, int):
            return value == match
        first, second = match
        if self.kind == "range":
            return first <= value <= second
        if self.kind == "lpm":
            return (value ^ first) >> (self.bits - second) == 0
        return value & second == first


@dataclass
class Entry:
    """One entry: what it matches, what it does, what it has counted."""

    matches: tuple[Match, ...]
    priority: int
    action: Action
    data: list[int]
    constant: bool = False
    counter: Counter = field(default_factory=Counter)
    note: Any = None  # the control plane's own


class Table:
    """One table with its entries."""

    def __init__(self, layout: Layout, actions: dict[int, Action], json: dict[str, Any]) -> None:
        self.name: str = json["name"]
        if json["type"] != "simple":
            raise UnsupportedError(f"table type {json['type']} of {self.name}")
        if json.get("direct_meters"):
            raise UnsupportedError(f"direct meter of {self.name}")
        self.keys = [_key(layout, each) for each in json["key"]]
        self.actions = {actions[i].name: actions[i] for i in json["action_ids"]}
        self.size: int = json["max_size"]
        self.counted: bool = json["with_counters"]
        self.counter_names: list[str] = []
        self._match_type: str = json["match_type"]
        self._next: dict[str, str | None] = json["next_tables"]
        self._next_by_default: str | None = json.get("base_default_next")
        self._entries: dict[tuple[tuple[Match, ...], int], Entry] = {}
        self._sorted: list[Entry] | None = None
        default = json.get("default_entry")
        self.default_action = actions[default["action_id"]] if default else None
        self.default_data = [int(word, 16) for word in default["action_data"]] if default else []
        self.default_constant = bool(default and default.get("action_entry_const"))
        self._first_default = (self.default_action, self.default_data)
        self.constant = bool(json.get("entries"))
        for each in json.get("entries", ()):
            action = actions[each["action_entry"]["action_id"]]
            data = [int(word, 16) for word in each["action_entry"]["action_data"]]
            self.insert(
                [_constant_match(m) for m in each["match_key"]],
                action.name,
                data,
                _HIGHEST_PRIORITY - each.get("priority", 0) if self.ordered else 0,
                constant=True,
            )

    @property
    def ordered(self) -> bool:
        """Whether its entries have priorities."""
        return self._match_type in ("ternary", "range")

    @property
    def entries(self) -> list[Entry]:
        """In the order they came."""
        return list(self._entries.values())

    def find(self, matches: Sequence[Match | None], priority: int = 0) -> Entry | None:
        """The entry of exactly this key and priority."""
        return self._entries.get(self._place(matches, priority))

    def insert(
        self,
        matches: Sequence[Match | None],
        action: str,
        data: Sequence[int],
        priority: int = 0,
        constant: bool = False,
    ) -> Entry:
        """A new entry; TableError if there is one, or no room."""
        place = self._place(matches, priority)
        if place in self._entries:
            raise TableError(f"{self.name} has this entry already: {place[0]}")
        if len(self._entries) >= self.size:
            raise TableError(f"{self.name} is full: {self.size} entries")
        entry = Entry(place[0], priority, self._action(action), self._data(action, data), constant)
        self._entries[place] = entry
        self._sorted = None
        return entry

    def modify(
        self, matches: Sequence[Match | None], action: str, data: Sequence[int], priority: int = 0
    ) -> Entry:
        """What an entry does from now on."""
        entry = self._existing(matches, priority)
        entry.data = self._data(action, data)
        entry.action = self._action(action)
        return entry

    def delete(self, matches: Sequence[Match | None], priority: int = 0) -> None:
        """Takes an entry out."""
        self._existing(matches, priority)
        del self._entries[self._place(matches, priority)]
        self._sorted = None

    def set_default(self, action: str | None, data: Sequence[int] = ()) -> None:
        """What a packet gets that hits nothing; None: what the program says."""
        if action is None:
            self.default_action, self.default_data = self._first_default
        else:
            self.default_data = self._data(action, data)
            self.default_action = self._action(action)

    def apply(self, packet: Packet) -> str | None:
        """Does to the packet what the entry it hits says, and answers the name of the next node."""
        entry = self.lookup(packet)
        if entry is None:
            action, data = self.default_action, self.default_data
        else:
            action, data = entry.action, entry.data
            if self.counted:
                entry.counter.add(packet)
        if action is not None:
            action.run(packet, data)
        if "__HIT__" in self._next or "__MISS__" in self._next:
            return self._next.get("__MISS__" if entry is None else "__HIT__")
        return self._next_by_default if action is None else self._next.get(action.name, self._next_by_default)

    def lookup(self, packet: Packet) -> Entry | None:
        """The entry that the packet hits."""
        if not self._entries:
            return None
        values = tuple([key.read(packet) for key in self.keys])
        if self._match_type == "exact":
            return self._entries.get((values, 0))
        if self._sorted is None:
            self._sorted = sorted(self._entries.values(), key=self._rank)  # stable: first come, first hit
        for entry in self._sorted:
            for key, match, value in zip(self.keys, entry.matches, values, strict=True):
                if not key.hits(match, value):
                    break
            else:
                return entry
        return None

    def _rank(self, entry: Entry) -> int:
        if self.ordered:
            return -entry.priority
        # lpm: the longest prefix first.
        return -sum(m[1] for m in entry.matches if not isinstance(m, int))

    def _place(self, matches: Sequence[Match | None], priority: int) -> tuple[tuple[Match, ...], int]:
        if len(matches) != len(self.keys):
            raise TableError(f"{self.name} is matched by {len(self.keys)} fields, not {len(matches)}")
        normal = tuple(key.normal(match) for key, match in zip(self.keys, matches, strict=True))
        return normal, priority if self.ordered else 0

    def _existing(self, matches: Sequence[Match | None], priority: int) -> Entry:
        entry = self.find(matches, priority)
        if entry is None:
            raise TableError(f"{self.name} has no such entry: {matches}, priority {priority}")
        return entry

    def _action(self, name: str) -> Action:
        if name not in self.actions:
            raise TableError(f"{self.name} has no action {name}: {', '.join(self.actions)}")
        return self.actions[name]

    def _data(self, name: str, data: Sequence[int]) -> list[int]:
        parameters = self._action(name).parameters
        if len(data) != len(parameters):
            raise TableError(f"{name} takes {len(parameters)} values, not {len(data)}")
        for parameter, value in zip(parameters, data, strict=True):
            if not 0 <= value < 1 << parameter.bits:
                raise TableError(f"{name}: {parameter.name} has {parameter.bits} bits, {value} does not fit")
        return list(data)


def _key(layout: Layout, json: dict[str, Any]) -> Key:
    target, kind = json["target"], json["match_type"]
    if kind == "valid":
        return Key(json.get("name", target), "exact", 1, None, layout.headers[target].index, 1)
    header, name = target
    if name == "$valid$":
        return Key(json.get("name", f"{header}.$valid$"), kind, 1, None, layout.headers[header].index, 1)
    if kind not in ("exact", "lpm", "ternary", "range", "optional"):
        raise UnsupportedError(f"match type {kind}")
    field = layout.field(header, name)
    mask = int(json["mask"], 16) if json.get("mask") else (1 << field.bits) - 1
    return Key(
        json.get("name", f"{header}.{name}"), kind, field.bits, field.slot, layout.headers[header].index, mask
    )


def _constant_match(json: dict[str, Any]) -> Match:
    match json["match_type"]:
        case "exact":
            return int(json["key"], 16)
        case "valid":
            return int(json["key"])
        case "lpm":
            return int(json["key"], 16), json["prefix_length"]
        case "ternary" | "optional":
            return int(json["key"], 16), int(json["mask"], 16)
        case "range":
            return int(json["start"], 16), int(json["end"], 16)
        case kind:
            raise UnsupportedError(f"match type {kind}")


def by_name(names: Iterable[str], wanted: str, what: str) -> str:
    """The one full name that ends as asked: `classify` for `IngressC.classify`."""
    names = list(names)
    if wanted in names:
        return wanted
    found = [name for name in names if name.endswith("." + wanted)]
    if len(found) != 1:
        raise KeyError(f"no {what} {wanted!r}; there are {', '.join(names) or 'none'}")
    return found[0]
