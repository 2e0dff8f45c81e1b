"""A policy as entries: what is on each switch, in which order it is written, and what cannot be.

That the entries make the compiled program decide as the golden vectors say is tested in tests/p4, which installs these.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.switch import (
    BridgeEntry,
    Policy,
    Port,
    Route,
    SwitchTarget,
    Thresholds,
    Topology,
    TrafficClass,
    programs,
)
from dlcp.switch.entries import (
    Entry,
    Exact,
    MulticastGroup,
    TableEntry,
    desired_entries,
    level_name,
    limits_of,
    mark_steps,
)
from dlcp.switch.limits import Limit, UnsupportedError, line_number, refuse
from dlcp.switch.policy_file import PolicyFile
from dlcp.switch.resolved import NEVER_BYTES
from tests.support import switch_twin

pytest.importorskip("finsy", reason="needs the packages of dlcp[p4]")

from dlcp.switch.deploy.codec import canonical
from dlcp.switch.deploy.errors import ProgramError
from dlcp.switch.deploy.groups import renumbered
from dlcp.switch.deploy.pipeline import Pipeline
from dlcp.switch.deploy.transaction import DesiredState
from dlcp.switch.deploy.update import Kind, Update, described, difference

PIPELINE = Pipeline.of(programs.load("v1model"))
SMALL = SwitchTarget("s1", "h:1", {"a": 1, "b": 2, "c": 3})


def texts(policy: Policy, target: SwitchTarget = SMALL, table: str = "") -> list[str]:
    """The entries of a table as lines, in the order in which a fresh switch gets them."""
    updates = difference([], [canonical(e, PIPELINE.schema) for e in desired_entries(policy, target).entries])
    return [line for u in updates if (line := described(u.entry)).startswith(table)]


# --- what there is --------------------------------------------------------------------------------------------


def test_small_policy_in_full() -> None:
    policy = Policy(
        classes=(
            TrafficClass(
                2,
                dscp=(10, 8),
                critical=Thresholds(100, 116, 0.5),
                droppable=(Thresholds(trim_above_bytes=50),),
            ),
            TrafficClass(7, dscp=(56,), critical=Thresholds(drop_above_bytes=900)),
        ),
        path_choice="adaptive",
        path_groups={"up": ("b", "c")},
        ports=(
            Port("a", 10**9, (TrafficClass(2, critical=Thresholds(drop_above_bytes=70)),)),
            Port("b", 10**9),
            Port("c", 10**9),
        ),
        foreign_class=1,
        shared_bytes=5000,
        shared_alpha_log2=-2,
    )
    target = dataclasses.replace(
        SMALL,
        salt=4,
        router_macs=("02:00:00:00:00:01", "02:00:00:00:00:02"),
        bridge=(BridgeEntry("02:00:00:00:00:0a", "a"), BridgeEntry("02:00:00:00:00:0b", group="up")),
        routes=(
            Route("10.0.0.0/8", "a", "02:00:00:00:00:0a"),
            Route("0.0.0.0/0", group="up", next_hops={"b": "02:00:00:00:00:0b", "c": "02:00:00:00:00:0c"}),
            Route("fd00:1::/32", group="up", next_hops={"c": "02:00:00:00:00:0c", "b": "02:00:00:00:00:0b"}),
        ),
    )
    got = texts(policy, target)
    ramp = [line for line in got if line.startswith("mark_ramp")]
    assert len(ramp) == 16
    assert ramp[:2] == [
        "mark_ramp depth 100…100, traffic_class 2: set_mark_ratio(ratio=1024)",
        "mark_ramp depth 101…101, traffic_class 2: set_mark_ratio(ratio=3072)",
    ]
    assert [line for line in got if line not in ramp] == [
        "buffer otherwise: set_buffer(port_bytes_limit=never, shared_bytes=5000, alpha_left=0, alpha_right=2)",
        "trimmed otherwise: set_trimmed(traffic_class=7, dscp=56)",
        "trimmed_thresholds level critical: set_trimmed_drop(drop_above_bytes=900)",
        "thresholds level critical, traffic_class 2: set_thresholds(mark_from_bytes=100, mark_full_bytes=116)",
        # Of port a, number 1: what the policy trims there is not trimmed.
        *(
            f"thresholds level {level_name(n)}, port 1, traffic_class 2: set_thresholds()"
            for n in reversed(range(8))
        ),
        *(
            f"thresholds level {level_name(n)}, traffic_class 2: set_thresholds(trim_above_bytes=50)"
            for n in range(8)
        ),
        "thresholds level critical, port 1, traffic_class 2: set_thresholds(drop_above_bytes=70)",
        "thresholds level critical, traffic_class 7: set_thresholds(drop_above_bytes=900)",
        "classify dscp 10: set_class(traffic_class=2)",
        "classify dscp 56: set_class(traffic_class=7)",
        "classify dscp 8: set_class(traffic_class=2)",
        "classify otherwise: foreign(traffic_class=1)",
        "arrival_group ingress_port 2: in_group(group=1)",
        "arrival_group ingress_port 3: in_group(group=1)",
        "member group 1, index 0: member_port(port=2)",
        "member group 1, index 1: member_port(port=3)",
        "member group 2, index 0: routed_member(port=2, dst_mac=02:00:00:00:00:0b, src_mac=02:00:00:00:00:01)",
        "member group 2, index 1: routed_member(port=3, dst_mac=02:00:00:00:00:0c, src_mac=02:00:00:00:00:01)",
        "member_other group 1, index 0: member_port(port=2)",
        "member_other group 1, index 1: member_port(port=3)",
        "member_other group 2, index 0: routed_member(port=2, dst_mac=02:00:00:00:00:0b, src_mac=02:00:00:00:00:01)",
        "member_other group 2, index 1: routed_member(port=3, dst_mac=02:00:00:00:00:0c, src_mac=02:00:00:00:00:01)",
        "path_group group 1: choose(size=2, choice=4, salt=4)",
        "path_group group 2: choose(size=2, choice=4, salt=4)",
        "multicast group 2: ports 2",
        "multicast group 3: ports 1",
        "multicast group 4: ports 1",
        "flood ingress_port 1: set_mcast(group=2)",
        "flood ingress_port 2: set_mcast(group=3)",
        "flood ingress_port 3: set_mcast(group=4)",
        "bridge dst_mac 02:00:00:00:00:0a: to_port(port=1)",
        "bridge dst_mac 02:00:00:00:00:0b: to_group(group=1)",
        "route_ipv4 anything: next_hop_group(group=2)",
        "route_ipv4 dst 10.0.0.0/8: next_hop(port=1, dst_mac=02:00:00:00:00:0a, src_mac=02:00:00:00:00:01)",
        "route_ipv6 dst fd00:1::/32: next_hop_group(group=2)",
        "router_mac dst_mac 02:00:00:00:00:01: to_router()",
        "router_mac dst_mac 02:00:00:00:00:02: to_router()",
    ]


def test_same_input_same_entries() -> None:
    policy = Policy(classes=(TrafficClass(1, dscp=(8,)), TrafficClass(2, dscp=(16,))))
    assert desired_entries(policy, SMALL) == desired_entries(policy, SMALL)


def test_port_number_zero_floods_by_a_group_that_is_one() -> None:
    target = SwitchTarget("s", "h:1", {"zero": 0, "one": 1})
    groups = [e for e in desired_entries(Policy(), target).entries if isinstance(e, MulticastGroup)]
    assert [(g.group_id, g.ports) for g in groups] == [(1, (1,)), (2, (0,))]


def test_single_port_floods_nowhere() -> None:
    assert texts(Policy(), SwitchTarget("s", "h:1", {"a": 1}), "flood") == []


# --- marks ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0, 1))
def test_mark_steps_are_those_of_the_decision(first: int, width: int, ratio: float) -> None:
    level = Thresholds(first, first + width, ratio)
    steps = list(mark_steps(level))
    for (_, high, _), (low, _, _) in itertools.pairwise(steps):
        assert low == high + 1, "steps leave a gap or overlap"
    ratio_at = {depth: value for low, high, value in steps for depth in range(low, high + 1)}
    for depth in range(first + 1, first + width):
        value = ratio_at[depth]
        assert not switch_twin.marked(level, depth, value), (
            f"depth {depth}: marked at the random word {value}"
        )
        assert value == 0 or switch_twin.marked(level, depth, value - 1), (
            f"depth {depth}: {value} is too much"
        )


def test_a_step_has_no_ramp() -> None:
    assert list(mark_steps(Thresholds(1000))) == []
    assert list(mark_steps(Thresholds())) == []


# --- flooding -------------------------------------------------------------------------------------------------


def flood(
    topology: Topology, links: dict[tuple[str, str], tuple[str, str]], at: tuple[str, str]
) -> list[tuple[str, str]]:
    """Where copies of a broadcast that comes in at (switch, port) leave the fabric. Fails if it goes round for ever."""
    policy = Policy(path_groups={"up": ("up0", "up1", "up2")})
    groups = {t.name: desired_entries(policy, t).entries for t in topology.switches}
    ports = {t.name: {number: name for name, number in t.ports.items()} for t in topology.switches}
    numbers = {t.name: t.ports for t in topology.switches}
    out, todo, hops = [], [at], 0
    while todo:
        hops += 1
        assert hops < 1000, "a broadcast goes round for ever"
        switch, port = todo.pop()
        number = numbers[switch][port]
        flooded = [e for e in groups[switch] if isinstance(e, TableEntry) and e.table == "flood"]
        group = next(
            dict(e.params)["group"] for e in flooded if dict(e.match)["ingress_port"] == Exact(number)
        )
        copies = next(e for e in groups[switch] if isinstance(e, MulticastGroup) and e.group_id == group)
        for copy in copies.ports:
            place = (switch, ports[switch][copy])
            if place in links:
                todo.append(links[place])
            else:
                out.append(place)
    return sorted(out)


@pytest.mark.parametrize(("leaves", "hosts"), [(2, 2), (3, 1), (4, 3)])
def test_broadcast_reaches_every_host_of_a_leaf_spine_once(leaves: int, hosts: int) -> None:
    spines = 3
    links = {}
    for leaf, spine in itertools.product(range(leaves), range(spines)):
        links[f"leaf{leaf}", f"up{spine}"] = (f"spine{spine}", f"down{leaf}")
        links[f"spine{spine}", f"down{leaf}"] = (f"leaf{leaf}", f"up{spine}")
    names = [*(f"up{s}" for s in range(spines)), *(f"host{h}" for h in range(hosts))]
    topology = Topology(
        (
            *(
                SwitchTarget(f"leaf{n}", f"h:{n + 1}", {p: i for i, p in enumerate(names)})
                for n in range(leaves)
            ),
            *(
                SwitchTarget(f"spine{n}", f"h:{n + 100}", {f"down{i}": i for i in range(leaves)})
                for n in range(spines)
            ),
        )
    )
    everybody = sorted((f"leaf{n}", f"host{h}") for n in range(leaves) for h in range(hosts))
    for host in everybody:
        assert flood(topology, links, host) == [other for other in everybody if other != host]


# --- order ----------------------------------------------------------------------------------------------------


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
    assert (update.entry.identity in held) == (update.kind is not Kind.insert) or update.kind is Kind.modify
    if update.kind is Kind.delete:
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


def with_ways(ports: tuple[str, ...], choice: str = "path_id") -> list[Entry]:
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
        ([], with_ways(("a", "b"))),
        (with_ways(("a", "b")), []),
        (with_ways(("a", "b")), with_ways(("c", "d", "e", "f"))),
        (with_ways(("c", "d", "e", "f")), with_ways(("a",))),
        (with_ways(("a", "b")), with_ways(("b", "c"), "adaptive")),
        (with_ways(("a", "b", "c"), "adaptive"), with_ways(("b",))),
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


def ways_of(entries: Iterable[Entry]) -> dict[object, frozenset[tuple[object, ...]]]:
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
        before, after = ways_of(held.values()), ways_of(new)
        assert after == ways_of(fresh), f"seed {seed}: other numbers, other ways"
        for update in difference(held.values(), new):
            apply(held, update)
            assert list(dangling(held)) == [], f"seed {seed}: after {update}"
            for who, ways in ways_of(held.values()).items():
                assert ways in (before.get(who), after.get(who)), f"seed {seed}: {who} after {update}"
        assert renumbered(held.values(), fresh) == new, f"seed {seed}: the second time another number"


def grouped(**groups: tuple[str, ...]) -> tuple[Entry, ...]:
    """Entries of a switch with these path groups."""
    return desired_entries(Policy(), dataclasses.replace(SMALL, path_groups=groups)).entries


def test_groups_keep_their_numbers_when_others_come_and_go() -> None:
    changes = difference(grouped(b=("b",)), renumbered(grouped(b=("b",)), grouped(a=("a",), b=("b",))))
    assert all("group 1" not in described(update.entry) for update in changes if update.kind is Kind.modify)
    # A switch that got its groups in another order holds what is wanted.
    held, new = grouped(a=("a",), b=("b",)), grouped(b=("b",), a=("a",))
    assert difference(held, renumbered(held, new)) == []


def test_with_all_numbers_in_use_one_is_taken_over() -> None:
    def way(number: int, port: int) -> TableEntry:
        return TableEntry(
            "member", (("group", Exact(number)), ("index", Exact(0))), "member_port", (("port", port),)
        )

    (new,) = renumbered([way(n, n) for n in range(1, 256)], [way(1, 500)])
    assert new == way(1, 500)


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
    entries = with_ways(("a", "b"))
    assert difference(entries, reversed(entries)) == []


# --- what does not fit ----------------------------------------------------------------------------------------


def test_more_entries_than_a_table_has_room_for_are_refused_before_anything_is_written() -> None:
    macs = tuple(f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}" for n in range(1, 66))
    target = dataclasses.replace(SMALL, router_macs=macs, routes=(Route("::/0", "a", macs[0]),))
    with pytest.raises(ProgramError, match="s1: table 'router_mac' has room for 64 entries, not for 65"):
        DesiredState.of(target, PIPELINE, desired_entries(Policy(), target).entries)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (TableEntry("brigde", (), "to_port"), "the program has no table 'brigde'"),
        (
            TableEntry("bridge", (("dst_mac", Exact(1)),), "fly"),
            "table 'bridge' has no action 'fly'; it has to_port",
        ),
        (
            TableEntry("bridge", (("mac", Exact(1)),), "to_port", (("port", 1),)),
            "table 'bridge' has no 'mac'",
        ),
        (TableEntry("bridge", (), "to_port", (("port", 1),)), "table 'bridge' needs a key for dst_mac"),
        (TableEntry("bridge", (("dst_mac", Exact(1)),), "to_port", ()), "action 'to_port' needs port"),
        (
            TableEntry("bridge", (("dst_mac", Exact(1)),), "to_port", (("port", 512),)),
            "to_port.port is 512; .* 9 bits",
        ),
        (TableEntry("bridge", (("dst_mac", Exact(2**48)),), "to_port", (("port", 1),)), "bridge.dst_mac is"),
        (
            TableEntry("bridge", (("dst_mac", Exact(1)),), "to_port", (("port", 1),), 5),
            "priority 5 does not fit",
        ),
    ],
)
def test_entry_that_the_program_does_not_know_is_named(entry: Entry, said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        canonical(entry, PIPELINE.schema)


# --- limits ---------------------------------------------------------------------------------------------------

TRIMS = TrafficClass(1, dscp=(8,), droppable=(Thresholds(trim_above_bytes=100),))


def limits(policy: Policy) -> dict[str, bool]:
    """Line → whether it is refused."""
    return {limit.line: limit.refused for limit in limits_of(policy)}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(port_bytes=9), {}),
        (Policy(shared_bytes=9), {}),
        (Policy(), {"port_bytes": True}),
        (Policy(port_bytes=9, pause_above_bytes=5), {"pause_above_bytes": True}),
        (Policy(port_bytes=9, trimmed_run_packets=10), {"trimmed_run_packets": True}),
        (Policy(port_bytes=9, trimmed_bytes=200), {}),
        (Policy(port_bytes=9, classes=(TRIMS,)), {"trimmed_bytes": False, "trimmed_class": False}),
        (
            Policy(port_bytes=9, trimmed_bytes=106, classes=(TRIMS, TrafficClass(7, dscp=(56,)))),
            {},
        ),
        (Policy(port_bytes=9, ports=(Port("a", 10**9),)), {"port.rate_bps": False}),
    ],
    ids=lambda value: None if isinstance(value, Policy) else ",".join(value) or "none",
)
def test_limits_of_bmv2_are_told(policy: Policy, expected: dict[str, bool]) -> None:
    assert limits(policy) == expected


def test_refused_limit_says_line_number_and_what_happens_instead(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("# pfc\nport_bytes = 900\npause_above_bytes = 800\n")
    file = PolicyFile.load(path)
    found = desired_entries(file.policy, SMALL).limits
    with pytest.raises(UnsupportedError) as raised:
        file.refuse(found, [])
    said = str(raised.value)
    assert said.startswith(f"{path}:3: pause_above_bytes = 800: BMv2 sends no pause frames")
    assert "instead: packets that find the buffer full are dropped" in said
    assert said.endswith("To go on all the same: --accept pause_above_bytes")
    file.refuse(found, ["pause_above_bytes"])


def test_line_is_found_in_its_table() -> None:
    text = 'name = "x"\nrate_bps = 1\n[path_groups]\nrate_bps = ["a"]\n[[port]]\nname = "a"\n  rate_bps=5\n'
    assert line_number(text, "port.rate_bps") == 7
    assert line_number(text, "rate_bps") == 2
    assert line_number(text, "shared_bytes") is None


def test_several_refused_lines_are_all_told() -> None:
    two = [Limit(line, 1, "why", "instead") for line in ("a", "b")]
    with pytest.raises(UnsupportedError, match="--accept a --accept b"):
        refuse(two, [], None, "p")
    refuse(two, ["a", "b"], None, "p")
