"""Switches that add, simulated: every rank has every sum, under loss too, in the time that the line takes.

The simulation itself compares each sum with what it has to be, and a wrong one would end the run.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp.switch.policy import Policy
from dlcp_sim import Result, Scenario, workloads
from dlcp_sim.fabrics import Fabric, FatTree, LeafSpine, Star, ThreeTier
from dlcp_sim.faults import LinkDown, RandomLoss
from dlcp_sim.transports import Dlcp, Ndp

NBYTES = 1 << 20
LANES, HEADERS = 1024, 36 + 66
"""Of a packet: values, and bytes beside them on the wire."""
BLOCKS = NBYTES // (4 * LANES)
TWO_PODS = ThreeTier(pods=2, edges=2, hosts_per_edge=3, aggregations=2, cores=2)


def run(fabric: Fabric, *, seed: int = 1, threads: int = 1, faults: Any = (), **how: Any) -> Result:
    """An all-reduce of a mebibyte by the fabric's switches."""
    load = workloads.collective(**{"algorithm": "switch", "bytes": NBYTES} | how)
    return Scenario(
        fabric=fabric, transport=Dlcp(), workload=load, faults=faults, seed=seed, threads=threads
    ).run()


def counter(result: Result, name: str) -> int:
    return int(result.metadata["transport_counters"][name])


def sum_s(result: Result, ranks: int) -> float:
    """Seconds of the sum alone, without what ranks agree on before and after."""
    before, after = (np.asarray(result.tasks.finish_s)[part * ranks : (part + 1) * ranks] for part in (0, 1))
    return float(after.max() - before.min())


def sent_by(result: Result, sender: str) -> int:
    """Bytes that one node's port of all names "sender → …" sent, the busiest."""
    sent = np.asarray(result.ports.bytes_sent).sum(axis=1)
    return max(int(n) for port, n in enumerate(sent) if result.ports.name(port).startswith(f"{sender} →"))


@pytest.mark.parametrize(
    ("fabric", "adders"),
    [
        (Star(2), 1),
        (Star(32), 1),
        (LeafSpine(4, 2, 4), 5),
        (FatTree(4), 9),  # two links between a leaf and the root
        (TWO_PODS, 5),
    ],
)
def test_every_rank_has_every_sum(fabric: Fabric, adders: int) -> None:
    result = run(fabric)
    ranks = fabric.hosts
    assert np.isfinite(result.tasks.finish_s).all()
    assert len(result.tasks.finish_s) == 3 * ranks
    assert counter(result, "sums_received") == ranks * BLOCKS
    # Each switch finishes each block once; a leaf is told so by the root.
    assert counter(result, "slots_completed") == adders * BLOCKS
    assert counter(result, "contributions_sent") == ranks * BLOCKS
    for name in ("sums_wrong", "slots_collision", "slots_stale", "slots_mismatch", "slots_damaged"):
        assert counter(result, name) == 0


def test_every_link_carries_the_tensor_once_each_way() -> None:
    result = run(LeafSpine(2, 1, 4))
    wire = BLOCKS * (4 * LANES + HEADERS)
    for sender in ("host 3", "edge 0", "edge 1", "aggregation 0"):
        assert wire <= sent_by(result, sender) < 1.02 * wire


def test_large_data_takes_what_the_line_takes() -> None:
    """And a constant: three hops and an agreement more or less."""
    for fabric, hops in ((Star(8, rate_bps=25e9), 2), (LeafSpine(2, 1, 4, rate_bps=25e9), 4)):
        result = run(fabric, bytes=8 * NBYTES)
        packet_s = 8 * (4 * LANES + HEADERS) / 25e9
        line_s = 8 * BLOCKS * packet_s
        assert line_s < sum_s(result, 8) < 1.03 * line_s + hops * (packet_s + 1e-6)


def test_half_the_bits_take_half_the_time() -> None:
    whole, half = (run(Star(4, rate_bps=10e9), bytes=4 * NBYTES, bits=bits) for bits in (32, 16))
    assert 0.48 < sum_s(half, 4) / sum_s(whole, 4) < 0.52


@pytest.mark.parametrize("fabric", [Star(4), LeafSpine(2, 1, 2)])
def test_loss_on_every_kind_of_link_is_repaired(fabric: Fabric) -> None:
    lossy = ["host 1 -> edge 0", "edge 0 -> host 0"]
    if fabric.hosts == 4 and isinstance(fabric, ThreeTier) and fabric.aggregations:
        lossy += ["edge 0 -> aggregation 0", "aggregation 0 -> edge 1"]
    result = run(fabric, times=2, faults=[RandomLoss(link, ratio=0.05) for link in lossy])
    assert np.isfinite(result.tasks.finish_s).all()
    assert np.asarray(result.ports.packets_lost).sum() > 20
    assert counter(result, "sums_received") == 4 * 2 * BLOCKS
    assert counter(result, "contributions_repeated") > 20
    # A contribution that had come was not added again.
    assert counter(result, "slots_duplicate") + counter(result, "slots_repeated") > 0


def test_queues_that_overflow_lose_packets_and_sums_are_right() -> None:
    """Two hosts of a rack share a slow up-link with a flow of another host's."""
    fabric = LeafSpine(2, 1, 3, rate_bps=10e9, uplink_rate_bps=2e9)
    load = workloads.together(
        workloads.collective(algorithm="switch", bytes=NBYTES, hosts=(0, 1, 3, 4)),
        workloads.Flows(rows=((2, 5, 4_000_000),)),
    )
    narrow = Policy("narrow", port_bytes=20_000)
    scenario = Scenario(fabric=fabric, transport=Dlcp(), workload=load, switch=narrow)
    result = scenario.run()
    assert np.asarray(result.ports.packets_dropped).sum() > 0
    assert counter(result, "contributions_repeated") > 0
    assert np.isfinite(result.tasks.finish_s).all()
    assert counter(result, "sums_received") == 4 * BLOCKS


def test_the_same_seed_is_the_same_run_with_any_number_of_threads() -> None:
    faults = [RandomLoss("edge 0 -> aggregation 0", ratio=0.02)]
    first = run(LeafSpine(4, 1, 4), seed=3, faults=faults)
    for threads in (1, 2, 4):
        again = run(LeafSpine(4, 1, 4), seed=3, faults=faults, threads=threads)
        assert np.array_equal(first.tasks.finish_s, again.tasks.finish_s)
        assert np.array_equal(first.ports.bytes_sent, again.ports.bytes_sent)
        assert first.metadata["transport_counters"] == again.metadata["transport_counters"]


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_jobs_and_losses(seed: int) -> None:
    """Whatever is lost where, every rank ends with every sum, and nothing is added twice: it would be wrong then."""
    draw = random.Random(seed)
    fabric = draw.choice([Star(7), LeafSpine(3, 2, 4), FatTree(4), TWO_PODS])
    names = [
        "edge 0 -> host 0",
        "edge 0",
        "edge 1 - aggregation 0" if fabric.hosts > 7 else "host 2 - edge 0",
    ]
    ranks = draw.sample(range(fabric.hosts), draw.randint(2, fabric.hosts))
    lanes, times, size = 32 * draw.randint(1, 8), draw.randint(1, 3), draw.randint(1, 200_000)
    load = workloads.collective(
        algorithm="switch",
        bytes=size,
        hosts=tuple(ranks),
        times=times,
        slots=draw.choice([2, 3, 16, 128]),
        lanes=lanes,
    )
    result = Scenario(
        fabric=fabric,
        transport=Dlcp(),
        workload=load,
        faults=[RandomLoss(name, ratio=draw.uniform(0, 0.04)) for name in names],
        seed=seed,
    ).run()
    assert np.isfinite(result.tasks.finish_s).all()
    assert counter(result, "sums_received") == len(ranks) * times * -(-size // (4 * lanes))
    for name in ("sums_wrong", "slots_collision", "slots_mismatch", "slots_damaged"):
        assert counter(result, name) == 0
    # Of two levels, the upper may repeat a sum that the lower has: of no use there.
    assert fabric != Star(7) or counter(result, "slots_stale") == 0


def test_sums_follow_each_other_in_one_job() -> None:
    """Keys go on, so that slots are used again: a fifth of a block per slot at a time would not show that."""
    result = run(Star(3), times=3, bytes=1_000_003, slots=4, lanes=32)
    blocks = -(-250_001 // 32)
    assert np.isfinite(result.tasks.finish_s).all()
    assert counter(result, "sums_received") == 3 * 3 * blocks
    columns = result.collectives
    assert (np.asarray(columns.sent_bytes)[np.asarray(columns.number) == 1] == 1_000_003).all()


def test_two_jobs_share_a_switch() -> None:
    load = workloads.together(
        workloads.collective(algorithm="switch", bytes=NBYTES, hosts=(0, 1, 2)),
        workloads.collective(algorithm="switch", bytes=NBYTES, hosts=(1, 2, 3)),
        workloads.collective(algorithm="ring", bytes=NBYTES, hosts=(0, 3), executor=True),
    )
    result = Scenario(fabric=Star(4), transport=Dlcp(), workload=load).run()
    assert np.isfinite(result.tasks.finish_s).all()
    assert counter(result, "sums_received") == 6 * BLOCKS


def test_a_tensor_without_values_is_over_at_once() -> None:
    assert np.isfinite(run(Star(2), bytes=0).tasks.finish_s).all()


def test_a_sum_behind_a_cut_link_is_given_up() -> None:
    """As its worker's owner does after a second without a result; nothing goes on for ever."""
    result = run(Star(3), faults=[LinkDown("host 2", at_s=40e-6)])
    assert result.metadata["ended_by"] == "over"
    assert counter(result, "sums_given_up") == 3
    assert 1 < result.simulated_s < 5  # sessions end a little later
    assert not np.isfinite(result.tasks.finish_s[3:]).any()


def test_it_can_be_written_and_traced() -> None:
    scenario = Scenario(
        fabric=Star(2),
        transport=Dlcp(),
        workload=workloads.collective(algorithm="switch", bytes=10_000, slots=64, lanes=352, bits=16),
        trace=ds.Trace(),
    )
    assert Scenario.from_dict(scenario.as_dict()) == scenario
    result = scenario.run()
    assert b"DLCA" in {bytes(header[:4]) for header in np.asarray(result.trace["headers"])}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"collective": "broadcast"}, "collective is 'broadcast' where switches add; accepted: all_reduce"),
        ({"traffic_class": 1}, "traffic_class is 1 where switches add; accepted: 0"),
        ({"loss_ratio": 0.1}, "loss_ratio is 0.1 where switches add; accepted: 0"),
        ({"slots": 1}, "slots is 1 where switches add; accepted: 2 to 2048"),
        ({"slots": 2049}, "slots is 2049"),
        ({"lanes": 33}, "lanes is 33 where switches add; accepted: multiples of 32 up to 2208"),
        ({"lanes": 2240}, "lanes is 2240"),
        ({"bits": 12}, "bits is 12 where switches add; accepted: 32, 16, 8"),
        ({"hosts": 1}, "hosts is 1 where switches add; accepted: 2 to 1024"),
    ],
)
def test_what_switches_do_not_add_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        run(Star(4), **how)


def test_fabrics_that_cannot_add_are_refused() -> None:
    with pytest.raises(ArgumentError, match="more ranks are at edge 0 than it can add; accepted: up to 32"):
        run(Star(33))
    with pytest.raises(ArgumentError, match="ranks are at 33 switches; accepted: up to 32 below one"):
        run(LeafSpine(33, 1, 1))
    with pytest.raises(ArgumentError, match="no switch without ranks is linked to all of them"):
        run(ds.Dumbbell(2, 2))
    with pytest.raises(
        ArgumentError, match="bits is 8 where switches add; accepted: at least 9 for 64 ranks"
    ):
        run(LeafSpine(2, 1, 32), bits=8)
    twice = workloads.together(
        workloads.collective(algorithm="switch", slots=2048, hosts=(0, 1)),
        workloads.collective(algorithm="switch", slots=2, hosts=(1, 2)),
    )
    with pytest.raises(ArgumentError, match="edge 0 adds: job 2: slots is 2; accepted: 2 to 0, what is left"):
        Scenario(fabric=Star(3), transport=Dlcp(), workload=twice).run()


def test_other_transports_and_hosts_that_take_time_are_refused() -> None:
    scenario = Scenario(fabric=Star(2), transport=Ndp(), workload=workloads.collective(algorithm="switch"))
    with pytest.raises(ArgumentError, match='run by transport "dlcp" only'):
        scenario.run()
    with pytest.raises(ArgumentError, match="hosts take time; accepted where switches add: free"):
        replace(scenario, transport=Dlcp(), hosts="sockets").run()
