"""TCP and DCTCP through scenarios: their settings, and that these do what they say.

The protocols' own tests are native: tests/sim/native/tcp_state.cpp and tcp_network.cpp.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError
from dlcp_sim import Dumbbell, RandomLoss, Scenario, Star
from dlcp_sim.result import Result
from dlcp_sim.transports import Dctcp, Dlcp, Tcp, Uet
from dlcp_sim.transports.tcp import Segments
from dlcp_sim.workloads.collectives import CollectiveRun
from dlcp_sim.workloads.flows import Flows, Incast
from dlcp_sim.workloads.load import Workload

STAR = Star(9, rate_bps=10e9, delay_s=5e-6)


def incast(transport: Segments, **more: Any) -> Result:
    return Scenario(fabric=STAR, transport=transport, workload=Incast(senders=8, bytes=500_000), **more).run()


def test_parameters_are_in_the_core_s_units() -> None:
    values = Tcp(congestion="newreno", min_rto_s=1e-3, ack_delay_s=0.0).parameters()
    assert values["min_rto_ps"] == 1e9
    assert values["ack_delay_ps"] == 0
    assert values["congestion"] == 0
    assert "ack_delay_ps" not in Dctcp().parameters()
    assert Dctcp().parameters()["min_rto_ps"] == 1e10


def test_ends_of_ranges_are_kept_apart() -> None:
    with pytest.raises(ArgumentError, match="max_rto_s"):
        Tcp(min_rto_s=2.0, max_rto_s=1.0)


@pytest.mark.parametrize(
    "transport",
    [
        Tcp(min_rto_s=1e-3),
        Tcp(congestion="newreno", min_rto_s=1e-3, ecn=True, pacing=True),
        Tcp(min_rto_s=1e-3, hystart=True, handshake=True, persistent=True, proportional_reduction=False),
        Dctcp(),
        Dctcp(mtu_bytes=4148, ack_every=1),
    ],
    ids=["cubic", "newreno", "options", "dctcp", "jumbo"],
)
def test_an_incast_ends_and_every_byte_arrives(transport: Segments) -> None:
    result = incast(transport)
    assert result.flows.finished.all()
    assert (result.flows.delivered_bytes == 500_000).all()
    # Eight flows through one link of 10 Gb/s: 3.2 ms of payload.
    assert 3.2e-3 < result.flows.completion_s.max() < 12e-3


def test_dctcp_and_ecn_drop_nothing_where_cubic_does() -> None:
    def dropped(transport: Segments) -> float:
        return incast(transport).figures()["packets_dropped"]

    # Eight first windows of 1500-byte packets fit into the port's buffer.
    assert dropped(Dctcp(mtu_bytes=1500)) == 0
    assert dropped(Tcp(mtu_bytes=1500, ecn=True)) == 0
    assert dropped(Tcp(mtu_bytes=1500, min_rto_s=1e-3)) > 0


def test_the_minimum_timeout_is_what_a_lost_flow_pays() -> None:
    def worst_s(min_rto_s: float) -> float:
        result = Scenario(
            fabric=STAR,
            transport=Tcp(min_rto_s=min_rto_s, tail_probe=False),
            workload=Flows(rows=((1, 0, 3000),) * 40),
            faults=(RandomLoss("host 1", ratio=0.2),),
            seed=3,
        ).run()
        assert result.flows.timeouts.sum() > 0
        return float(result.flows.completion_s.max())

    assert worst_s(0.2) > 0.2
    assert worst_s(1e-3) < 0.05


def test_a_persistent_connection_spares_slow_start() -> None:
    def later_s(persistent: bool) -> float:
        result = Scenario(
            fabric=Dumbbell(2, 2, rate_bps=10e9, delay_s=50e-6),
            transport=Tcp(min_rto_s=1e-3, persistent=persistent),
            workload=Flows(rows=tuple((0, 2, 400_000, start * 10e-3) for start in range(10))),
        ).run()
        return float(result.flows.completion_s[1:].mean())

    assert later_s(True) < 0.7 * later_s(False)


def test_connections_are_kept_by_default_where_jobs_keep_them() -> None:
    def mean_s(workload: Workload, persistent: bool | None) -> float:
        fabric = Dumbbell(2, 2, rate_bps=10e9, delay_s=50e-6)
        result = Scenario(fabric=fabric, transport=Dctcp(persistent=persistent), workload=workload).run()
        return float(result.flows.completion_s.mean())

    ring = CollectiveRun(algorithm="ring", bytes=2_000_000)
    assert mean_s(ring, None) == mean_s(ring, True) < mean_s(ring, False)
    by_the_clock = Flows(rows=tuple((0, 2, 400_000, start * 10e-3) for start in range(3)))
    assert mean_s(by_the_clock, None) == mean_s(by_the_clock, False) > mean_s(by_the_clock, True)


def test_payload_is_the_others_by_default() -> None:
    assert Tcp().mtu_bytes - 52 == Dctcp().mtu_bytes - 52 == Uet().payload_bytes == Dlcp().block_bytes


def test_the_same_for_one_thread_and_two() -> None:
    def completion(threads: int) -> Any:
        scenario = Scenario(
            fabric=Dumbbell(4, 4, rate_bps=10e9, delay_s=5e-6),
            transport=Tcp(min_rto_s=1e-3),
            workload=Flows(rows=tuple((host, host + 4, 1_000_000) for host in range(4))),
            faults=(RandomLoss("host 1", ratio=0.01),),
        )
        return replace(scenario, threads=threads).run().flows.completion_s

    assert np.array_equal(completion(1), completion(2))
