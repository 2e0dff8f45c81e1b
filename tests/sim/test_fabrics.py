"""Fabrics: their shapes, names and routes, and what is refused."""

from __future__ import annotations

import json
import pickle
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlcp_sim.fabrics import Dumbbell, Fabric, FatTree, Graph, GraphFile, LeafSpine, Star, ThreeTier, TwoSites
from dlcp_sim.fabrics.base import FabricError, ports_of, transmit_ps
from dlcp_sim.fabrics.graphs import Cable
from dlcp_sim.switches import unbounded
from tests.support.simulation import Flow, completions_ps, permutation, simulate

RING = Graph(
    host_names=[f"h{i}" for i in range(5)],
    switch_names=["north", "east", "south", "west", "pole"],
    cables=[
        *(Cable(i, 5 + i, 100e9, 1e-6) for i in range(5)),
        *(Cable(5 + i, 5 + (i + 1) % 4, 40e9, 2e-6) for i in range(4)),
        Cable(5, 9, 25e9, 5e-6),
    ],
)
FABRICS = {
    "fat-tree": FatTree(4),
    "fat-tree, twice as many hosts": FatTree(4, oversubscription=2),
    "fat-tree, mixed rates": FatTree(
        4, rate_bps=25e9, edge_rate_bps=50e9, core_rate_bps=10e9, core_delay_s=5e-6
    ),
    "leaf-spine": LeafSpine(3, 2, 4, uplink_rate_bps=200e9),
    "star": Star(5),
    "three tiers": ThreeTier(pods=3, edges=2, hosts_per_edge=2, aggregations=2, cores=4),
    "dumbbell": Dumbbell(3, 2, bottleneck_bps=10e9, bottleneck_delay_s=1e-3),
    "two sites": TwoSites(2, 2, 3, long_delay_s=1e-3, long_cables=2),
    "graph": RING,
}


@pytest.mark.parametrize(
    ("fabric", "hosts", "switches", "cables"),
    [
        (FatTree(4), 16, 20, 48),
        (FatTree(8), 128, 80, 384),
        (FatTree(32), 8192, 1280, 24576),
        (FatTree(4, oversubscription=3), 48, 20, 80),
        (LeafSpine(9, 4, 16), 144, 13, 180),
        (Star(7), 7, 1, 7),
        (Dumbbell(3, 2), 5, 2, 6),
        (TwoSites(2, 3, 4, long_cables=2), 16, 12, 16 + 2 * (6 + 3) + 2),
        (RING, 5, 5, 10),
    ],
)
def test_shape_is_what_its_kind_says(fabric: Fabric, hosts: int, switches: int, cables: int) -> None:
    core = fabric.build()
    assert (fabric.hosts, core.hosts, core.switches, core.ports) == (hosts, hosts, switches, 2 * cables)


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
def test_every_link_has_its_other_direction(fabric: Fabric) -> None:
    core = fabric.build()
    for port in range(core.ports):
        source, target, rate_bps, delay_ps = core.link(port)
        other = core.reverse(port)
        assert core.reverse(other) == port
        assert core.link(other) == (target, source, rate_bps, delay_ps)
        assert core.first_port(source) <= port < core.first_port(source + 1)


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
def test_names_lead_back_to_nodes(fabric: Fabric) -> None:
    core = fabric.build()
    for node in range(core.hosts + core.switches):
        assert fabric.node(fabric.name(node)) == node


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
def test_longest_path_is_that_of_the_simulator(fabric: Fabric) -> None:
    found = simulate(fabric, [Flow(0, 1, 1)])
    pairs = [(a, b) for a in range(fabric.hosts) for b in range(fabric.hosts) if a != b]
    longest_ps = max(found.base_rtt_ps(a, b, 4160, 64) for a, b in pairs)
    assert fabric.base_rtt_s(4160, 64) == pytest.approx(longest_ps * 1e-12, rel=1e-12)


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
@pytest.mark.parametrize("choice", ["flow_hash", "path_id", "random", "round_robin", "adaptive"])
def test_everybody_reaches_everybody(fabric: Fabric, choice: str) -> None:
    flows = [Flow(a, b, 10_000) for a in range(fabric.hosts) for b in range(fabric.hosts) if a != b]
    found = simulate(fabric, flows, policy=unbounded(path_choice=choice))
    assert (completions_ps(found) > 0).all()
    assert found.packets_unroutable == 0


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
@pytest.mark.parametrize("threads", [2, 8])
def test_result_does_not_depend_on_threads(fabric: Fabric, threads: int) -> None:
    policy = replace(unbounded(path_choice="adaptive"), port_bytes=50_000)
    flows = [*permutation(fabric.hosts, 200_000), *(Flow(i, 0, 100_000) for i in range(1, fabric.hosts))]
    first, other = (simulate(fabric, flows, policy=policy, threads=n) for n in (1, threads))
    assert (completions_ps(first) == completions_ps(other)).all()
    for name, values in first.port_counters().items():
        assert (values == other.port_counters()[name]).all(), name
    assert first.port_counters()["packets_dropped"].sum() > 0


def test_spraying_uses_every_way() -> None:
    fabric = FatTree(8)
    for choice in ("random", "round_robin", "adaptive"):
        found = simulate(fabric, [Flow(0, 127, 4_000_000)], policy=unbounded(path_choice=choice))
        sent = found.port_counters()["packets_sent"].sum(axis=1)
        up = [fabric.port("edge 0", f"aggregation {i}") for i in range(4)]
        core = [fabric.port(f"aggregation {i}", f"core {4 * i + j}") for i in range(4) for j in range(4)]
        for ports, tolerance in ((up, 0.3), (core, 0.6)):
            mean = sent[ports].sum() / len(ports)
            assert sent[ports].sum() == -(-4_000_000 // 4096)
            assert abs(sent[ports] - mean).max() <= tolerance * mean


def test_rates_and_delays_are_those_of_their_tier() -> None:
    fabric = FatTree(
        4, rate_bps=25e9, edge_rate_bps=50e9, core_rate_bps=400e9, delay_s=1e-6, edge_delay_s=2e-6
    )
    core = fabric.build()
    links = {
        ("host 3", "edge 1"): (25_000_000_000, 1_000_000),
        ("edge 1", "aggregation 0"): (50_000_000_000, 2_000_000),
        ("aggregation 1", "core 2"): (400_000_000_000, 2_000_000),
    }
    for (a, b), (rate_bps, delay_ps) in links.items():
        for port in (fabric.port(a, b), fabric.port(b, a)):
            assert core.link(port)[2:] == (rate_bps, delay_ps)


def test_single_links_may_have_other_rates() -> None:
    rates = {"host 3": 10e9, "edge 0 - aggregation 1": 40e9, "edge 1 -> aggregation 1": 25e9}
    fabric = LeafSpine(2, 2, 4, link_rates=rates)
    core = fabric.build()
    changed = {
        ("host 3", "edge 0"): 10e9,
        ("edge 0", "host 3"): 10e9,
        ("edge 0", "aggregation 1"): 40e9,
        ("aggregation 1", "edge 0"): 40e9,
        ("edge 1", "aggregation 1"): 25e9,
    }
    for port in range(core.ports):
        source, target, rate_bps, _ = core.link(port)
        assert rate_bps == changed.get((core.name(source), core.name(target)), 100e9)


def test_oversubscription_is_that_of_the_scarcer_tier() -> None:
    assert FatTree(8).oversubscription() == 1
    assert FatTree(8, oversubscription=3).oversubscription() == 3
    assert FatTree(8, core_rate_bps=25e9).oversubscription() == 4
    assert LeafSpine(9, 4, 16, rate_bps=10e9, uplink_rate_bps=40e9).oversubscription() == 1
    assert LeafSpine(2, 2, 8).oversubscription() == 4


def test_long_link_is_the_only_way_between_sites() -> None:
    fabric = TwoSites(2, 2, 3, long_rate_bps=10e9, long_delay_s=5e-3)
    found = simulate(fabric, [Flow(0, 11, 1_000_000), Flow(6, 9, 1_000_000)])
    took = completions_ps(found) * 1e-12
    # 245 packets of 4160 bytes, or fewer, at 10 Gb/s, then two links up and three down; and within a site.
    assert 5e-3 + 0.8e-3 < took[0] < 5e-3 + 0.9e-3
    assert took[1] < 0.1e-3
    long = ports_of(fabric.core, fabric, f"{fabric.border(0)} -> {fabric.border(1)}")
    assert found.port_counters()["packets_sent"][long].sum() == 245


def test_transmission_times_are_rounded_as_the_simulator_rounds() -> None:
    for rate_bps in (100e9, 56e9, 33e9, 7e9, 1e6):
        fabric = Star(2, rate_bps=rate_bps)
        for size in (65, 1500, 9000):
            found = simulate(
                fabric, [Flow(0, 1, size - 64)], parameters={"payload_bytes": 9000, "header_bytes": 64}
            )
            assert completions_ps(found)[0] == 2 * transmit_ps(size, rate_bps) + 2_000_000


def test_permutation_is_that_of_simulators() -> None:
    """Path lengths of P128: 1 flow of 2 links, 13 of 4, 114 of 6 (docs/simulator/validation.md)."""
    flows = permutation(128, 1)
    links = [
        2 if f.source // 4 == f.destination // 4 else 4 if f.source // 16 == f.destination // 16 else 6
        for f in flows
    ]
    assert [links.count(n) for n in (2, 4, 6)] == [1, 13, 114]
    found = simulate(FatTree(8), flows)
    assert found.hops == sum(links)


TOML = """\
hosts = ["alice", "bob", "carol"]
switches = ["left", "right"]
pods = [0, 1]
rate_bps = 100e9
delay_s = 1e-6
[[cable]]
from = "alice"
to = "left"
[[cable]]
from = "bob"
to = "left"
rate_bps = 25e9
[[cable]]
from = "right"
to = "carol"
[[cable]]
from = "left"
to = "right"
delay_s = 1e-3
"""


def test_graph_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "graph.toml"
    file.write_text(TOML, encoding="utf-8")
    fabric = GraphFile(file)
    assert fabric.rate_bps == 25e9
    core = fabric.build()
    assert core.link(fabric.port("left", "bob"))[2:] == (25_000_000_000, 1_000_000)
    assert core.link(fabric.port("right", "left"))[2:] == (100_000_000_000, 1_000_000_000)
    took = completions_ps(simulate(fabric, [Flow(fabric.node("alice"), fabric.node("carol"), 4096)]))
    assert took[0] == 3 * 332_800 + 1_002_000_000
    as_json = tmp_path / "graph.json"
    as_json.write_text(json.dumps(tomllib.loads(TOML)), encoding="utf-8")
    again = GraphFile(as_json)
    assert (again.cables, again.host_names, again.pods) == (fabric.cables, fabric.host_names, fabric.pods)


def graph(text: str) -> Callable[[Path], object]:
    def make(folder: Path) -> object:
        (folder / "graph.toml").write_text(text, encoding="utf-8")
        return GraphFile(folder / "graph.toml")

    return make


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda _: FatTree(7), "k is 7; accepted: an even integer from 2 to 510"),
        (lambda _: FatTree(4, oversubscription=0.5), "oversubscription is 0.5; accepted: 1 or more"),
        (
            lambda _: FatTree(4, oversubscription=1.3),
            "oversubscription is 1.3; accepted: 1 or more, and a whole",
        ),
        (lambda _: FatTree(4, rate_bps=0), "rate_bps is 0; accepted: 1e3 to 1e14"),
        (lambda _: FatTree(4, edge_rate_bps=1e15), "edge_rate_bps is 1000000000000000.0; accepted"),
        (lambda _: FatTree(4, core_delay_s=11), "core_delay_s is 11; accepted: 1e-12 to 10 seconds"),
        (lambda _: Star(1), "hosts is 1; accepted: 2 to"),
        (lambda _: LeafSpine(2, 0, 4), "aggregations is 0; accepted: 1 or more"),
        (lambda _: LeafSpine(2, 1.5, 4), "aggregations is 1.5; accepted: an integer"),  # type: ignore[arg-type]
        (lambda _: ThreeTier(pods=2, edges=2, aggregations=2), "cores is 0; accepted: 1 or more"),
        (
            lambda _: ThreeTier(pods=2, edges=2, aggregations=2, cores=3),
            "cores is 3; accepted: a multiple of",
        ),
        (lambda _: Dumbbell(0, 2), "left is 0; accepted: an integer from 1"),
        (lambda _: Dumbbell(1, 2, bottleneck_bps=1), "rate_bps is 1; accepted: 1e3"),
        (lambda _: TwoSites(1, 1, 1, long_rate_bps=5), "long_rate_bps is 5; accepted"),
        (lambda _: Star(4, link_rates={"host 9": 1e9}).build(), "node is 'host 9'; accepted: .*'host 0'"),
        (lambda _: Star(4, link_rates={"spine 1": 1e9}).build(), "node is 'spine 1'"),
        (lambda _: Star(4, link_rates={"host 1": 1}).build(), r"link_rates\['host 1'\] is 1; accepted"),
        (
            lambda _: LeafSpine(2, 2, 2).port("edge 0", "edge 1"),
            "link is 'edge 0 -> edge 1'; accepted: two neigh",
        ),
        (graph(TOML + "color = 3\n[[cable]]"), r"graph.toml: cable\[3\].color is unknown"),
        (graph("colour = 3\n" + TOML), "graph.toml: colour is unknown; accepted: hosts, switches"),
        (graph(TOML + "x"), "graph.toml: Expected '='"),
        (
            graph(TOML.replace('to = "right"', 'to = "wrong"')),
            r"cable\[3\].to is 'wrong'; accepted: a node, such as",
        ),
        (graph(TOML.replace("25e9", '"fast"')), r"cable\[1\].rate_bps is 'fast'; accepted: 1e3 to 1e14"),
        (graph(TOML.replace("delay_s = 1e-6", "")), r"cable\[0\].delay_s is None; accepted: 1e-12"),
        (graph(TOML.replace('["alice", "bob", "carol"]', "0")), "hosts is 0; accepted: how many, or a list"),
        (
            graph(TOML.replace('"bob", ', '"alice", "bob", ')),
            "name is 'alice'; accepted: a name that no other",
        ),
        (graph(TOML.replace("pods = [0, 1]", "pods = [0, 2]")), "pods is 2; accepted: 0 to 1"),
        (
            graph(TOML.replace("pods = [0, 1]", "pods = [0]")),
            r"pods is \[0\]; accepted: one number per switch, 2",
        ),
        (graph(TOML.replace('to = "right"', 'to = "alice"')), "cables of alice is 2; accepted: 1"),
        (
            graph(TOML.replace('to = "right"', 'to = "left"')),
            "cable is 'cable left - left'; accepted: two nodes",
        ),
        (graph(TOML.replace('to = "carol"', 'to = "left"')), "cables of carol is 0; accepted: 1"),
    ],
)
def test_mistake_is_named(make: Callable[[Path], object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=complaint):
        make(tmp_path)


def test_what_was_built_is_not_copied() -> None:
    fabric = FatTree(4)
    assert fabric.core is fabric.core
    assert pickle.loads(pickle.dumps(fabric)) == fabric
