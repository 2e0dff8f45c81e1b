"""What each kind of switch does with load in a star: strict priority, colours, marks, faults, a live policy.

Ratios and orders, never absolute rates: two shared cores schedule in tens of milliseconds (driver.md, 5).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from dlcp.lab import simple_switch
from dlcp.lab.counts import PortCount, shares
from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import Burst, FabricError, Fault
from dlcp.lab.policies import usual
from dlcp.lab.switched_lab import SwitchedLab, missing
from dlcp.lab.traffic import PacketStream
from dlcp.switch.policy import Policy, Thresholds, TrafficClass
from dlcp.switch.starting_policy import starting_policy
from tests.lab.switched import Load, namespaces_of, offer, offer_all, offer_light

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif((reason := missing()) is not None, reason=reason or ""),
]

RATE_BPS = 50_000_000
CLASSES = (0, 2, 4, 6)
# Each class of its own, no colours: only who is served first decides. The upper two have room for what comes while a
# switch waits for a core, 100 ms of it; the lower two little, so that few get by before they are full.
FOUR = Policy(
    "four",
    tuple(
        TrafficClass(n, dscp=(8 * n,), droppable=(Thresholds(drop_above_bytes=60_000 if n < 4 else 320_000),))
        for n in CLASSES
    ),
    port_bytes=1_000_000,
)
# One class: marks of what is critical, and the less important a packet, the earlier it goes.
COLOURS = Policy(
    "colours",
    (
        TrafficClass(
            1,
            dscp=(8,),
            critical=Thresholds(mark_from_bytes=10_000),
            droppable=tuple(Thresholds(drop_above_bytes=20_000 + 10_000 * level) for level in range(8)),
        ),
    ),
    port_bytes=200_000,
)
CRITICAL = PacketStream(dscp=8, ecn=2)


def star(kind: str) -> Fabric:
    """Two senders, each as fast as the receiver's port."""
    return Fabric(leaves=1, spines=0, hosts_per_leaf=3, host_rate_bps=RATE_BPS, switch=kind)


@pytest.fixture(scope="module", params=["software", "kernel"])
def bed(request: pytest.FixtureRequest) -> Iterator[SwitchedLab]:
    with SwitchedLab(star(request.param), policy=FOUR) as made:
        yield made
    assert not namespaces_of(made.network.prefix)


def test_twice_the_rate_in_four_classes_delivers_the_upper_two(bed: SwitchedLab) -> None:
    bed.set_policy(FOUR)
    streams = [PacketStream(dscp=8 * n) for n in CLASSES]
    load = offer_all(lambda: offer(bed, streams, 2 * RATE_BPS), 2 * RATE_BPS)
    assert load.rate_bps > 1.8 * RATE_BPS, "no overload was made"
    lowest, low, high, highest = (load.delivered(stream) for stream in range(4))
    assert highest > 0.99, load
    assert high > 0.95, load
    # What is left of the lower two are first fills of their queues, and the moments in which a sender did not run.
    assert low < 0.12, load
    assert lowest < 0.12, load


def test_overload_in_one_class_spares_what_is_critical_and_important(bed: SwitchedLab) -> None:
    bed.set_policy(COLOURS)
    before = bed.counts()["l0"]["h2"]
    streams = [CRITICAL, *(PacketStream(dscp=8, importance=importance) for importance in (250, 130, 0))]
    load = offer(bed, streams, int(1.3 * RATE_BPS))
    critical, important, ordinary, least = (load.delivered(stream) for stream in range(4))
    assert critical >= 0.999, load
    assert important >= ordinary - 0.01 >= least - 0.02, load
    assert least < 0.5, load
    assert load.marked(0) > 0.5, load
    after = bed.counts()["l0"]["h2"]
    assert after.critical_dropped == before.critical_dropped
    assert (after.droppable_dropped or 0) > (before.droppable_dropped or 0)
    assert after.classes[1].max_waiting_bytes > 20_000
    assert after.classes[1].marked > before.classes[1].marked


@pytest.mark.parametrize(
    "others",
    [
        [PacketStream(), PacketStream(), PacketStream(ecn=2)],
        [PacketStream(dscp=dscp, ecn=2) for dscp in (11, 19, 27)],
    ],
    ids=["foreign", "lower classes"],
)
def test_starting_policy_has_room_for_the_class_served_first(
    bed: SwitchedLab, others: list[PacketStream]
) -> None:
    policy = starting_policy(RATE_BPS, separate=True, ports=3, path_choice="path_id")  # the kernel hashes
    lost = {}
    for name, one in (
        ("shared", policy),
        ("of a port", replace(policy, shared_bytes=None, port_bytes=128_000)),
    ):
        bed.set_policy(one)
        cut = 0  # trimmed or dropped

        def offered() -> Load:
            nonlocal cut
            before = bed.counts()["l0"]["h2"].classes[6]
            # A quarter of it in class 6, so half of the port's rate.
            load = offer(bed, [PacketStream(dscp=51, ecn=2), *others], int(1.9 * RATE_BPS))
            after = bed.counts()["l0"]["h2"].classes[6]
            cut = after.dropped + after.trimmed - before.dropped - before.trimmed
            return load

        load = offer_all(offered, int(1.9 * RATE_BPS))
        assert load.rate_bps > 1.7 * RATE_BPS, "no overload was made"
        assert sum(load.delivered(stream) for stream in (1, 2, 3)) < 2.5, load
        lost[name] = cut / load.sent[0]
    assert lost["shared"] == 0, lost
    assert lost["of a port"] > 0.02, "nothing was shown"


def overrun(ports: Mapping[str, PortCount]) -> int:
    """Frames that came to a switch that waited for a core, while its receive rings were full."""
    return sum(port.other.get("overrun", 0) for port in ports.values())


def test_loss_of_a_link_is_what_was_asked(bed: SwitchedLab) -> None:
    bed.set_policy(FOUR)
    before = bed.counts()["l0"]
    bed.set_fault("h0-l0", Fault(loss_ratio=0.1))
    load = offer(
        bed,
        [PacketStream(dscp=48, paths=2)],
        int(0.4 * RATE_BPS),
        senders=[0],
        seconds=0.8,
        payload_bytes=200,
    )
    counts = bed.counts()["l0"]
    assert load.sent[0] > 1000
    lost, late = counts["h0"].arrivals_lost, overrun(counts) - overrun(before)
    seen = load.sent[0] - late
    assert abs(lost / seen - 0.1) < 5 * math.sqrt(0.1 * 0.9 / seen), load
    # A switch that waited for a core finds too much for a queue.
    dropped = counts["h2"].classes[6].dropped - before["h2"].classes[6].dropped
    assert abs(lost + late + dropped - load.sent[0] * (1 - load.delivered(0))) < 20
    bed.set_fault("h0-l0", Fault())
    assert offer_light(bed, PacketStream(dscp=48), receiver=2).delivered(0) == 1


def test_bursts_lose_on_average_what_they_say(bed: SwitchedLab) -> None:
    bed.set_policy(FOUR)
    burst = Burst(0.05, 0.5)
    before = bed.counts()["l0"]
    bed.set_fault("h2-l0", Fault(burst=burst))
    load = offer(
        bed, [PacketStream(dscp=48)], int(0.4 * RATE_BPS), senders=[0], seconds=0.8, payload_bytes=200
    )
    bed.set_fault("h2-l0", Fault())
    counts = bed.counts()["l0"]
    # Those that came while the switch waited for a core, or that a full queue dropped, did not reach the cable.
    dropped = counts["h2"].classes[6].dropped - before["h2"].classes[6].dropped
    carried = load.sent[0] - dropped - (overrun(counts) - overrun(before))
    assert carried > 2000
    assert abs(1 - load.sent[0] * load.delivered(0) / carried - burst.mean_ratio) < 0.04, load


def test_slow_link_carries_its_lower_rate_and_then_its_own_again(bed: SwitchedLab) -> None:
    bed.set_policy(FOUR)
    bed.set_fault("h2-l0", Fault(rate_bps=RATE_BPS // 5))
    slow = offer(bed, [PacketStream(dscp=16)], int(0.8 * RATE_BPS), senders=[0], seconds=0.8)
    bed.set_fault("h2-l0", Fault())
    # A fifth of the rate is a quarter of what was offered; more is what waited at the end.
    assert 0.2 < slow.delivered(0) < 0.5, slow
    before = bed.counts()["l0"]
    whole = offer(bed, [PacketStream(dscp=16)], RATE_BPS // 2, senders=[0], seconds=0.3)
    # At a fifth of the rate: 0.46. A switch that waits for a core may find too much for a queue; nothing else is lost.
    assert whole.delivered(0) > 0.7
    counts = bed.counts()["l0"]
    dropped = counts["h2"].classes[2].dropped - before["h2"].classes[2].dropped
    late = overrun(counts) - overrun(before)
    assert round(whole.delivered(0) * whole.sent[0]) + dropped + late == whole.sent[0]


def test_cut_link_carries_nothing_until_it_is_mended(bed: SwitchedLab) -> None:
    bed.set_fault("h2-l0", Fault(down=True))
    assert bed.counts()["l0"]["h2"].up is False
    ping = bed.start(0, ["ping", "-c", "1", "-W", "1", bed.addresses[2]])
    ping.communicate(timeout=100)
    assert ping.returncode == 1
    bed.set_fault("h2-l0", Fault())
    assert bed.counts()["l0"]["h2"].up is True
    ping = bed.start(0, ["ping", "-c", "3", "-i", "0.2", "-W", "2", bed.addresses[2]])
    ping.communicate(timeout=100)
    assert ping.returncode == 0


def test_ipv6_has_classes_too(bed: SwitchedLab) -> None:
    bed.set_policy(FOUR)
    before = bed.counts()["l0"]["h2"].classes[4].sent
    load = offer_light(bed, PacketStream(dscp=32, ecn=1), receiver=2, version=6)
    assert load.delivered(0) == 1
    assert bed.counts()["l0"]["h2"].classes[4].sent - before >= load.sent[0]


@pytest.mark.parametrize("kind", ["software", "kernel", "none"])
def test_ways_to_the_spines_are_shared(kind: str) -> None:
    fabric = Fabric(leaves=2, spines=2, hosts_per_leaf=1, switch=kind)
    with SwitchedLab(fabric) as bed:
        load = offer_light(bed, PacketStream(dscp=8, ecn=1, paths=32), receiver=1)
        assert load.delivered(0) > 0.99
        spines = {name: port.sent for name, port in bed.counts()["l0"].items() if name.startswith("s")}
        assert min(spines.values()) > 0.2 * sum(spines.values()), spines
        bed.set_fault("l0-s0", Fault(down=True))
        load = offer_light(bed, PacketStream(dscp=8, ecn=1, paths=32), receiver=1)
        assert load.delivered(0) > 0.99, "the way that is left carries all"


@pytest.mark.parametrize("kind", ["software", "none"])
def test_other_leaves_go_around_a_cut_link_once_routing_has_converged(kind: str) -> None:
    fabric = Fabric(leaves=2, spines=2, hosts_per_leaf=1, switch=kind)
    # 32 flows each way, over both spines; those that a leaf still sends to the spine without a cable are lost.
    stream = PacketStream(dscp=8, ecn=1, paths=32)

    def delivered(bed: SwitchedLab, sender: int) -> float:
        return offer_light(bed, stream, senders=[sender], receiver=1 - sender).delivered(0)

    def all_is_delivered(bed: SwitchedLab, sender: int) -> bool:
        """Flows over a spine without a cable are lost at every try; on a busy machine a switch may lose others."""
        return any(delivered(bed, sender) > 0.99 for _ in range(5))

    with SwitchedLab(fabric) as bed:
        assert all(port.up for ports in bed.counts().values() for port in ports.values()), "a lab just made"
        bed.set_fault("l0-s1", Fault(down=True), converge=False)
        assert bed.lost_next_hops() == [("l1", "l0", "s1")]
        assert 0.2 < delivered(bed, 1) < 0.8
        assert all_is_delivered(bed, 0), "a leaf sees its own cable"
        bed.converge()
        assert bed.lost_next_hops() == []
        assert bed.left_out == {"l0": (), "l1": ("s1",)}
        assert all(all_is_delivered(bed, sender) for sender in (0, 1))
        assert bed.counts()["l1"]["s1"].up, "its cable is whole"
        found = SwitchedLab.find(bed.name)
        found.set_fault("l1-s1", Fault(rate_bps=10**7))
        assert all_is_delivered(found, 1), "another fault of that leaf's does not bring the way back"
        found.set_fault("l0-s1", Fault())
        assert found.left_out == {"l0": (), "l1": ()}
        # How many of the flows go that way again is the hash's: at its lower rate it may not carry its share.
        found.set_fault("l1-s1", Fault())
        before = found.counts()["l1"]["s1"].sent
        assert delivered(found, 1) > 0.99
        assert found.counts()["l1"]["s1"].sent > before + 40, "the way is taken again"


@pytest.mark.skipif((reason := simple_switch.missing()) is not None, reason=reason or "")
def test_leaves_of_bmv2_go_around_a_cut_link_too() -> None:
    with SwitchedLab(Fabric(leaves=2, spines=2, hosts_per_leaf=1, switch="bmv2")) as bed:

        def delivered(sender: int) -> float:
            streams = [PacketStream(dscp=8, ecn=1, paths=32)]
            load = offer(bed, streams, 3_000_000, senders=[sender], receiver=1 - sender, seconds=0.5)
            return load.delivered(0)

        bed.set_fault("l0-s1", Fault(down=True), converge=False)
        assert bed.lost_next_hops() == [("l0", "l1", "s1"), ("l1", "l0", "s1")], (
            "it does not look at its cables"
        )
        assert all(0.2 < delivered(sender) < 0.8 for sender in (0, 1))
        bed.converge()
        assert all(delivered(sender) > 0.99 for sender in (0, 1))
        bed.set_fault("l0-s1", Fault())
        before = bed.counts()["l1"]["s1"].sent
        assert delivered(1) > 0.99
        assert bed.counts()["l1"]["s1"].sent > before + 20, "the way is taken again"


@pytest.mark.parametrize("kind", ["software", "kernel"])
def test_losses_between_switches_are_counted_once(kind: str) -> None:
    fabric = Fabric(leaves=2, spines=1, hosts_per_leaf=1, switch=kind)
    with SwitchedLab(fabric) as bed:
        bed.set_fault("l0-s0", Fault(loss_ratio=0.2))
        # The usual policy holds more of what is critical.
        there = offer_light(bed, PacketStream(ecn=1), senders=[0], receiver=1, seconds=0.6)
        back = offer_light(bed, PacketStream(ecn=1), senders=[1], receiver=0, seconds=0.6)
        counts = bed.counts()
        lost = [round(load.sent[0] * (1 - load.delivered(0))) for load in (there, back)]
        assert all(n > 0.1 * load.sent[0] for n, load in zip(lost, (there, back), strict=True))
        faults = [counts["l0"]["s0"].faults_lost, counts["s0"]["l0"].faults_lost]
        for counted, missing, load in zip(faults, lost, (there, back), strict=True):
            # What the kernel sends of its own may be among them; a receiver without a processor misses more.
            assert counted < missing + 20
            assert abs(counted - 0.2 * load.sent[0]) < 20 + 5 * math.sqrt(0.2 * 0.8 * load.sent[0])
        total = sum(p.faults_lost + p.arrivals_lost for ports in counts.values() for p in ports.values())
        assert total == sum(faults), "each is counted at one place"


def test_round_robin_sprays_one_flow_over_all_ways() -> None:
    fabric = Fabric(leaves=2, spines=2, hosts_per_leaf=1)
    with SwitchedLab(fabric, policy=replace(usual(10**8), path_choice="round_robin")) as bed:
        load = offer_light(bed, PacketStream(ecn=1), receiver=1, seconds=0.6)
        assert load.delivered(0) == 1
        ways = shares(bed.counts()["l0"], ("s0", "s1"))
        assert abs(ways["s0"] - 0.5) < 0.02, ways


def test_plain_switches_have_one_queue_for_all() -> None:
    with SwitchedLab(star("none")) as bed:
        load = offer(bed, [PacketStream(dscp=0), PacketStream(dscp=48, ecn=2)], int(1.6 * RATE_BPS))
        assert load.delivered(1) < 0.9, "critical packets are lost as others"
        assert bed.counts()["l0"]["h2"].other["queue_full"] > 0


def test_kernel_says_that_it_does_not_trim() -> None:
    trimming = Policy("t", (TrafficClass(1, dscp=(8,), droppable=(Thresholds(trim_above_bytes=9_000),)),))
    with SwitchedLab(star("kernel"), policy=trimming) as bed:
        assert bed.switches.notes() == [
            "trim_above_bytes: the kernel does not trim; what it would trim is dropped"
        ]
    with pytest.raises(FabricError, match="path_choice is 'random'; accepted"):
        SwitchedLab(star("kernel"), policy=Policy("r", path_choice="random")).__enter__()
