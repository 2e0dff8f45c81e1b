"""Topologies: TOML in and out, and mistakes named with their field, value and what is accepted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.errors import DlcpError
from dlcp.switch import BridgeEntry, Policy, Port, Route, SwitchTarget, Topology, TopologyError
from dlcp.switch.starting_policy import starting_policy

MACS = [f"02:00:00:00:00:{n:02x}" for n in range(1, 20)]

LEAF = SwitchTarget(
    "leaf1",
    "10.0.0.1:9559",
    {"host1": 1, "host2": 2, "up1": 3, "up2": 4},
    device_id=7,
    election_id=5,
    salt=99,
    path_groups={"uplinks": ("up1", "up2")},
    router_macs=(MACS[9],),
    bridge=(BridgeEntry(MACS[0], port="host1"), BridgeEntry(MACS[2], group="uplinks")),
    routes=(
        Route("10.1.0.0/16", port="host1", next_hop=MACS[0]),
        Route("fd00::/32", group="uplinks", next_hops={"up1": MACS[3], "up2": MACS[4]}),
    ),
)
SPINE = SwitchTarget("spine1", "[fd00::2]:9559", {"leaf1": 1, "leaf2": 63})


def bad(**changes: Any) -> str:
    """What is said of LEAF with these fields."""
    with pytest.raises(TopologyError) as raised:
        Topology((dataclasses.replace(LEAF, **changes),))
    assert isinstance(raised.value, DlcpError)
    return str(raised.value)


def bad_toml(text: str) -> str:
    """What is said of a text."""
    with pytest.raises(TopologyError) as raised:
        Topology.from_toml(text)
    return str(raised.value)


# --- whatever is in the file ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 3000 + "]" * 3000,
        '[[switch]]\nname = "s"\naddress = "h:1"\nports = {a = 1}\nelection_id = ' + "9" * 5000,
        '[[switch]]\nname = "s"\naddress = "h:1"\nports = {a = 1}\nelection_id = 0x' + "f" * 5000,
        '"a\\nb" = 1',
        '[[switch]]\n"\\u001b[2J" = 1',
        '[[switch]]\nname = "s"\naddress = "h:1"\nports = {"a\\nb" = 99}',
    ],
    ids=["brackets", "digits", "hexadecimal", "newline", "escape", "port"],
)
def test_what_no_topology_can_be_is_one_printable_line(text: str) -> None:
    said = bad_toml(text)
    assert said.isprintable(), said


# --- in and out -----------------------------------------------------------------------------------------------


def test_toml_there_and_back_is_the_same_topology(tmp_path: Path) -> None:
    topology = Topology((LEAF, SPINE))
    assert Topology.from_toml(topology.to_toml()) == topology
    topology.save(tmp_path / "t.toml")
    assert Topology.load(tmp_path / "t.toml") == topology


@given(
    st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 63), min_size=1, max_size=8).filter(
        lambda ports: len(set(ports.values())) == len(ports)
    ),
    st.integers(0, 2**63 - 1),  # TOML's integers end there
    st.integers(1, 2**63 - 1),
)
def test_toml_there_and_back_whatever_ports_are_called(
    ports: dict[str, int], device_id: int, election_id: int
) -> None:
    target = SwitchTarget("s", "h:1", ports, device_id=device_id, election_id=election_id)
    topology = Topology((target,))
    assert Topology.from_toml(topology.to_toml()) == topology


def test_the_worked_example_is_a_fabric(repository: Path) -> None:
    topology = Topology.load(repository / "docs" / "switch" / "topology.toml")
    policy = Policy.load(repository / "docs" / "switch" / "policy.toml")
    topology.check_policy(policy)
    assert [target.name for target in topology.switches] == ["leaf1", "leaf2", "spine1", "spine2"]
    assert [list(target.groups_under(policy)) for target in topology.switches] == [
        ["uplinks"],
        ["uplinks"],
        [],
        [],
    ]
    assert {len(target.bridge) for target in topology.switches} == {4}, "a switch does not know all hosts"


def test_the_worked_example_takes_a_policy_that_knows_no_ports(repository: Path) -> None:
    topology = Topology.load(repository / "docs" / "switch" / "topology.toml")
    topology.check_policy(starting_policy(25_000_000_000))


def test_address_may_be_a_socket_of_this_host() -> None:
    Topology((dataclasses.replace(LEAF, address="unix:/run/switch/p4.sock"),))


def test_salts_differ_by_name_and_stay_the_same() -> None:
    assert LEAF.path_salt == 99
    assert SPINE.path_salt == 2291531640, "another salt moves flows to other paths at the next deployment"
    assert SPINE.path_salt != dataclasses.replace(SPINE, name="spine2").path_salt


# --- one switch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "switch[0].name is ''; accepted: 1 to 64 letters"),
        ({"name": "a b"}, "switch[0].name is 'a b'"),
        ({"address": "10.0.0.1"}, "switch[0].address is '10.0.0.1'; accepted: HOST:PORT"),
        ({"address": "unix:run/p4"}, "or unix:/PATH"),
        ({"address": "h:0"}, "a port from 1 to 65535"),
        ({"address": "h:65536"}, "a port from 1 to 65535"),
        ({"address": "fd00::2:9559"}, "switch[0].address is 'fd00::2:9559'"),
        ({"device_id": -1}, "switch[0].device_id is -1"),
        ({"device_id": True}, "switch[0].device_id is True; accepted: an integer"),
        ({"program": "tna"}, "switch[0].program is 'tna'; accepted: v1model"),
        ({"election_id": 0}, "switch[0].election_id is 0; accepted: an integer from 1"),
        ({"election_id": 2**128}, "switch[0].election_id"),
        ({"salt": 2**32}, "switch[0].salt"),
        ({"ports": {}}, "switch[0].ports is {}; accepted: at least one port"),
        ({"ports": {**LEAF.ports, "x": 64}}, "switch[0].ports.x is 64; accepted: an integer from 0 to 63"),
        (
            {"ports": {**LEAF.ports, "x": 4}},
            "switch[0].ports.x is 4; accepted: a number that no other port has; up2",
        ),
        (
            {"path_groups": {"uplinks": ()}},
            "switch[0].path_groups.uplinks is []; accepted: at least one port",
        ),
        ({"path_groups": {"uplinks": ("up1", "up3")}}, "is 'up3'; accepted: a port of the switch: host1"),
        (
            {"path_groups": {"uplinks": ("up1", "up2"), "b": ("up2",)}},
            "switch[0].path_groups.b is 'up2'; accepted: a port of no other group; uplinks has it",
        ),
        ({"router_macs": ("02:00",)}, "switch[0].router_macs[0] is '02:00'; accepted: a MAC address"),
        ({"router_macs": ("01:00:5e:00:00:01",)}, "a MAC address of one host"),
        ({"router_macs": ("00:00:00:00:00:00",)}, "a MAC address of one host"),
        ({"router_macs": ("02:00:00:00:00:0A", "02:00:00:00:00:0a")}, "accepted: each address once"),
        (
            {"router_macs": ()},
            "switch[0].router_macs is []; accepted: at least one MAC address, since there are",
        ),
        ({"bridge": (BridgeEntry("xx", "host1"),)}, "switch[0].bridge[0].mac is 'xx'"),
        (
            {"bridge": (BridgeEntry(MACS[0], "host3"),)},
            "switch[0].bridge[0].port is 'host3'; accepted: a port of",
        ),
        (
            {"bridge": (BridgeEntry(MACS[0], group="up"),)},
            "bridge[0].group is 'up'; accepted: a path group of the",
        ),
        ({"bridge": (BridgeEntry(MACS[0]),)}, "accepted: either a port or a group"),
        ({"bridge": (BridgeEntry(MACS[0], "host1", "uplinks"),)}, "accepted: either a port or a group"),
        ({"bridge": (BridgeEntry(MACS[0], "host1"),) * 2}, "accepted: each address once"),
        (
            {"routes": (Route("10.0.0.1/8", "host1", MACS[0]),)},
            "route[0].prefix is '10.0.0.1/8'; accepted: a prefix",
        ),
        ({"routes": (Route("ten", "host1", MACS[0]),)}, "route[0].prefix is 'ten'"),
        ({"routes": (Route("::/129", "host1", MACS[0]),)}, "route[0].prefix is '::/129'"),
        (
            {"routes": (Route("10.0.0.0/8", "host1", MACS[0]), Route("10.0.0.0/8", "host2", MACS[1]))},
            "switch[0].route[1].prefix is '10.0.0.0/8'; accepted: a prefix that no other route has; route[0] has it",
        ),
        (
            {"routes": (Route("10.0.0.0/8", "host1"),)},
            "route[0].next_hop is None; accepted: the next hop's MAC",
        ),
        ({"routes": (Route("10.0.0.0/8", "host1", "me"),)}, "route[0].next_hop is 'me'"),
        ({"routes": (Route("10.0.0.0/8", "host9", MACS[0]),)}, "route[0].port is 'host9'"),
        (
            {"routes": (Route("10.0.0.0/8", group="uplinks", next_hops={"up1": MACS[0]}),)},
            "accepted: one MAC address for each port of uplinks: up1, up2",
        ),
        (
            {"routes": (Route("10.0.0.0/8", "host1", MACS[0], next_hops={"up1": MACS[0]}),)},
            "accepted: none, unless group is set",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_what_cannot_be_meant_is_named(changes: dict[str, Any], said: str) -> None:
    assert said in bad(**changes)


def test_same_prefix_of_both_ip_versions_is_two_prefixes() -> None:
    routes = (Route("0.0.0.0/0", "host1", MACS[0]), Route("::/0", "host1", MACS[0]))
    Topology((dataclasses.replace(LEAF, routes=routes),))


# --- several --------------------------------------------------------------------------------------------------


def test_no_switch_is_no_topology() -> None:
    assert bad_toml("") == "switch is []; accepted: at least one switch"


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"switch\[1\].name is 'leaf1'; accepted: a name that no other"):
        Topology((LEAF, dataclasses.replace(LEAF, address="10.0.0.2:9559")))


def test_one_device_twice_is_refused_and_two_behind_one_address_are_not() -> None:
    other = dataclasses.replace(LEAF, name="leaf2")
    with pytest.raises(TopologyError, match="10.0.0.1:9559, device 7"):
        Topology((LEAF, other))
    Topology((LEAF, dataclasses.replace(other, device_id=8)))


def test_only_takes_the_named_ones_in_the_topologys_order() -> None:
    topology = Topology((LEAF, SPINE))
    assert topology.only(["spine1", "leaf1"]) == topology
    assert topology.only([]) == topology
    assert topology.only(["spine1"]).switches == (SPINE,)
    with pytest.raises(TopologyError, match="--only is 'spine9'; accepted: a switch of the topology: leaf1"):
        topology.only(["spine9"])


# --- with a policy --------------------------------------------------------------------------------------------


def test_policys_port_that_no_switch_has_is_named() -> None:
    policy = Policy(ports=(Port("up1", 1), Port("up9", 1)))
    with pytest.raises(
        TopologyError, match=r"policy's port\[1\].name is 'up9', which no switch has; accepted: host1"
    ):
        Topology((LEAF, SPINE)).check_policy(policy)
    with pytest.raises(TopologyError, match=r"policy's path_groups.a is 'up8', which no switch has"):
        Topology((LEAF, SPINE)).check_policy(Policy(path_groups={"a": ("up8",)}))


def test_policys_group_is_that_of_switches_that_have_its_ports() -> None:
    bare = dataclasses.replace(LEAF, path_groups=None, routes=(), router_macs=())
    policy = Policy(path_groups={"uplinks": ("up1", "up2"), "downlinks": ("leaf1", "leaf2")})
    assert bare.groups_under(policy) == {"uplinks": ("up1", "up2")}
    assert SPINE.groups_under(policy) == {"downlinks": ("leaf1", "leaf2")}
    assert dataclasses.replace(SPINE, path_groups={}).groups_under(policy) == {}
    Topology((bare, SPINE)).check_policy(policy)


def test_policys_group_of_which_a_switch_has_a_part_is_refused() -> None:
    policy = Policy(path_groups={"mixed": ("up1", "leaf1")})
    bare = dataclasses.replace(LEAF, path_groups=None, bridge=(), routes=(), router_macs=())
    with pytest.raises(
        TopologyError, match="leaf1 has up1 of the policy's path group 'mixed', but not leaf1"
    ):
        Topology((bare, SPINE)).check_policy(policy)


def test_entry_that_leads_to_a_group_the_policy_lacks_is_refused() -> None:
    bare = dataclasses.replace(LEAF, path_groups=None, routes=(), router_macs=())
    accepted = r"bridge\[1\].group is 'uplinks'; accepted: .* give the switch one: path_groups = {uplinks = "
    with pytest.raises(TopologyError, match=accepted):
        Topology((bare,)).check_policy(Policy())


# --- malformed files ------------------------------------------------------------------------------------------

HEAD = '[[switch]]\nname = "s"\naddress = "h:1"\nports = {a = 1}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("switch = 3", "switch is 3; accepted: tables"),
        ("switch = [3]", "switch[0] is 3; accepted: a table"),
        ("[[switch", "not TOML"),
        ("[[swich]]", "swich is unknown; accepted: switch"),
        ("[[switch]]", "switch[0].name is missing"),
        ('[[switch]]\nname = "s"', "switch[0].address is missing"),
        ('[[switch]]\nname = "s"\naddress = "h:1"', "switch[0].ports is missing"),
        ('[[switch]]\nname = 1\naddress = "h:1"\nports = {a = 1}', "switch[0].name is 1; accepted: a text"),
        (HEAD + "prots = 1", "switch[0].prots is unknown"),
        (HEAD + "routes = []", "switch[0].routes is unknown"),
        (HEAD + "path_groups = 1", "switch[0].path_groups is 1; accepted: a table"),
        (HEAD + "path_groups = {a = 'up'}", "switch[0].path_groups.a is 'up'; accepted: a list of texts"),
        (HEAD + "router_macs = [1]", "switch[0].router_macs[0] is 1; accepted: a text"),
        (HEAD + "bridge = [{port = 'a'}]", "switch[0].bridge[0].mac is missing"),
        (HEAD + "bridge = [{mac = 1}]", "switch[0].bridge[0].mac is 1; accepted: a text"),
        (HEAD + "route = [{prefix = '::/0', via = 'a'}]", "switch[0].route[0].via is unknown"),
        (HEAD + "route = [{prefix = '::/0', next_hops = 1}]", "switch[0].route[0].next_hops is 1"),
        (HEAD.replace("{a = 1}", '{a = "1"}'), "switch[0].ports.a is '1'; accepted: an integer from 0 to 63"),
        (HEAD.replace("{a = 1}", "[1]"), "switch[0].ports is [1]; accepted: a table"),
    ],
)
def test_malformed_text_is_named(text: str, said: str) -> None:
    assert said in bad_toml(text)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="none.toml: No such file"):
        Topology.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(TopologyError, match="bad.toml: not UTF-8"):
        Topology.load(tmp_path / "bad.toml")
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(TopologyError, match="empty.toml: switch is"):
        Topology.load(tmp_path / "empty.toml")
