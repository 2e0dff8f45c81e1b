"""Validation of whole runs: collectives, spraying, other simulators' figures, and invariants of every transport.

Single flows, incast and single queues are in native/validation_*.cpp. The numbers are those of simulators.md, 5.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dlcp_sim as ds
from dlcp_sim import _core, switches
from dlcp_sim.fabrics import Fabric, FatTree, Star
from dlcp_sim.transports import TRANSPORTS, LineRate, Ndp, Uet
from tests.support.simulation import Flow, add_flows, completions_ps, permutation, simulate

PAYLOAD, WIRE = 4096, 4160
S_S = WIRE * 8 / 100e9  # a full packet on a link
D_S = 1e-6  # a link's delay


# --- 3: collectives ------------------------------------------------------------------------------------------


def collective_s(fabric: Fabric, **workload: Any) -> float:
    scenario = ds.Scenario(fabric=fabric, transport=LineRate(), workload=ds.collective(**workload))
    tasks = scenario.run().tasks
    assert tasks is not None
    return float(tasks.finish_s.max())


@pytest.mark.parametrize("ranks", [2, 3, 8, 16])
@pytest.mark.parametrize("packets", [1, 10, 100])
def test_ring_takes_its_steps_and_nothing_more(ranks: int, packets: int) -> None:
    # 2 (N - 1) steps, each of one chunk over two links.
    found = collective_s(Star(ranks), algorithm="ring", bytes=ranks * packets * PAYLOAD)
    assert found == pytest.approx(2 * (ranks - 1) * ((packets + 1) * S_S + 2 * D_S), abs=1e-13)


def test_ring_over_a_tree_waits_for_the_longest_hop_of_each_step() -> None:
    # Sixteen ranks, four to a pod, two to an edge switch: every step has a hop of six links.
    found = collective_s(FatTree(4), algorithm="ring", bytes=16 * 50 * PAYLOAD)
    steps = 30
    assert found <= steps * ((50 + 5) * S_S + 6 * D_S) + 1e-13
    # Chunks pass between neighbours (2 links) too: no rank's chain of steps has only long ones, none only short ones.
    assert found >= steps * ((50 + 1) * S_S + 2 * D_S)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_halving_doubling_moves_each_byte_once_per_step(ranks: int) -> None:
    packets = 16 * 10  # of the whole tensor
    found = collective_s(Star(ranks), algorithm="halving_doubling", bytes=packets * PAYLOAD)
    steps = 2 * round(math.log2(ranks))
    expected = 2 * (ranks - 1) / ranks * packets * S_S + steps * (S_S + 2 * D_S)
    # A step's chunks take turns packet by packet, so the next step may begin with the first of them while the others'
    # last packets are leaving: of N / 2, N / 4, … chunks, all but one packet's time each.
    saved = 2 * (ranks - 1 - round(math.log2(ranks))) * S_S
    assert expected - saved - 1e-13 <= found <= expected + 1e-13


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_all_to_all_fills_every_link(ranks: int) -> None:
    packets = 20  # for each peer
    found = collective_s(
        Star(ranks), collective="all_to_all", algorithm="pairwise", bytes=ranks * packets * PAYLOAD
    )
    bound = (ranks - 1) * packets * S_S + S_S + 2 * D_S
    # Flows take turns at each host; receivers' links are shared evenly, but for a few packets that meet there.
    assert bound - 1e-13 <= found <= bound + (ranks - 1) * S_S


@pytest.mark.parametrize(("workers", "packets"), [(1, 40), (4, 100), (16, 25)])
def test_hub_takes_all_tensors_in_and_out(workers: int, packets: int) -> None:
    found = collective_s(Star(workers + 1), algorithm="hub", bytes=packets * PAYLOAD)
    each_way = (workers * packets + 1) * S_S + 2 * D_S
    assert found == pytest.approx(2 * each_way, abs=1e-13)


# --- 7: spraying against one path per flow -------------------------------------------------------------------

P128_BOUND_US = 170.403  # less what the short last packet saves
N_S_US = 489 * S_S * 1e6


@pytest.mark.parametrize("choice", ["random", "round_robin", "adaptive"])
def test_sprayed_permutation_is_near_its_bound(choice: str) -> None:
    found = simulate(FatTree(8), permutation(128, 2_000_000), policy=switches.unbounded(path_choice=choice))
    took_us = completions_ps(found) / 1e6
    assert took_us.max() < 1.13 * P128_BOUND_US
    assert took_us.mean() < 1.08 * P128_BOUND_US


def loads(flows: list[Flow], generator: random.Random) -> Counter[tuple[str, int, int]]:
    """Flows per link when each takes one of FatTree(8)'s equal ways at random: balls in bins."""
    found: Counter[tuple[str, int, int]] = Counter()
    for f in flows:
        source, target = f.source // 4, f.destination // 4
        found["down", target, f.destination] += 1
        if source == target:
            continue
        aggregation = generator.randrange(4)
        found["up", source, aggregation] += 1
        if source // 4 != target // 4:
            core = generator.randrange(4)
            found["core", source // 4 * 4 + aggregation, core] += 1
            found["core down", target // 4, aggregation * 4 + core] += 1
        found["edge down", target, aggregation] += 1
    return found


def test_one_path_per_flow_takes_as_long_as_the_fullest_link() -> None:
    fabric = FatTree(8)
    fullest = []
    for seed in range(1, 13):
        flows = permutation(128, 2_000_000, seed)
        found = simulate(fabric, flows, policy=switches.unbounded(path_choice="flow_hash"))
        # Every flow is 489 packets, so a link's packets say how many share it.
        on_link = found.port_counters()["packets_sent"].sum(axis=1) / 489
        assert (on_link == np.round(on_link)).all()
        fullest.append(on_link.max())
        last_us = completions_ps(found).max() / 1e6
        assert fullest[-1] * N_S_US < last_us < 1.05 * (fullest[-1] * N_S_US + 6)
    generator = random.Random(1)
    drawn = [max(loads(permutation(128, 1, seed), generator).values()) for seed in range(400)]
    error = np.std(drawn) / math.sqrt(len(fullest))
    assert abs(np.mean(fullest) - np.mean(drawn)) < 4 * error
    assert np.mean(fullest) > 3.5  # what spraying saves


# --- 8: other simulators -------------------------------------------------------------------------------------

SEEDS = range(1, 21)
I32 = [Flow(37 * i % 127 + 1, 0, 2_000_000) for i in range(1, 33)]


def completion_us(
    transport: Any, fabric: Fabric, flows: list[Flow], seed: int, known_to: str = "receiver"
) -> np.ndarray:
    found = simulate(
        fabric,
        flows,
        policy=transport.policy(fabric),
        transport=transport.name,
        parameters=transport.parameters(),
        seed=seed,
    )
    took = completions_ps(found)
    assert (took > 0).all()
    if known_to == "sender":
        results = found.flow_results()
        took = results["acknowledged_ps"] - results["started_ps"]
    return took / 1e6


# htsim says when its senders know. What its figures stand for: simulators.md, 2; most are of one seed there.
NDP, UET = Ndp(queue_packets=35, window_packets=50), Uet(entropies=64)


@pytest.mark.parametrize(
    ("transport", "mean_us", "max_us", "mean_tolerance", "max_tolerance"),
    [
        # htsim's NDP with switch ECMP; here 203.8 and 225.7. (EQDS, another protocol of the kind: 198.7 and 211.9.)
        (NDP, 206.8, 233.7, 0.02, 0.05),
        # UEC, the same protocol; here 192.5 and 204.0.
        (UET, 191.9, 203.7, 0.01, 0.03),
    ],
    ids=["ndp", "uet as UEC"],
)
def test_p128_is_near_what_htsim_finds(
    transport: Any, mean_us: float, max_us: float, mean_tolerance: float, max_tolerance: float
) -> None:
    fabric, flows = FatTree(8), permutation(128, 2_000_000)
    runs = [completion_us(transport, fabric, flows, seed, "sender") for seed in SEEDS]
    assert np.mean([run.mean() for run in runs]) == pytest.approx(mean_us, rel=mean_tolerance)
    assert np.mean([run.max() for run in runs]) == pytest.approx(max_us, rel=max_tolerance)


def test_p1024_is_near_what_htsim_finds() -> None:
    # One seed of UEC there, 195.4 and 206.6; over several here 196.4 and 211.2.
    run = completion_us(UET, FatTree(16), permutation(1024, 2_000_000), 1, "sender")
    assert run.mean() == pytest.approx(195.4, rel=0.01)
    assert run.max() == pytest.approx(206.6, rel=0.03)


@pytest.mark.parametrize(
    ("transport", "last_us"),
    # 5,214 us is the least, at the receiver. htsim's NDP and EQDS pull at 0.99 of the rate: 5,208 / 0.99 = 5,260 and
    # their start.
    [(NDP, 5214), (UET, 5256)],
    ids=["ndp", "uet as UEC"],
)
def test_i32_ends_when_it_must(transport: Any, last_us: float) -> None:
    fabric = FatTree(8)
    found = [completion_us(transport, fabric, I32, seed, "sender").max() for seed in SEEDS]
    assert np.mean(found) == pytest.approx(last_us, rel=0.01)
    assert max(found) == pytest.approx(last_us, rel=0.03)


# --- 9: invariants -------------------------------------------------------------------------------------------


def busy(fabric: Fabric) -> list[Flow]:
    """Some of everything: a permutation, an incast, short flows in another class."""
    hosts = fabric.hosts
    flows = permutation(hosts, 120_000)
    flows += [Flow(i, 0, 60_000, 3_000_000) for i in range(1, 25)]
    return flows + [Flow(i, (i + 7) % hosts, 3_000, 1_000_000 * i, 4) for i in range(hosts)]


def run_of(name: str, **settings: Any) -> Any:
    fabric = FatTree(8)
    kind = TRANSPORTS[name]
    transport = kind()
    return simulate(
        fabric,
        busy(fabric),
        policy=transport.policy(fabric),
        transport=name,
        parameters=transport.parameters(),
        discipline=kind.discipline,
        seed=3,
        **settings,
    )


@pytest.mark.parametrize("name", TRANSPORTS)
def test_result_does_not_depend_on_threads_or_event_queue(name: str) -> None:
    first = run_of(name)
    assert (completions_ps(first) > 0).all()
    for settings in ({"threads": 2}, {"threads": 8}, {"event_queue": "heap"}):
        other = run_of(name, **settings)
        assert (other.hops, other.now_ps) == (first.hops, first.now_ps), settings
        for table in ("flow_results", "port_counters"):
            mine, theirs = getattr(first, table)(), getattr(other, table)()
            assert mine.keys() == theirs.keys()
            for column, values in mine.items():
                assert (values == theirs[column]).all(), (settings, column)
        assert first.transport_counters() == other.transport_counters(), settings


@pytest.mark.parametrize("name", TRANSPORTS)
@pytest.mark.parametrize("threads", [1, 3])
def test_result_does_not_depend_on_stops_on_the_way(name: str, threads: int) -> None:
    first = run_of(name)
    stopped = run_of(name, until_ps=1, threads=threads)
    assert stopped.now_ps == 1
    at_ps = 1
    while not stopped.run(until_ps=at_ps):
        at_ps += 7_777_777
    assert (completions_ps(stopped) == completions_ps(first)).all()
    for column, values in first.port_counters().items():
        assert (values == stopped.port_counters()[column]).all(), column


@pytest.mark.parametrize("name", TRANSPORTS)
def test_seed_changes_what_is_drawn_and_nothing_else_does(name: str) -> None:
    first, again = run_of(name), run_of(name)
    assert (completions_ps(first) == completions_ps(again)).all()


@pytest.mark.parametrize("until_us", [3, 11, 40])
def test_packets_are_sent_dropped_trimmed_or_wait_at_any_moment(until_us: int) -> None:
    fabric = FatTree(4)
    policy = replace(switches.ndp(fabric, packet_bytes=WIRE), port_bytes=40_000)
    flows = [
        Flow(i, (i * 5 + 3) % 16, 200 * PAYLOAD, traffic_class=i % 3)
        for i in range(16)
        if i != (i * 5 + 3) % 16
    ]
    simulation = _core.Simulation(
        fabric.build(), switches.to_core(policy), "line_rate", {"ecn_capable": 0}, check_invariants=True
    )
    add_flows(simulation, [*flows, *(Flow(i, 0, 100 * PAYLOAD) for i in range(1, 16))])
    interval_ps = until_us * 10**6
    simulation.sample(list(range(fabric.core.ports)), interval_ps)
    simulation.run(until_ps=interval_ps + 1)
    depth = simulation.samples()["depth_bytes"][-1]
    counters = {name: values.astype(np.int64) for name, values in simulation.port_counters().items()}
    waiting = (
        counters["packets_in"]
        - counters["packets_sent"]
        - counters["packets_dropped"]
        - counters["packets_trimmed"]
    )
    assert (waiting >= 0).all()
    assert (depth[:, :7] == waiting[:, :7] * WIRE).all()
    assert (depth[:, 7] == waiting[:, 7] * 64).all()
    assert waiting.sum() > 0


def test_port_never_rests_while_something_waits() -> None:
    fabric = FatTree(4)
    transport = Ndp()
    simulation = _core.Simulation(
        fabric.build(), switches.to_core(transport.policy(fabric)), "ndp", transport.parameters()
    )
    add_flows(simulation, [*permutation(16, 400_000), *(Flow(i, 0, 50_000) for i in range(1, 16))])
    ports = list(range(fabric.hosts, fabric.core.ports))
    simulation.trace(ports, 10**7)
    simulation.run()
    found = simulation.trace_records()
    queued, sent = 0, 1
    checked = 0
    for port in ports:
        chosen = found["port"] == port
        waiting, free_ps = 0, -1
        for time_ps, event, size in zip(
            found["time_ps"][chosen], found["event"][chosen], found["wire_bytes"][chosen], strict=True
        ):
            if event == queued:
                waiting += 1
                assert time_ps <= free_ps
            elif event == sent:
                assert time_ps >= free_ps
                if waiting:
                    assert time_ps == free_ps
                    waiting -= 1
                    checked += 1
                free_ps = time_ps + 80 * int(size)
        assert waiting == 0
    assert checked > 1000


@pytest.mark.parametrize("senders", [2, 4, 7])
def test_symmetric_senders_lose_alike(senders: int) -> None:
    """All start at once, so every packet meets the others' at the same picosecond; no one's may always come first."""
    fabric, packets = Star(senders + 1), 4000
    policy = switches.drop_tail(fabric, port_bytes=20 * WIRE)
    flows = [Flow(1 + i, 0, packets * PAYLOAD) for i in range(senders)]
    into = fabric.core.reverse(0)
    for seed in (1, 2):
        traced = _core.Simulation(
            fabric.build(), switches.to_core(policy), "line_rate", {}, seed=seed, check_invariants=True
        )
        add_flows(traced, flows)
        traced.trace([into], 10**7)
        traced.run()
        found = traced.trace_records()
        delivered = np.bincount(found["flow"][found["event"] == 1], minlength=senders)
        assert delivered.sum() < 1.1 * packets
        # In each slot one of `senders` gets in, each with the same chance.
        error = math.sqrt(packets * (1 / senders) * (1 - 1 / senders))
        assert abs(delivered - delivered.mean()).max() < 4.5 * error
