"""pFabric as a scenario has it: settings, and shortest remaining first against other disciplines' promises.

Closed forms and mechanisms are tested in C++ (native/pfabric.cpp, native/rank_queue.cpp).
"""

from __future__ import annotations

import numpy as np

from dlcp_sim.fabrics import LeafSpine
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Ndp, PFabric
from dlcp_sim.workloads.flows import Flows, Poisson

FABRIC = LeafSpine(9, 4, 16, rate_bps=100e9, uplink_rate_bps=400e9)


def test_ports_serve_by_rank_with_two_products_of_buffer() -> None:
    assert PFabric.discipline == "least_rank"
    policy = PFabric().policy(FABRIC)
    assert policy.port_bytes == 2 * FABRIC.bandwidth_delay_bytes(1500)


def test_flows_to_one_host_end_in_order_of_size() -> None:
    sizes = [1_460_000, 292_000, 730_000, 29_200]
    rows = tuple((16 * (index + 1), 0, size) for index, size in enumerate(sizes))
    result = Scenario(fabric=FABRIC, transport=PFabric(), workload=Flows(rows=rows)).run()
    assert list(np.argsort(result.flows.completion_s)) == list(np.argsort(sizes))
    assert result.flows.slowdown[3] < 1.1


def test_short_flows_of_a_busy_fabric_are_near_their_bounds() -> None:
    """The paper's claim: near ideal for flows below 100 kB, at high load."""
    workload = Poisson(load=0.6, sizes="web_search", flows=600, duration_s=None)
    completed = {}
    for transport in (PFabric(), Ndp()):
        result = Scenario(fabric=FABRIC, transport=transport, workload=workload).run()
        assert result.flows.finished.all()
        brief = result.flows.bytes < 100_000
        completed[transport.name] = float(np.mean(result.flows.slowdown[brief]))
    assert completed["pfabric"] < 1.3
    assert completed["pfabric"] < completed["ndp"]
