"""A fabric as data: what is in it, what it refuses, and that it survives TOML. No root, nothing built."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from dlcp.lab import policies
from dlcp.lab.command import _parser
from dlcp.lab.counts import PortCount, shares
from dlcp.lab.fabric import Difference, Fabric
from dlcp.lab.fault import NO_FAULT, Burst, FabricError, Fault
from dlcp.lab.kernel import check, layout
from dlcp.lab.next_hops import lost_next_hops, next_hops, shared_next_hops
from dlcp.lab.ranks import parse_hosts
from dlcp.lab.traffic import PacketStream
from dlcp.switch.policy import Policy, PolicyError, Port, Thresholds, TrafficClass

SMALL = """
leaves = 2
spines = 2
hosts_per_leaf = 1
host_rate_bps = 50_000_000
switch = "kernel"
policy = "mine.toml"

[[link]]
name = "l0-s1"
rate_bps = 20_000_000
fault = {loss_ratio = 0.01, burst = [0.01, 0.2]}
"""


def test_leaf_spine_has_its_links_and_ports() -> None:
    fabric = Fabric(leaves=2, spines=2, hosts_per_leaf=2)
    names = [link.name for link in fabric.each_link()]
    assert names == ["h0-l0", "h1-l0", "h2-l1", "h3-l1", "l0-s0", "l0-s1", "l1-s0", "l1-s1"]
    assert list(fabric.ports("l1")) == ["h2", "h3", "s0", "s1"]
    assert list(fabric.ports("s0")) == ["l0", "l1"]
    assert fabric.path_groups("l0") == {"spines": ("s0", "s1")}
    assert fabric.path_groups("s0") == {}


def test_leaves_go_around_cut_links_as_far_as_they_can() -> None:
    fabric = Fabric(leaves=3, spines=2, hosts_per_leaf=1)
    assert shared_next_hops(fabric, "l1", ()) == ("s0", "s1")
    assert shared_next_hops(fabric, "l1", {"l0-s1"}) == ("s0",)
    assert next_hops(fabric, "l1", ["l2"], {"l0-s1"}) == ("s0", "s1"), "who routes chooses by destination"
    assert next_hops(fabric, "l1", ["l0"], {"l0-s1"}) == ("s0",)
    # No spine reaches all: a leaf that has one group sends by all that its own cables allow.
    assert shared_next_hops(fabric, "l1", {"l0-s1", "l2-s0"}) == ("s0", "s1")
    assert shared_next_hops(fabric, "l1", {"l0-s1", "l1-s0"}) == ("s1",)
    assert shared_next_hops(fabric, "l1", {"l1-s0", "l1-s1"}) == ("s0", "s1")


def test_ways_that_lead_nowhere_are_named() -> None:
    fabric = Fabric(leaves=3, spines=2, hosts_per_leaf=1)
    cut = {"l0-s1"}
    blind = [("l0", "l1", "s1"), ("l0", "l2", "s1"), ("l1", "l0", "s1"), ("l2", "l0", "s1")]
    assert list(lost_next_hops(fabric, cut, (), routed=False, sees_own=False)) == blind
    assert list(lost_next_hops(fabric, cut, (), routed=True, sees_own=True)) == blind[2:]
    assert list(lost_next_hops(fabric, cut, cut, routed=False, sees_own=False)) == []
    # l1 has one group: what reaches l2 misses l0.
    both = {"l0-s1", "l2-s0"}
    lost = list(lost_next_hops(fabric, both, both, routed=False, sees_own=True))
    assert ("l1", "l0", "s1") in lost
    assert ("l1", "l2", "s0") in lost
    lost = list(lost_next_hops(fabric, both, both, routed=True, sees_own=True))
    assert {(a, b) for a, b, _ in lost} == {("l0", "l2"), ("l2", "l0")}, "no spine joins these two"


def test_link_goes_by_either_order_of_its_ends() -> None:
    fabric = Fabric(leaves=2, spines=2, hosts_per_leaf=1)
    assert fabric.link("s1-l0") == fabric.link("l0-s1")
    with pytest.raises(FabricError, match="'s1-l9' is not there; accepted: h0-l0"):
        fabric.link("s1-l9")


def test_star_is_one_switch_without_equal_ways() -> None:
    fabric = Fabric.preset("star")
    assert fabric.switch_names == ["l0"]
    assert fabric.path_groups("l0") == {}
    assert [fabric.address(host) for host in range(fabric.hosts)] == [f"10.78.0.{i}" for i in (1, 2, 3, 4)]


def test_interfaces_have_addresses_of_their_own() -> None:
    fabric = Fabric(leaves=3, spines=2, hosts_per_leaf=3)
    macs = [fabric.mac(node, peer) for link in fabric.each_link() for node, peer in link.ends]
    assert len(set(macs)) == len(macs)
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs), "locally administered, of one host"


def test_toml_makes_the_fabric_and_table_gives_it_back(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    fabric = Fabric.load(tmp_path / "small.toml")
    assert fabric.policy == tmp_path / "mine.toml"
    link = fabric.link("l0-s1")
    assert link.rate_bps == 20_000_000
    assert link.fault == Fault(0.01, Burst(0.01, 0.2))
    assert fabric.link("l0-s0").fault == NO_FAULT
    assert Fabric.from_table(fabric.to_table()) == fabric


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"leaves": 0}, "leaves is 0; accepted: an integer from 1 to 16"),
        ({"leaves": True}, "leaves is True"),
        ({"spines": 0}, "spines is 0; accepted: 1 to 16, with 2 leaves to join"),
        ({"hosts_per_leaf": 40}, "hosts_per_leaf is 40; accepted: 2 to 64 hosts in all"),
        ({"host_rate_bps": 10}, "host_rate_bps is 10"),
        ({"fabric_rate_bps": 1.5}, "fabric_rate_bps is 1.5"),
        ({"mtu": 500}, "mtu is 500; accepted: an integer from 1280 to 9000"),
        ({"switch": "magic"}, "switch is 'magic'; accepted: software, kernel, bmv2, none"),
        ({"links": {"h9-l0": Difference()}}, "link 'h9-l0' is not there; accepted: h0-l0"),
        ({"links": {"h0-l0": Difference(1)}}, "link h0-l0: rate_bps is 1"),
    ],
)
def test_fabric_that_cannot_be_built_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(FabricError) as raised:
        replace(Fabric(), **changes)  # type: ignore[arg-type]
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leaf = 2", "leaf is unknown; accepted: fabric_rate_bps"),
        ("leaves = ", "not TOML"),
        ("policy = 3", "policy is 3"),
        ("link = 3", "link is 3; accepted: tables"),
        ("[[link]]\nrate_bps = 5", "link[0] is {'rate_bps': 5}; accepted: a table with the link's name"),
        ("[[link]]\nname = 'h0-l0'\nspeed = 5", "link[0].speed is unknown"),
        ("[[link]]\nname = 'h0-l0'\nfault = 5", "link[0].fault is 5"),
        ("[[link]]\nname = 'h0-l0'\nfault = {lossy = 1}", "link[0].fault.lossy is unknown"),
        ("[[link]]\nname = 'h0-l0'\nfault = {loss_ratio = 2}", "loss_ratio is 2; accepted: 0 to 1"),
        ("[[link]]\nname = 'h0-l0'\nfault = {burst = [1]}", "link[0].fault.burst is [1]"),
        ("[[link]]\nname = 'h0-l0'\nfault = {down = 1}", "link[0].fault.down is 1"),
    ],
)
def test_file_that_describes_none_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(text)
    with pytest.raises(FabricError) as raised:
        Fabric.load(path)
    assert str(path) in str(raised.value)
    assert words in str(raised.value)


def test_unknown_preset_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="no fabric 'ring'; accepted: leaf-spine, star, or a TOML file"):
        Fabric.preset("ring")
    with pytest.raises(FabricError, match="No such file"):
        Fabric.load(tmp_path / "no.toml")


@pytest.mark.parametrize("burst", [(2, 0.1), (0.1, -1), (0.1, 0), (0.1, 0.1, 3)])
def test_burst_that_is_none_is_refused(burst: tuple[float, ...]) -> None:
    with pytest.raises(FabricError, match="burst"):
        Burst(*burst)


def test_fault_survives_its_table() -> None:
    fault = Fault(0.25, Burst(0.1, 0.3, 0.5), 10**6, down=True)
    assert Fault.from_table(fault.to_table()) == fault
    assert Fault.from_table(NO_FAULT.to_table()) == NO_FAULT
    assert str(fault) == "down, loses 0.25, bursts 0.1,0.3,0.5, slow, 1 Mbit/s"


def test_burst_loses_on_average_what_it_says() -> None:
    assert Burst(0.02, 0.2).mean_ratio == pytest.approx(1 / 11)
    assert Burst(0.0, 0.0).mean_ratio == 0


# --- policies -------------------------------------------------------------------------------------------------


def test_policy_is_fitted_to_each_switch() -> None:
    fabric = Fabric(links={"l0-s1": Difference(rate_bps=20_000_000)})
    fitted = policies.fit(policies.usual(10**8), fabric)
    assert list(fitted) == ["l0", "l1", "s0", "s1"]
    assert [(port.name, port.rate_bps) for port in fitted["l0"].ports] == [
        ("h0", 10**8),
        ("h1", 10**8),
        ("s0", 10**8),
        ("s1", 2 * 10**7),
    ]
    assert fitted["l1"].path_groups == {"spines": ("s0", "s1")}
    assert fitted["s0"].path_groups == {}


def test_thresholds_of_a_port_stay_with_it() -> None:
    own = TrafficClass(1, droppable=(Thresholds(drop_above_bytes=5),))
    policy = Policy("p", (TrafficClass(1, dscp=(8,)),), ports=(Port("h0", 1, (own,)),))
    fitted = policies.fit(policy, Fabric())
    assert fitted["l0"].traffic_class(1, "h0").droppable == own.droppable
    assert fitted["l0"].traffic_class(1, "h1").droppable == (Thresholds(),)
    with pytest.raises(FabricError, match="port 'eth9' is not in this fabric; accepted: h0, h1"):
        policies.fit(replace(policy, ports=(Port("eth9", 1),)), Fabric())


def test_usual_policy_drops_the_least_important_first_and_critical_last() -> None:
    policy = policies.usual(10**8)
    assert policies.fifo(10**8).port_bytes == 128_000 == (policy.shared_bytes or 0) // 8
    assert policies.usual(10**8, 20).shared_bytes == 20 * 128_000
    assert policies.load(Fabric(hosts_per_leaf=10)).shared_bytes == 12 * 128_000  # and two spines
    assert policies.usual(10**5) == policies.usual(10**6)
    for number in range(7):
        traffic_class = policy.traffic_class(number)
        last = traffic_class.critical.drop_above_bytes
        limits = [at.drop_above_bytes for at in traffic_class.droppable]
        assert limits == sorted(limits, key=lambda value: value or 0)
        assert last is None or (limits[0] or 0) < (limits[-1] or 0) < last
        assert traffic_class.dscp == (8 * number,)


def test_missing_policy_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no.toml: No such file"):
        policies.load(Fabric(policy=tmp_path / "no.toml"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path_choice": "adaptive"}, "path_choice is 'adaptive'; accepted: flow_hash, path_id"),
        ({"pause_above_bytes": 10**5}, "pause_above_bytes is 100000; accepted: none"),
    ],
)
def test_kernel_refuses_what_it_cannot(changes: dict[str, object], words: str) -> None:
    with pytest.raises(FabricError) as raised:
        check(Policy(**changes))  # type: ignore[arg-type]
    assert words in str(raised.value)


def test_kernel_reads_the_policy_from_its_layout() -> None:
    at = Thresholds(mark_from_bytes=7, mark_full_bytes=9, mark_ratio=0.5, drop_above_bytes=11)
    trimmed = Thresholds(trim_above_bytes=3)
    policy = Policy("p", (TrafficClass(2, dscp=(5,), critical=at, droppable=(trimmed,)),), foreign_class=6)
    words = layout(policy, "h0", 1234)
    assert int.from_bytes(words[:8], "little") == 1234
    assert words[16] == 6
    assert words[24 + 5] == 2
    assert words[24 + 6] == 0xFF
    thresholds = [int.from_bytes(words[i : i + 4], "little") for i in range(88, len(words), 4)]
    assert thresholds[(2 * 9 + 8) * 4 :][:4] == [7, 9, 32768, 11]
    assert thresholds[2 * 9 * 4 :][:4] == [2**32 - 1, 2**32 - 1, 65535, 3], "what would be trimmed is dropped"


# --- words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hosts"), [("0", [0]), ("0-2", [0, 1, 2]), ("h3,0", [3, 0]), ("0-1,h3", [0, 1, 3])]
)
def test_hosts_are_numbers_and_ranges(text: str, hosts: list[int]) -> None:
    assert parse_hosts(text, 4) == hosts


@pytest.mark.parametrize("text", ["", "x", "0,0", "1-0", "4", "0-", "-1"])
def test_hosts_that_are_not_there_are_refused(text: str) -> None:
    with pytest.raises(FabricError, match="hosts"):
        parse_hosts(text, 4)


def test_words_for_a_link_become_a_fault() -> None:
    options = _parser().parse_args(
        ["fault", "l0-s1", "--loss", "0.01", "--burst", "0.01,20%", "--rate", "20M"]
    )
    assert (options.loss_ratio, options.burst, options.rate_bps) == (0.01, Burst(0.01, 0.2), 20_000_000)
    assert _parser().parse_args(["fault", "l0-s1", "--up"]).down is False


@pytest.mark.parametrize("text", ["dscp=64", "ecn=4", "importance=256", "paths=0", "speed=1", "dscp=x"])
def test_streams_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(FabricError, match="stream"):
        PacketStream.parse(text)
    assert PacketStream.parse(str(PacketStream(8, 2, 7, 3))) == PacketStream(8, 2, 7, 3)


def test_shares_are_of_the_group() -> None:
    ports = {name: PortCount(1, True, sent) for name, sent in (("h0", 50), ("s0", 30), ("s1", 10))}
    assert shares(ports, ("s0", "s1")) == {"s0": 0.75, "s1": 0.25}


def test_examples_of_the_documentation_load(repository: Path) -> None:
    found = sorted((repository / "docs" / "switch").glob("lab*.toml"))
    assert found
    for path in found:
        fabric = Fabric.load(path)
        assert tomllib.loads(path.read_text())
        assert policies.fit(policies.load(fabric), fabric)
