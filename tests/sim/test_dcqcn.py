"""DCQCN as a scenario has it: settings, the lossless policy that comes with it, paths hashed and sprayed.

The rate's stages, fairness and pauses are tested in C++ (native/dcqcn.cpp).
"""

from __future__ import annotations

import dataclasses

import pytest

from dlcp_sim.fabrics import FatTree
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dcqcn
from dlcp_sim.workloads.flows import Incast, Permutation

FABRIC = FatTree(4, rate_bps=40e9, delay_s=1e-6)


def test_the_policy_is_lossless_with_the_papers_marks() -> None:
    policy = Dcqcn().policy(FABRIC)
    marks = policy.traffic_class(0).critical
    assert (marks.mark_from_bytes, marks.mark_full, marks.mark_ratio) == (5_000, 200_000, 0.01)
    assert policy.pause_above_bytes is not None
    assert policy.port_bytes is None


@pytest.mark.parametrize(("pause_above_bytes", "pauses"), [(50_000, True), (10_000_000, False)])
def test_incast_loses_nothing_and_pauses_when_buffers_are_small(pause_above_bytes: int, pauses: bool) -> None:
    policy = dataclasses.replace(
        Dcqcn().policy(FABRIC),
        pause_above_bytes=pause_above_bytes,
        resume_below_bytes=pause_above_bytes - 8320,
    )
    result = Scenario(
        fabric=FABRIC, transport=Dcqcn(), workload=Incast(senders=15, bytes=500_000), switch=policy
    ).run()
    assert result.flows.finished.all()
    assert result.ports.packets_dropped.sum() == 0
    assert result.flows.retransmitted_packets.sum() == 0
    assert (result.ports.pauses.sum() > 0) == pauses


def test_spraying_ends_the_collisions_of_hashing() -> None:
    def worst(transport: Dcqcn) -> float:
        result = Scenario(fabric=FABRIC, transport=transport, workload=Permutation(bytes=1_000_000)).run()
        return float(result.flows.slowdown.max())

    assert worst(Dcqcn(spray=True)) < 1.5
    assert worst(Dcqcn()) > 1.8
    assert worst(Dcqcn(clamp_target=True)) > worst(Dcqcn())
