"""NDP as a scenario has it: settings, the switch policy that comes with it, and what it does to a fabric.

Closed forms and mechanisms are tested in C++ (native/ndp.cpp).
"""

from __future__ import annotations

import numpy as np

from dlcp_sim.fabrics import FatTree
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Ndp
from dlcp_sim.workloads.flows import Incast, Permutation

FABRIC = FatTree(8, rate_bps=100e9, delay_s=1e-6)
PACKET_S = 8 * 4160 / 100e9
PAYLOAD_BYTES = 4096


def test_queue_settings_make_the_policy_of_the_switches() -> None:
    transport = Ndp(queue_packets=35, header_queue_bytes=1_000_000, rto_s=2e-3)
    assert transport.parameters()["rto_ps"] == 2e9
    data, control = (transport.policy(FABRIC).traffic_class(number) for number in (0, 7))
    assert data.level(0).trim_above_bytes == 34 * 4160
    assert control.level(0).trim_above_bytes is None
    assert control.level(0).drop_above_bytes == control.critical.drop_above_bytes == 1_000_000


def test_incast_is_as_fast_as_the_link_and_only_trims() -> None:
    """docs/simulator/validation.md, 2: N·n·s + (L − 1)·s + L·d."""
    result = Scenario(
        fabric=FABRIC,
        transport=Ndp(window_packets=50, queue_packets=35),
        workload=Incast(senders=32, bytes=489 * PAYLOAD_BYTES),
    ).run()
    bound_s = (32 * 489 + 5) * PACKET_S + 6e-6
    assert bound_s <= result.flows.completion_s.max() <= 1.005 * bound_s
    assert result.flows.timeouts.sum() == 0
    assert result.ports.packets_dropped.sum() == 0
    assert result.ports.packets_trimmed.sum() == result.flows.retransmitted_packets.sum() > 0


def test_a_permutation_is_near_its_bound_also_with_small_queues() -> None:
    means = {}
    for packets in (8, 35):
        transport = Ndp(window_packets=50, queue_packets=packets)
        result = Scenario(fabric=FABRIC, transport=transport, workload=Permutation(bytes=1_000_000)).run()
        means[packets] = float(np.mean(result.flows.slowdown))
        assert result.flows.timeouts.sum() == 0
    assert means[35] < 1.25
    assert means[8] < 1.1 * means[35]
