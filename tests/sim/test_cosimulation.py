"""Real values through the simulated network: sums to the bit, what is lost and when, and training on top."""

from __future__ import annotations

import numpy as np
import pytest

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp.transport.schedule import build
from dlcp.transport.schedule.operations import Chunk, Combine, Receive, Send, Space
from dlcp_sim.cosimulation import CosimulationError, SimulatedGroup
from dlcp_sim.transports import Dlcp
from dlcp_sim.workloads.executor import part_bytes

STAR = ds.Star(4, rate_bps=10e9, delay_s=1e-6)


def arrays(ranks: int, elements: int, seed: int = 1) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(elements).astype(np.float32) for _ in range(ranks)]


def in_schedule_order(algorithm: str, values: list[np.ndarray]) -> np.ndarray:
    """The sum as the schedules say, operation by operation, in NumPy."""
    size = len(values)
    plans = [build("all_reduce", algorithm, size, rank) for rank in range(size)]
    ends = np.cumsum(part_bytes(values[0].nbytes, plans[0].output_chunks)) // 4
    memory: list[dict[Chunk, np.ndarray]] = []
    for value in values:
        parts = np.split(value.copy(), ends[:-1])
        memory.append({Chunk(Space.OUTPUT, i): part for i, part in enumerate(parts)})
    sent: dict[tuple[int, int, int], np.ndarray] = {}
    at = [0] * size
    while any(at[rank] < len(plans[rank].operations) for rank in range(size)):
        before = list(at)
        for rank, plan in enumerate(plans):
            while at[rank] < len(plan.operations):
                match plan.operations[at[rank]]:
                    case Send(peer, message, source):
                        sent[rank, peer, message] = memory[rank][source].copy()
                    case Receive(peer, message, target, operand):
                        if (peer, rank, message) not in sent:
                            break
                        came = sent[peer, rank, message]
                        memory[rank][target] = came if operand is None else memory[rank][operand] + came
                    case Combine(target, operands):
                        total = memory[rank][operands[0]]
                        for operand in operands[1:]:
                            total = total + memory[rank][operand]
                        memory[rank][target] = total
                at[rank] += 1
        assert at != before, "the schedules wait for each other"
    chunks = [memory[0][Chunk(Space.OUTPUT, i)] for i in range(plans[0].output_chunks)]
    return np.concatenate(chunks)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halving_doubling", "tree", "one_shot"])
def test_all_reduce_is_numpys_sum_in_the_schedules_order(algorithm: str) -> None:
    values = arrays(4, 30_001)
    out = SimulatedGroup(STAR).all_reduce(values, algorithm=algorithm)
    expected = in_schedule_order(algorithm, values)
    for result in out.results:
        np.testing.assert_array_equal(result, expected)
    assert (out.finished_s > out.started_s).all()
    assert out.abandoned == []


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_values_take_as_long_as_lengths_alone(algorithm: str) -> None:
    real = SimulatedGroup(STAR).all_reduce(arrays(4, 50_000), algorithm=algorithm)
    shadow = SimulatedGroup(STAR).all_reduce(50_000, algorithm=algorithm)
    np.testing.assert_array_equal(real.finished_s, shadow.finished_s)
    assert shadow.results == []


def test_time_goes_on_from_step_to_step_and_ranks_may_call_late() -> None:
    group = SimulatedGroup(STAR)
    first = group.all_reduce(arrays(4, 1000))
    later = group.now_s + 1e-3
    second = group.all_reduce(arrays(4, 1000), start_s=[later, later, later, later + 5e-4])
    assert second.started_s == pytest.approx([later, later, later, later + 5e-4], abs=1e-12)
    assert second.finished_s.min() > later + 5e-4 > first.finished_s.max()
    assert group.now_s >= second.finished_s.max()


def congested(seed: int = 1, threads: int = 1) -> SimulatedGroup:
    fabric = ds.Star(12, rate_bps=10e9, delay_s=1e-6)
    transport = Dlcp(datagram_bytes=1088)
    policy = ds.switches.dlcp(
        fabric, packet_bytes=transport.packet_bytes, mark_above_bytes=30_000, drop_from_bytes=3_000,
        drop_full_bytes=12_000,
    )  # fmt: skip
    others = ds.cross_traffic(
        pairs=tuple((6 + i, i) for i in range(6)), load=0.6, bytes=60_000, duration_s=0.01
    )
    return SimulatedGroup(
        fabric, hosts=range(6), transport=transport, policy=policy, background=others, seed=seed,
        threads=threads,
    )  # fmt: skip


def marks(group: SimulatedGroup, elements: int, critical: float = 0.3) -> list[list[np.ndarray | None]]:
    draw = np.random.default_rng(2)
    return [
        [
            np.where(draw.random(n) < critical, 255, draw.integers(0, 255, n)).astype(np.uint8)
            for n in group.blocks(elements)
        ]
        for _ in range(group.size)
    ]


def test_what_switches_drop_is_missing_from_the_sum_and_named() -> None:
    elements = 120_000
    group = congested()
    importance = marks(group, elements)
    # Whole numbers, so that a sum is exact in any order.
    values = [np.full(elements, float(1 << rank), np.float32) for rank in range(6)]
    total, losses = np.full(elements, 63.0, np.float32), 0
    out = group.bounded_all_reduce(values, loss_ratio=0.3, importance=importance)
    for each in out.abandoned:
        begin, end = group.parts(elements)[each.owner]
        codes = importance[each.sender][each.owner]
        assert codes is not None
        assert each.elements <= 0.3 * (end - begin)
        for first, last in each.ranges.tolist():
            assert begin <= first < last <= end
            blocks = np.arange(
                (first - begin) // group.block_elements, -(-(last - begin) // group.block_elements)
            )
            assert (codes[blocks] < 255).all()
            total[first:last] -= values[each.sender][first:last]
            losses += last - first
    assert losses > 0
    assert out.abandoned_bytes == 4 * losses
    for result in out.results:
        np.testing.assert_array_equal(result, total)
    counters = group.packet_counters()
    assert counters["packets_dropped"] + counters["packets_trimmed"] > 0


def test_a_step_repeats_to_the_bit_also_with_threads() -> None:
    elements = 60_000
    found = []
    for threads in (1, 1, 2):
        group = congested(threads=threads)
        importance = marks(group, elements)
        steps = [
            group.bounded_all_reduce(arrays(6, elements, step), loss_ratio=0.2, importance=importance)
            for step in range(2)
        ]
        found.append([(step.finished_s.tolist(), step.results[3].tobytes()) for step in steps])
    assert found[0] == found[1] == found[2]


def test_rescaled_means_are_over_what_came() -> None:
    elements = 120_000
    group = congested()
    out = group.bounded_all_reduce(
        [np.full(elements, 2.5, np.float32)] * 6,
        loss_ratio=0.3,
        importance=marks(group, elements),
        average=True,
        rescale=True,
    )
    assert out.abandoned_bytes > 0
    for result in out.results:
        np.testing.assert_allclose(result, 2.5, rtol=1e-6)


def test_a_network_that_is_cut_ends_in_an_error_that_says_who_waits() -> None:
    group = SimulatedGroup(STAR, network_faults=[ds.LinkDown("host 2", at_s=0.0)])
    with pytest.raises(CosimulationError, match="rank 2"):
        group.all_reduce(arrays(4, 1000), timeout_s=0.01)


def test_arguments_that_do_not_fit_are_named() -> None:
    group = SimulatedGroup(STAR)
    with pytest.raises(ArgumentError, match="one per rank, 4"):
        group.all_reduce(arrays(3, 10))
    with pytest.raises(ArgumentError, match="float32"):
        group.all_reduce([np.zeros(10)] * 4)  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="loss_ratio is 1"):
        group.bounded_all_reduce(arrays(4, 10), loss_ratio=1.0)
    with pytest.raises(ArgumentError, match="accepted: uint8"):
        group.bounded_all_reduce(
            arrays(4, 10_000), loss_ratio=0.1, importance=[[np.zeros(1, np.uint8)] * 4] * 4
        )
    with pytest.raises(ArgumentError, match="two or more"):
        SimulatedGroup(STAR, hosts=[1])
