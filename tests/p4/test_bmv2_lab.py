"""The lab on BMv2: the shipped program, deployed over P4Runtime, between hosts that send.

Ratios only. Classes are not set against each other: BMv2 gives each a link of its own (dlcp/lab/simple_switch.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

from dlcp.lab import simple_switch
from dlcp.lab.counts import shares
from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError, Fault
from dlcp.lab.switched_lab import SwitchedLab, missing
from dlcp.lab.traffic import PacketStream
from dlcp.switch.policy import Policy, Thresholds, TrafficClass
from tests.lab.switched import namespaces_of, offer

REASON = simple_switch.missing() or missing()
pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

RATE_BPS = 20_000_000
CRITICAL, DROPPABLE = PacketStream(dscp=8, ecn=2), PacketStream(dscp=8, ecn=0)


def policy(drop_above_bytes: int, choice: str = "path_id") -> Policy:
    """One class: critical packets are marked early, the others dropped."""
    one = TrafficClass(
        1,
        dscp=(8,),
        critical=Thresholds(mark_from_bytes=10_000),
        droppable=(Thresholds(drop_above_bytes=drop_above_bytes),),
    )
    return Policy("one class", (one,), choice, port_bytes=400_000)


@pytest.fixture(name="bed", scope="module")
def fixture_bed() -> Iterator[SwitchedLab]:
    fabric = Fabric(leaves=1, spines=0, hosts_per_leaf=3, host_rate_bps=RATE_BPS, switch="bmv2")
    with SwitchedLab(fabric, policy=policy(20_000)) as made:
        yield made
    assert not namespaces_of(made.network.prefix)


def test_droppable_packets_take_the_whole_loss(bed: SwitchedLab) -> None:
    load = offer(bed, [CRITICAL, DROPPABLE], int(1.4 * RATE_BPS), seconds=1.5)
    assert load.delivered(0) >= 0.999
    assert load.delivered(1) < 0.75
    assert load.marked(0) > 0.3
    port = bed.counts()["l0"]["h2"]
    assert (port.critical_dropped, port.waiting_bytes) == (0, 0)
    assert port.droppable_dropped == port.classes[1].dropped > 50
    assert port.classes[1].marked > 50


def test_policy_and_faults_are_changed_live(bed: SwitchedLab) -> None:
    bed.set_policy(policy(390_000))
    load = offer(bed, [DROPPABLE], RATE_BPS // 2, seconds=0.5)
    assert load.delivered(0) == 1
    bed.set_fault("h2-l0", Fault(rate_bps=RATE_BPS // 8))
    try:
        load = offer(bed, [DROPPABLE], RATE_BPS // 2, seconds=1.0)
        assert 0.2 < load.delivered(0) < 0.9
    finally:
        bed.set_fault("h2-l0", Fault())
    with pytest.raises(FabricError, match="switch is 'bmv2': loss_ratio"):
        bed.set_fault("h2-l0", Fault(loss_ratio=0.1))
    assert offer(bed, [DROPPABLE], RATE_BPS // 4, seconds=0.3).delivered(0) == 1


def test_turns_use_both_spines(bed: SwitchedLab) -> None:
    fabric = Fabric(leaves=2, spines=2, hosts_per_leaf=1, host_rate_bps=RATE_BPS, switch="bmv2")
    with SwitchedLab(fabric, policy=policy(200_000, "round_robin")) as two:
        load = offer(two, [CRITICAL], RATE_BPS // 4, senders=(0,), receiver=1, seconds=0.5)
        assert load.delivered(0) == 1
        share = shares(two.counts()["l0"], ("s0", "s1"))
        assert abs(share["s0"] - 0.5) < 0.05, share
        assert any("hold for each class alone" in note for note in two.switches.notes())
