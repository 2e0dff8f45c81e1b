"""A policy as entries: what is on each switch, in which order it is written, and what cannot be.

That the entries make the compiled program decide as the golden vectors say is tested in tests/p4, which installs these.
"""

from __future__ import annotations

import dataclasses
import itertools

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
    Exact,
    MulticastGroup,
    TableEntry,
    desired_entries,
    level_name,
    mark_steps,
)
from tests.support import switch_twin

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from dlcp.switch.deploy.codec import canonical
from dlcp.switch.deploy.pipeline import Pipeline
from dlcp.switch.deploy.update import described, difference

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
