"""UET as a scenario has it: settings, the switch policy that comes with it, its figures beside the reference model's.

Mechanisms are tested in C++ (native/uet.cpp).
"""

from __future__ import annotations

import pytest

from dlcp_sim.fabrics import FatTree
from dlcp_sim.faults import RandomLoss
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Uet
from dlcp_sim.workloads.flows import Incast, Permutation

FABRIC = FatTree(8, rate_bps=100e9, delay_s=1e-6)


def test_the_policy_marks_and_trims_by_the_bandwidth_delay_product() -> None:
    product = FABRIC.bandwidth_delay_bytes(4160)
    data = Uet().policy(FABRIC).traffic_class(0).critical
    assert data.mark_from_bytes == pytest.approx(0.2 * product, abs=1)
    assert data.mark_full == pytest.approx(0.8 * product, abs=1)
    assert data.trim_above_bytes == product
    dropping = Uet(trimming=False).policy(FABRIC)
    assert dropping.traffic_class(0).critical.trim_above_bytes is None
    assert dropping.traffic_class(0).critical.mark_full == data.mark_full
    assert dropping.port_bytes is not None


def test_figures_lie_beside_the_reference_models() -> None:
    """docs/simulator/validation.md: uet-htsim gives 191.9 us in the mean, 203.7 us at most; incast 5,256 us.

    As its senders know it, which is half a round trip after the last byte came; it sprays over 64 entropies. Over 20
    seeds: test_validation.py.
    """
    transport = Uet(entropies=64)
    permutation = Scenario(fabric=FABRIC, transport=transport, workload=Permutation(bytes=2_000_000)).run()
    assert permutation.flows.acknowledged_s.mean() == pytest.approx(191.9e-6, rel=0.01)
    assert permutation.flows.acknowledged_s.max() == pytest.approx(203.7e-6, rel=0.03)
    incast = Scenario(fabric=FABRIC, transport=transport, workload=Incast(senders=32, bytes=2_000_000)).run()
    assert incast.flows.acknowledged_s.max() == pytest.approx(5256e-6, rel=0.01)
    for result in (permutation, incast):
        assert result.flows.timeouts.sum() == 0
        assert result.ports.packets_dropped.sum() == 0
        assert result.ports.packets_trimmed.sum() == result.flows.retransmitted_packets.sum()


def test_fewer_entropies_and_no_recycling_are_worse() -> None:
    def worst(transport: Uet) -> float:
        result = Scenario(fabric=FABRIC, transport=transport, workload=Permutation(bytes=1_000_000)).run()
        return float(result.flows.completion_s.max())

    best = worst(Uet())
    assert worst(Uet(entropies=1)) > 1.5 * best
    assert worst(Uet(entropies=4)) > 1.1 * best


def test_a_gray_link_costs_little_since_its_entropies_are_left() -> None:
    def last_s(*faults: RandomLoss) -> float:
        transport, workload = Uet(), Permutation(bytes=2_000_000)
        result = Scenario(fabric=FABRIC, transport=transport, workload=workload, faults=faults).run()
        assert result.flows.finished.all()
        return float(result.flows.completion_s.max())

    assert last_s(RandomLoss("edge 0 -> aggregation 0", ratio=0.05)) < 1.7 * last_s()
