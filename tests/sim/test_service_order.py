"""Which class a port serves when several wait: the trimmed class starves none, a pause holds its class alone."""

from __future__ import annotations

from dataclasses import replace

import dlcp_sim as ds
from dlcp_sim import switches

SLOW = "edge 0 -> host 0"


def test_headers_of_trimmed_packets_leave_room_for_data_on_a_link_that_they_could_fill() -> None:
    """Pulls come at the card's rate: behind a link a hundred times slower headers alone are more than it carries."""
    scenario = ds.Scenario(
        fabric=ds.FatTree(4, rate_bps=100e9),
        transport=ds.Ndp(),
        workload=ds.permutation(bytes=500_000),
        faults=[ds.SlowLink(SLOW, rate_bps=1e9)],
        until_s=0.02,
    )
    fair = scenario.run()
    assert fair.flows.finished.all()
    assert fair.flows.completion_s.max() < 1.3 * 500_000 * 8 / 1e9
    strict = replace(scenario.transport.policy(scenario.fabric), trimmed_run_packets=0)
    assert not replace(scenario, switch=strict).run().flows.finished.all()


def test_a_pause_of_data_does_not_hold_up_acknowledgements() -> None:
    """Hosts whose own data is paused, since all of them send to one, acknowledge what comes to them in the meantime."""
    fabric = ds.LeafSpine(leaves=2, spines=2, hosts_per_leaf=8, rate_bps=10e9)
    never = 1 << 30
    policy = switches.lossless(fabric, mark_from_bytes=never, mark_full_bytes=never, pause_above_bytes=20_000)
    incast = [(source, 15, 2_000_000) for source in range(8)]
    answered = [(8, 0, 100_000, 1e-3), (9, 1, 100_000, 1e-3)]
    result = ds.Scenario(
        fabric=fabric, transport=ds.Dcqcn(), workload=ds.Flows(rows=(*incast, *answered)), switch=policy
    ).run()
    paused = result.ports.pauses[:8].sum(axis=1)
    assert paused.min() > 50, "the senders were not paused"
    flows = result.flows
    assert flows.finished.all()
    waited_s = (flows.acknowledged_s - flows.completion_s)[len(incast) :]
    assert waited_s.max() < 20e-6, f"acknowledgements took {waited_s} s"
