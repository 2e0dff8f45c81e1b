"""Numbers of path groups, chosen so that live traffic never takes another group's next hops.

A group's number means nothing by itself. If a changed group kept its number, routes that refer to it would lead to
wrong next hops for a moment. A group that a switch holds unchanged therefore keeps its number there. A group that is
new, or has other next hops than before, gets an unused number: it is complete before anything refers to it, and the old
one is deleted when nothing refers to it any more. Only if all 255 numbers are in use, a number is used again at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlcp.switch.entries import Entry, Exact, TableEntry
from dlcp.switch.programs import MAX_GROUPS

MATCHED = ("member", "member_other", "path_group")  # tables with a field `group`
NAMED = ("to_group", "next_hop_group", "in_group")  # actions with a parameter `group`

NextHops = frozenset[tuple[object, ...]]


def renumbered(held: Iterable[Entry], wanted: Iterable[Entry]) -> list[Entry]:
    """`wanted`, with the numbers of its groups changed to suit a switch that holds `held`."""
    wanted = list(wanted)
    there, here = _hops(held), _hops(wanted)
    numbers: dict[int, int] = {}
    for number, hops in here.items():
        same = [n for n in (number, *there) if there.get(n) == hops and n not in numbers.values()]
        if same:
            numbers[number] = same[0]
    for number in here:
        if number not in numbers:
            taken = set(numbers.values())
            free = [n for n in (number, *range(1, MAX_GROUPS + 1)) if n not in taken]
            numbers[number] = next((n for n in free if n not in there), free[0])
    return [_renumber(entry, numbers) for entry in wanted]


def _hops(entries: Iterable[Entry]) -> dict[int, NextHops]:
    """Number of each group → what its members are."""
    found: dict[int, set[tuple[object, ...]]] = {}
    for entry in entries:
        if isinstance(entry, TableEntry) and entry.table in MATCHED:
            keys = dict(entry.match)
            group = keys.pop("group")
            assert isinstance(group, Exact)
            hops = found.setdefault(group.value, set())
            if entry.table == "member":
                hops.add((tuple(keys.items()), entry.action, entry.params))
    return {number: frozenset(hops) for number, hops in sorted(found.items())}


def _renumber(entry: Entry, numbers: dict[int, int]) -> Entry:
    if not isinstance(entry, TableEntry):
        return entry
    if entry.table in MATCHED:
        keys = tuple(
            (n, Exact(numbers[k.value])) if n == "group" and isinstance(k, Exact) else (n, k)
            for n, k in entry.match
        )
        return replace(entry, match=keys)
    if entry.action in NAMED:
        params = tuple((name, numbers.get(value, value)) for name, value in entry.params)
        return replace(entry, params=params)
    return entry
