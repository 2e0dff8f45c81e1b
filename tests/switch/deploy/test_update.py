"""The order of writes: between any two of them, live traffic meets no unsafe mixture."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable

import pytest

from dlcp.switch import (
    BridgeEntry,
    Policy,
    Route,
    SwitchTarget,
    Thresholds,
    TrafficClass,
    programs,
)
from dlcp.switch.entries import (
    Entry,
    Exact,
    MulticastGroup,
    TableEntry,
    desired_entries,
)
from dlcp.switch.resolved import NEVER_BYTES

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from dlcp.switch.deploy.groups import renumbered
from dlcp.switch.deploy.update import Update, UpdateKind, described, difference

SMALL = SwitchTarget("s1", "h:1", {"a": 1, "b": 2, "c": 3})


def policies(seed: int) -> tuple[Policy, Policy]:
    """Two policies of one class with random thresholds."""
    draw = random.Random(seed)

    def levels(fate: str) -> tuple[Thresholds, ...]:
        limits = sorted(draw.choice([None, *range(0, 1000, 100)]) or 10**6 for _ in range(8))
        return tuple(Thresholds(**{fate: None if limit == 10**6 else limit}) for limit in limits)

    fate = draw.choice(["drop_above_bytes", "trim_above_bytes"])
    classes = [
        TrafficClass(1, dscp=(8,), critical=Thresholds(drop_above_bytes=5000), droppable=levels(fate))
        for _ in "ab"
    ]
    return Policy(classes=(classes[0],)), Policy(classes=(classes[1],))


def limits_in(held: dict[object, Entry]) -> list[int]:
    """Above how many bytes each level is cut or dropped under these entries."""
    limits = [NEVER_BYTES] * 9
    for entry in held.values():
        if isinstance(entry, TableEntry) and entry.table == "thresholds":
            level = dict(entry.match)["level"]
            assert isinstance(level, Exact)
            params = dict(entry.params)
            limits[level.value] = min(params["trim_above_bytes"], params["drop_above_bytes"])
    return limits


def apply(held: dict[object, Entry], update: Update) -> None:
    """One write, as a strict switch takes it."""
    assert (update.entry.identity in held) == (
        update.kind is not UpdateKind.insert
    ) or update.kind is UpdateKind.modify
    if update.kind is UpdateKind.delete:
        del held[update.entry.identity]
    else:
        held[update.entry.identity] = update.entry


@pytest.mark.parametrize("seed", range(60))
def test_between_any_two_writes_no_packet_is_dropped_before_a_less_important_one(seed: int) -> None:
    old, new = (desired_entries(policy, SMALL).entries for policy in policies(seed))
    held: dict[object, Entry] = {entry.identity: entry for entry in old}
    for update in difference(old, new):
        apply(held, update)
        limits = limits_in(held)[:8]
        assert limits == sorted(limits), f"seed {seed}: after {update}"
    assert set(held.values()) == set(new)


def with_next_hops(ports: tuple[str, ...], choice: str = "path_id") -> list[Entry]:
    """Entries of a switch with a group of these ports, routed and bridged to."""
    target = SwitchTarget(
        "s",
        "h:1",
        {name: n for n, name in enumerate("abcdef", 1)},
        path_groups={"up": ports},
        router_macs=("02:00:00:00:00:01",),
        bridge=(BridgeEntry("02:00:00:00:00:0a", group="up"),),
        routes=(Route("::/0", group="up", next_hops=dict.fromkeys(ports, "02:00:00:00:00:0b")),),
    )
    return list(desired_entries(Policy(path_choice=choice), target).entries)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([], with_next_hops(("a", "b"))),
        (with_next_hops(("a", "b")), []),
        (with_next_hops(("a", "b")), with_next_hops(("c", "d", "e", "f"))),
        (with_next_hops(("c", "d", "e", "f")), with_next_hops(("a",))),
        (with_next_hops(("a", "b")), with_next_hops(("b", "c"), "adaptive")),
        (with_next_hops(("a", "b", "c"), "adaptive"), with_next_hops(("b",))),
    ],
)
def test_between_any_two_writes_nothing_refers_to_what_is_not_there(
    old: list[Entry], new: list[Entry]
) -> None:
    held: dict[object, Entry] = {entry.identity: entry for entry in old}
    for update in difference(old, renumbered(old, new)):
        apply(held, update)
        assert list(dangling(held)) == [], f"after {update}"


def dangling(held: dict[object, Entry]) -> list[str]:
    """Groups, ways and copies that are referred to and not there."""
    tables: dict[str, list[dict[str, int]]] = {}
    for entry in held.values():
        if isinstance(entry, TableEntry):
            keys = {name: key.value for name, key in entry.match if isinstance(key, Exact)}
            tables.setdefault(entry.table, []).append(
                {**dict(entry.params), **{f"key_{k}": v for k, v in keys.items()}}
            )
    copies = {e.group_id for e in held.values() if isinstance(e, MulticastGroup)}
    groups = {row["key_group"]: row for row in tables.get("path_group", [])}
    ways = {
        (t, row["key_group"], row["key_index"])
        for t in ("member", "member_other")
        for row in tables.get(t, [])
    }
    missing = [f"copies {row['group']}" for row in tables.get("flood", []) if row["group"] not in copies]
    for table in ("bridge", "route_ipv4", "route_ipv6"):
        missing += [
            f"{table} {row}"
            for row in tables.get(table, [])
            if row.get("group", 0) and row["group"] not in groups
        ]
    for number, row in groups.items():
        needed = ("member", "member_other") if row["choice"] == programs.PathChoice.ADAPTIVE else ("member",)
        missing += [
            f"{table} {number} {index}"
            for table in needed
            for index in range(row["size"])
            if (table, number, index) not in ways
        ]
    return missing


def next_hops_of(entries: Iterable[Entry]) -> dict[object, frozenset[tuple[object, ...]]]:
    """Who leads to a group (an address, a prefix) → the ways of that group."""
    rows = [e for e in entries if isinstance(e, TableEntry)]
    ways: dict[object, set[tuple[object, ...]]] = {}
    for row in rows:
        if row.table == "member":
            ways.setdefault(dict(row.match)["group"], set()).add((row.action, row.params))
    return {
        (row.table, row.match): frozenset(ways[Exact(dict(row.params)["group"])])
        for row in rows
        if row.action in ("to_group", "next_hop_group")
    }


@pytest.mark.parametrize("seed", range(40))
def test_between_any_two_writes_traffic_takes_its_old_ways_or_its_new_ones(seed: int) -> None:
    draw = random.Random(seed)

    def target() -> SwitchTarget:
        ports = draw.sample("abcdefgh", 8)
        sizes = [draw.randint(1, 3) for _ in range(draw.randint(1, 2))]
        groups = {f"g{n}": tuple(ports.pop() for _ in range(size)) for n, size in enumerate(sizes)}
        macs = [f"02:00:00:00:01:{n:02x}" for n in range(4)]
        routes = []
        for number in draw.sample(range(6), draw.randint(1, 6)):
            name = draw.choice(list(groups))
            hops = {port: draw.choice(macs) for port in groups[name]}
            routes.append(Route(f"10.{number}.0.0/16", group=name, next_hops=hops))
        return SwitchTarget(
            "s",
            "h:1",
            {name: n for n, name in enumerate("abcdefgh", 1)},
            path_groups=groups,
            router_macs=(macs[0],),
            bridge=tuple(BridgeEntry(mac, group=draw.choice(list(groups))) for mac in macs),
            routes=tuple(routes),
        )

    held: dict[object, Entry] = {e.identity: e for e in desired_entries(Policy(), target()).entries}
    for _ in range(5):
        fresh = desired_entries(Policy(path_choice=draw.choice(["path_id", "adaptive"])), target()).entries
        new = renumbered(held.values(), fresh)
        before, after = next_hops_of(held.values()), next_hops_of(new)
        assert after == next_hops_of(fresh), f"seed {seed}: other numbers, other ways"
        for update in difference(held.values(), new):
            apply(held, update)
            assert list(dangling(held)) == [], f"seed {seed}: after {update}"
            for who, ways in next_hops_of(held.values()).items():
                assert ways in (before.get(who), after.get(who)), f"seed {seed}: {who} after {update}"
        assert renumbered(held.values(), fresh) == new, f"seed {seed}: the second time another number"


def grouped(**groups: tuple[str, ...]) -> tuple[Entry, ...]:
    """Entries of a switch with these path groups."""
    return desired_entries(Policy(), dataclasses.replace(SMALL, path_groups=groups)).entries


def test_groups_keep_their_numbers_when_others_come_and_go() -> None:
    changes = difference(grouped(b=("b",)), renumbered(grouped(b=("b",)), grouped(a=("a",), b=("b",))))
    assert all(
        "group 1" not in described(update.entry) for update in changes if update.kind is UpdateKind.modify
    )
    # A switch that got its groups in another order holds what is wanted.
    held, new = grouped(a=("a",), b=("b",)), grouped(b=("b",), a=("a",))
    assert difference(held, renumbered(held, new)) == []


def test_with_all_numbers_in_use_one_is_taken_over() -> None:
    def member_of(number: int, port: int) -> TableEntry:
        return TableEntry(
            "member", (("group", Exact(number)), ("index", Exact(0))), "member_port", (("port", port),)
        )

    (new,) = renumbered([member_of(n, n) for n in range(1, 256)], [member_of(1, 500)])
    assert new == member_of(1, 500)


def test_nothing_is_forwarded_before_decisions_are_in() -> None:
    policy = Policy(classes=(TrafficClass(1, dscp=(8,), critical=Thresholds(5, 100)),))
    tables = [
        u.entry.table
        for u in difference([], desired_entries(policy, SMALL).entries)
        if isinstance(u.entry, TableEntry)
    ]
    assert tables.index("flood") > max(
        i for i, t in enumerate(tables) if t in ("thresholds", "classify", "mark_ramp")
    )


def test_marks_never_match_twice_while_they_change() -> None:
    def entries(first: int) -> tuple[Entry, ...]:
        return desired_entries(
            Policy(classes=(TrafficClass(1, critical=Thresholds(first, first + 3000)),)), SMALL
        ).entries

    held: dict[object, Entry] = {e.identity: e for e in entries(100)}
    for update in difference(entries(100), entries(150)):
        apply(held, update)
        ranges = [
            k
            for e in held.values()
            if isinstance(e, TableEntry) and e.table == "mark_ramp"
            for _, k in e.match
        ]
        spans = sorted((k.low, k.high) for k in ranges if hasattr(k, "low"))
        assert all(high < low for (_, high), (low, _) in itertools.pairwise(spans)), f"after {update}"


def test_no_difference_is_no_write() -> None:
    entries = with_next_hops(("a", "b"))
    assert difference(entries, reversed(entries)) == []
