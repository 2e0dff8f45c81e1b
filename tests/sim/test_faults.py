"""Faults: what is lost, slowed or delayed by them, when, and how routes follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dlcp_sim import faults
from dlcp_sim.fabrics import FatTree, LeafSpine, Star
from dlcp_sim.faults import (
    BurstLoss,
    ExtraDelay,
    FaultError,
    Flapping,
    LinkDown,
    RandomLoss,
    SlowLink,
    SwitchDown,
)
from dlcp_sim.switches import unbounded
from tests.support.simulation import Flow, completions_ps, permutation, simulate

S_PS = 332_800  # 4160 bytes at 100 Gb/s
US = 10**6  # picoseconds
PACKET = 4096

# Many flows of one packet, one after the other, so that each says by itself what became of it.
STAR = Star(2)


def stream(packets: int, gap_ps: int = S_PS, source: int = 0, destination: int = 1) -> list[Flow]:
    return [Flow(source, destination, PACKET, i * gap_ps) for i in range(packets)]


def test_cut_link_carries_nothing_while_it_is_cut() -> None:
    found = simulate(STAR, stream(100), wrong=[LinkDown("edge 0 -> host 1", at_s=10e-6, until_s=20e-6)])
    took = completions_ps(found)
    # Packet i is at the switch at (i + 1) s + d, and is lost there if that is in [10 us, 20 us).
    at_switch_ps = (np.arange(100) + 1) * S_PS + US
    cut = (at_switch_ps >= 10 * US) & (at_switch_ps < 20 * US)
    assert ((took < 0) == cut).all()
    assert 25 < cut.sum() < 35
    assert (took[~cut] == 2 * S_PS + 2 * US).all()
    port = STAR.port("edge 0", "host 1")
    assert found.port_counters()["packets_lost"][port].sum() == cut.sum()


def test_both_directions_of_a_cable_are_cut() -> None:
    for link in ("host 0", "host 0 - edge 0", "edge 0 - host 0"):
        flows = [*stream(10), *stream(10, source=1, destination=0)]
        assert (completions_ps(simulate(STAR, flows, wrong=[LinkDown(link)])) < 0).all()


def test_routes_follow_a_cut_after_the_convergence_time() -> None:
    fabric = LeafSpine(2, 2, 1)
    flows = [f for i in range(200) for f in (Flow(0, 1, PACKET, i * US),)]
    cut = LinkDown("edge 0 - aggregation 0", reroute_s=50e-6, at_s=50e-6, until_s=150e-6)
    found = simulate(fabric, flows, policy=unbounded(path_choice="round_robin"), wrong=[cut])
    lost = completions_ps(found) < 0
    at_leaf_us = np.arange(200) + 1.3328
    unnoticed = (at_leaf_us >= 50) & (at_leaf_us < 100)
    assert not lost[~unnoticed].any()
    assert abs(int(lost[unnoticed].sum()) - 25) <= 1  # every other one
    sent = found.port_counters()["packets_sent"].sum(axis=1)
    # 50 us of both ways, 50 more of both while nobody knows, then one way until 50 us after the link is back.
    up = [fabric.port("edge 0", f"aggregation {i}") for i in range(2)]
    assert abs(int(sent[up[1]]) - 150) <= 2
    assert abs(int(sent[up[0]]) - 50) <= 2


def test_routes_never_follow_if_they_are_not_told() -> None:
    fabric = LeafSpine(2, 2, 1)
    flows = [Flow(0, 1, PACKET, i * US) for i in range(400)]
    cut = LinkDown("edge 0 -> aggregation 0", reroute_s=None)
    found = simulate(fabric, flows, policy=unbounded(path_choice="round_robin"), wrong=[cut])
    assert abs(int((completions_ps(found) < 0).sum()) - 200) <= 1


def test_dead_core_costs_only_what_was_on_its_way() -> None:
    fabric = FatTree(4)
    flows = [
        Flow(f.source, f.destination, PACKET, i * 10 * US) for i in range(60) for f in permutation(16, PACKET)
    ]
    found = simulate(
        fabric,
        flows,
        policy=unbounded(path_choice="random"),
        wrong=[SwitchDown("core 0", at_s=200e-6, reroute_s=100e-6)],
    )
    start_us = np.array([f.start_ps for f in flows]) / US
    lost = completions_ps(found) < 0
    assert lost.any()
    assert not lost[(start_us < 190) | (start_us >= 300)].any()
    into = [
        fabric.core.reverse(p)
        for p in range(*map(fabric.core.first_port, (fabric.node("core 0"), fabric.node("core 1"))))
    ]
    assert len(into) == 4
    assert found.port_counters()["packets_lost"][into].sum() == lost.sum()


def test_host_behind_a_dead_edge_cannot_be_reached() -> None:
    found = simulate(
        FatTree(4),
        [Flow(0, 15, PACKET), Flow(0, 15, PACKET, 100 * US)],
        wrong=[SwitchDown("edge 7", reroute_s=1e-6)],
    )
    assert (completions_ps(found) < 0).all()


def test_flapping_is_down_and_up_in_turn() -> None:
    fault = Flapping("edge 0 -> host 1", at_s=10e-6, until_s=45e-6, down_s=5e-6, up_s=10e-6)
    took = completions_ps(simulate(STAR, stream(60, US), wrong=[fault]))
    at_switch_us = np.arange(60) + 1.3328
    down = sum(((at_switch_us >= t) & (at_switch_us < t + 5)) for t in (10, 25, 40)).astype(bool)
    assert ((took < 0) == down).all()


def binomial_error(packets: int, ratio: float) -> float:
    return math.sqrt(packets * ratio * (1 - ratio))


@pytest.mark.parametrize("ratio", [0.0001, 0.001, 0.01, 0.6, 1.0])
def test_random_loss_has_its_ratio(ratio: float) -> None:
    packets = 100_000
    found = simulate(STAR, stream(packets), wrong=[RandomLoss("edge 0 -> host 1", ratio)])
    lost = completions_ps(found) < 0
    assert abs(lost.sum() - packets * ratio) <= 4 * binomial_error(packets, ratio)
    if 0.001 < ratio < 1:
        # Independent: as often after a loss as ever.
        after = lost[1:][lost[:-1]]
        assert abs(after.mean() - ratio) <= 4 * binomial_error(len(after), ratio) / len(after)


def test_random_loss_ends_in_time() -> None:
    found = simulate(
        STAR, stream(3000), wrong=[RandomLoss("edge 0 -> host 1", 0.5, at_s=100e-6, until_s=500e-6)]
    )
    lost = completions_ps(found) < 0
    at_switch_us = ((np.arange(3000) + 1) * S_PS + US) / US
    inside = (at_switch_us >= 100) & (at_switch_us < 500)
    assert not lost[~inside].any()
    assert abs(lost[inside].mean() - 0.5) < 4 * 0.5 / math.sqrt(inside.sum())


def test_bursts_have_their_length_and_distance() -> None:
    packets = 400_000
    fault = BurstLoss("edge 0 -> host 1", enter_ratio=0.002, exit_ratio=0.1)
    lost = completions_ps(simulate(STAR, stream(packets), wrong=[fault])) < 0
    edges = np.flatnonzero(np.diff(lost.astype(int)))
    bursts = np.diff(edges)[lost[edges[:-1] + 1]]
    gaps = np.diff(edges)[~lost[edges[:-1] + 1]]
    # Geometric: mean 1 / ratio, and nearly as large a deviation.
    for lengths, mean in ((bursts, 10), (gaps, 500)):
        assert abs(lengths.mean() - mean) < 4 * mean / math.sqrt(len(lengths))
        assert 0.8 * mean < lengths.std() < 1.2 * mean


def test_burst_need_not_lose_all() -> None:
    fault = BurstLoss("edge 0 -> host 1", enter_ratio=1, exit_ratio=0, loss_ratio=0.75)
    lost = completions_ps(simulate(STAR, stream(40_000), wrong=[fault])) < 0
    assert abs(lost.mean() - 0.75) < 4 * binomial_error(40_000, 0.75) / 40_000


def test_slow_link_slows_and_recovers() -> None:
    fault = SlowLink("edge 0 -> host 1", 25e9, at_s=100e-6, until_s=200e-6)
    took = completions_ps(simulate(STAR, stream(80, 4 * US), wrong=[fault]))
    at_switch_us = np.arange(80) * 4 + 1.3328
    slow = (at_switch_us >= 100) & (at_switch_us < 200)
    assert (took[~slow] == 2 * S_PS + 2 * US).all()
    assert (took[slow] == S_PS + 4 * S_PS + 2 * US).all()


def test_extra_delay_is_added_and_taken_away() -> None:
    fault = ExtraDelay("edge 0 -> host 1", 30e-6, at_s=100e-6, until_s=200e-6)
    took = completions_ps(simulate(STAR, stream(80, 4 * US), wrong=[fault]))
    at_switch_us = np.arange(80) * 4 + 1.3328
    late = (at_switch_us >= 100) & (at_switch_us < 200)
    assert (took[~late] == 2 * S_PS + 2 * US).all()
    assert (took[late] == 2 * S_PS + 32 * US).all()


@pytest.mark.parametrize("settings", [{"event_queue": "heap"}, {"threads": 2}])
def test_packets_that_catch_up_to_the_picosecond_come_in_one_order(settings: dict[str, object]) -> None:
    # The delay is a whole number of packets' times; when it ends, packets meet those sent so much earlier. Behind, a
    # slower link with a small buffer: which of two that come at once finds room depends on their order.
    fabric = LeafSpine(2, 1, 1, link_rates={"edge 1 -> host 1": 50e9})
    late = ExtraDelay("edge 0 -> aggregation 0", 60 * S_PS * 1e-12, until_s=100 * S_PS * 1e-12)
    policy = replace(unbounded(), port_bytes=2 * 4160)
    first, other = (
        simulate(fabric, stream(300), policy=policy, wrong=[late], **more) for more in ({}, settings)
    )
    assert (completions_ps(first) == completions_ps(other)).all()
    assert (completions_ps(first) < 0).sum() > 60


def test_link_that_two_faults_cut_is_up_when_both_are_over() -> None:
    wrong = [
        LinkDown("edge 0 -> host 1", at_s=10e-6, until_s=30e-6, reroute_s=None),
        LinkDown("host 1", at_s=20e-6, until_s=40e-6, reroute_s=None),
    ]
    took = completions_ps(simulate(STAR, stream(60, US), wrong=wrong))
    at_switch_us = np.arange(60) + 1.3328
    assert ((took < 0) == ((at_switch_us >= 10) & (at_switch_us < 40))).all()


def test_cut_that_is_found_with_another_is_also_found_to_be_over() -> None:
    fabric = LeafSpine(2, 2, 1)
    wrong = [
        LinkDown("edge 0 - aggregation 0", at_s=10e-6, until_s=30e-6, reroute_s=10e-6),
        LinkDown("edge 0 - aggregation 1", at_s=15e-6, until_s=90e-6, reroute_s=None),
    ]
    flows = [Flow(0, 1, PACKET, i * US) for i in range(200)]
    found = simulate(fabric, flows, wrong=wrong, policy=unbounded(path_choice="round_robin"))
    took = completions_ps(found)
    assert (took[100:] > 0).all()
    sent = found.port_counters()["packets_sent"].sum(axis=1)
    for spine in (0, 1):  # both ways are used again
        assert sent[fabric.port("edge 0", f"aggregation {spine}")] > 50


def test_events_are_in_order_of_time_and_routes_come_last() -> None:
    fabric = LeafSpine(2, 2, 1)
    wrong = [
        LinkDown("edge 0 - aggregation 0", at_s=2e-3, reroute_s=0),
        LinkDown("edge 1 - aggregation 1", at_s=1e-3, until_s=2e-3, reroute_s=0),
    ]
    kinds = [(event[0], event[2]) for event in faults.events(wrong, fabric)]
    ms = 10**9
    assert kinds == [
        *[(ms, "down")] * 2,
        (ms, "reroute"),
        *[(2 * ms, "up")] * 2,
        *[(2 * ms, "down")] * 2,
        (2 * ms, "reroute"),
    ]


@pytest.mark.parametrize("threads", [2, 4])
def test_faults_are_the_same_for_any_number_of_threads(threads: int) -> None:
    wrong = [
        SwitchDown("core 1", at_s=20e-6, until_s=60e-6, reroute_s=10e-6),
        RandomLoss("edge 0 - aggregation 0", 0.1),
        BurstLoss("edge 3 - aggregation 2", 0.05, 0.3),
        SlowLink("edge 5 -> aggregation 4", 40e9, at_s=30e-6),
        ExtraDelay("aggregation 7 - core 3", 5e-6, at_s=10e-6, until_s=50e-6),
        Flapping("host 9", at_s=0, until_s=100e-6, down_s=3e-6, up_s=9e-6),
    ]
    flows = permutation(16, 1_000_000)
    policy = unbounded(path_choice="random")
    runs = [simulate(FatTree(4), flows, policy=policy, wrong=wrong, threads=n) for n in (1, threads)]
    first, other = (run.port_counters() for run in runs)
    assert first["packets_lost"].sum() > 100
    for name, values in first.items():
        assert (values == other[name]).all(), name


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: LinkDown(""), "link is ''; accepted: the name"),
        (lambda: LinkDown("host 0", at_s=-1), "at_s is -1; accepted: 0 to 1e6 seconds"),
        (lambda: LinkDown("host 0", at_s=2, until_s=1), "until_s is 1; accepted: more than at_s, 2"),
        (lambda: LinkDown("host 0", reroute_s=-1), "reroute_s is -1; accepted: 0 to 1e4"),
        (
            lambda: SwitchDown("edge 0 - host 1"),
            "switch is 'edge 0 - host 1'; accepted: the name of a switch",
        ),
        (lambda: RandomLoss("host 0", 1.1), "ratio is 1.1; accepted: 0 to 1"),
        (lambda: RandomLoss("host 0", float("nan")), "ratio is nan; accepted: 0 to 1"),
        (lambda: BurstLoss("host 0", exit_ratio=-0.1), "exit_ratio is -0.1; accepted: 0 to 1"),
        (lambda: SlowLink("host 0", 0), "rate_bps is 0; accepted: 1e3"),
        (lambda: ExtraDelay("host 0", 11), "delay_s is 11; accepted: 0 to 10"),
        (lambda: Flapping("host 0"), "until_s is None; accepted: a time"),
        (
            lambda: Flapping("host 0", until_s=100, down_s=1e-6, up_s=1e-6),
            "until_s is 100; accepted: .* 10000 flaps",
        ),
        (lambda: Flapping("host 0", until_s=1, down_s=0), "down_s is 0; accepted"),
        (lambda: faults.events([LinkDown("host 2")], STAR), "node is 'host 2'"),
        (
            lambda: faults.events([LinkDown("host 0 - host 1")], STAR),
            "link is 'host 0 -> host 1'; accepted: two neigh",
        ),
    ],
)
def test_mistake_is_named(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_fault_errors_are_of_dlcp() -> None:
    from dlcp.errors import ArgumentError

    assert issubclass(FaultError, ArgumentError)
