"""Bounded collectives over real endpoints that lose packets: mass, budgets, criticality, equal bits; reserved numbers.

What is judged is judged against both ends: values that arrived in the result, and blocks that either end says were
abandoned. A seed draws size, type, importance and budget.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dlcp import errors
from dlcp.transport.bounded import CRITICAL, Abandoned, CollectiveOutcome, LossRules
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from tests.support.ranks import World

Of = Callable[[int], World]
Values = npt.NDArray[Any]
TYPES = {DataType.f32: np.float32, DataType.f64: np.float64, DataType.i32: np.int32}


def contribution(rank: int, count: int, dtype: DataType, seed: int) -> Values:
    """Whole numbers, so that sums are exact in any order."""
    return np.random.default_rng([seed, rank]).integers(-1000, 1000, count).astype(TYPES[dtype])


def importance(
    group: Communicator, parts: list[tuple[int, int]], seed: int
) -> list[npt.NDArray[np.uint8] | None]:
    """Of a tenth of the blocks 255, of the others anything below."""
    drawn = np.random.default_rng([seed, group.rank])
    out: list[npt.NDArray[np.uint8] | None] = []
    for peer, (begin, end) in enumerate(parts):
        if peer == group.rank:
            out.append(None)
            continue
        blocks = -(-(end - begin) // group.block_bytes(peer))
        values = drawn.integers(0, 255, blocks).astype(np.uint8)
        values[drawn.random(blocks) < 0.1] = CRITICAL
        out.append(values)
    return out


def blocks_of(abandoned: Abandoned) -> list[int]:
    bits = np.unpackbits(abandoned.blocks.view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits)]


@pytest.fixture(scope="module")
def lossy() -> Any:
    """Four ranks over sockets that lose 5 % of what arrives."""
    with World(4, shm=False, inject_loss_ratio=0.05) as world:
        yield world


def exchange(
    world: World, size: int, seed: int, *, scatter: bool = False, rescale: bool = False
) -> tuple[list[Values], list[Values], list[CollectiveOutcome], list[list[Any]], DataType, float]:
    draw = random.Random(seed)
    dtype = DataType.f32 if rescale else draw.choice(list(TYPES))
    count = draw.choice([1, 63, 5000, 65537, 400_000])
    if scatter:
        count = -(-count // size) * size
    ratio = draw.choice([0.0, 0.01, 0.1, 0.6])
    inputs = [contribution(rank, count, dtype, seed) for rank in range(size)]

    def run(group: Communicator) -> tuple[Values, CollectiveOutcome, list[Any]]:
        source = inputs[group.rank].copy()
        nbytes = source.nbytes
        step = nbytes // size
        parts = [(i * step, (i + 1) * step) for i in range(size)] if scatter else group.parts(nbytes, dtype)
        marks = importance(group, parts, seed)
        rules = LossRules(ratio, marks, rescale, patience_s=draw.choice([None, 0.0, 1e-3]))
        output = np.full(count // size if scatter else count, 77, dtype=source.dtype)
        start = group.bounded_reduce_scatter if scatter else group.bounded_all_reduce
        work = start(Span.of(output), Span.of(source), dtype, Reduction.SUM, loss=rules)
        work.wait()
        assert (source == inputs[group.rank]).all(), f"seed={seed}: the input was written"
        return output, work.outcome, marks

    groups = world.open(range(size))
    try:
        results = world.each(groups, run)
    finally:
        world.each(groups, lambda group: group.close())
    outputs, outcomes, marks = (list(each) for each in zip(*results, strict=True))
    return inputs, outputs, outcomes, marks, dtype, ratio


def judge(
    size: int, outcomes: list[CollectiveOutcome], marks: list[list[Any]], ratio: float, seed: int
) -> int:
    """Both ends say the same, within budget, and no critical block was abandoned; returns how many were."""
    lost = 0
    for rank, outcome in enumerate(outcomes):
        for each in outcome.sent:
            other = [found for found in outcomes[each.peer].missing if found.peer == rank]
            assert len(other) == 1, f"seed={seed}"
            assert blocks_of(other[0]) == blocks_of(each), f"seed={seed}"
            assert each.nbytes <= ratio * each.message_bytes + 1, f"seed={seed}"
            for block in blocks_of(each):
                assert marks[rank][each.peer][block] != CRITICAL, (
                    f"seed={seed}: a critical block was abandoned"
                )
            assert each.nbytes == sum(end - begin for begin, end in each.ranges()), f"seed={seed}"
            lost += len(blocks_of(each))
        assert sum(len(blocks_of(each)) for each in outcome.missing) == sum(
            len(blocks_of(each)) for other in outcomes for each in other.sent if each.peer == rank
        ), f"seed={seed}"
    return lost


def kept(inputs: list[Values], outcomes: list[CollectiveOutcome]) -> Values:
    """What senders still hold, summed over ranks."""
    total = np.zeros_like(inputs[0])
    for values, outcome in zip(inputs, outcomes, strict=True):
        for each in outcome.sent:
            for begin, end in each.ranges():
                at = slice(begin // values.itemsize, end // values.itemsize)
                total[at] += values[at]
    return total


def test_all_reduce_under_loss_adds_what_is_not_named_as_abandoned(lossy: World) -> None:
    lost = 0
    for seed in range(40):
        size = 2 + seed % 3
        inputs, outputs, outcomes, marks, _, ratio = exchange(lossy, size, seed)
        lost += judge(size, outcomes, marks, ratio, seed)
        for output in outputs:
            assert output.tobytes() == outputs[0].tobytes(), f"seed={seed}: ranks differ"
        total = np.sum(inputs, axis=0, dtype=inputs[0].dtype)
        assert (outputs[0] + kept(inputs, outcomes) == total).all(), f"seed={seed}: mass"
    assert lost > 0, "nothing was lost, so nothing was shown"


def test_reduce_scatter_under_loss_adds_what_is_not_named_as_abandoned(lossy: World) -> None:
    lost = 0
    for seed in range(20):
        size = 2 + seed % 3
        inputs, outputs, outcomes, marks, _, ratio = exchange(lossy, size, seed, scatter=True)
        lost += judge(size, outcomes, marks, ratio, seed)
        total = np.sum(inputs, axis=0, dtype=inputs[0].dtype)
        assert (np.concatenate(outputs) + kept(inputs, outcomes) == total).all(), f"seed={seed}: mass"
    assert lost > 0, "nothing was lost, so nothing was shown"


def test_rescaled_sum_is_the_mean_of_what_came_times_the_ranks(lossy: World) -> None:
    lost = 0
    for seed in range(20):
        size = 2 + seed % 3
        inputs, outputs, outcomes, marks, _, ratio = exchange(lossy, size, seed, rescale=True)
        lost += judge(size, outcomes, marks, ratio, seed)
        total = np.sum(inputs, axis=0, dtype=np.float64) - kept(inputs, outcomes)
        came = np.full(inputs[0].shape, size)
        for outcome in outcomes:
            for each in outcome.sent:
                for begin, end in each.ranges():
                    came[begin // 4 : end // 4] -= 1
        np.testing.assert_allclose(outputs[0], total * size / came, rtol=1e-6, err_msg=f"seed={seed}")
        for output in outputs:
            assert output.tobytes() == outputs[0].tobytes(), f"seed={seed}: ranks differ"
    assert lost > 0, "nothing was lost, so nothing was shown"


def test_average_without_loss_is_that_of_the_plain_all_reduce(world: Of) -> None:
    ranks = world(3)
    groups = ranks.open()
    values = [np.random.default_rng(rank).standard_normal(10_001).astype(np.float32) for rank in range(3)]

    def run(group: Communicator) -> tuple[Values, Values]:
        plain, bounded = values[group.rank].copy(), np.zeros(10_001, np.float32)
        source = values[group.rank].copy()
        group.all_reduce(Span.of(plain), DataType.f32, Reduction.AVG, algorithm="direct").wait()
        work = group.bounded_all_reduce(
            Span.of(bounded), Span.of(source), DataType.f32, Reduction.AVG, loss=LossRules(0.5)
        )
        work.wait()
        assert work.outcome.abandoned_bytes == 0
        return plain, bounded

    for plain, bounded in ranks.each(groups, run):
        assert plain.tobytes() == bounded.tobytes()


def test_group_of_one_copies(world: Of) -> None:
    ranks = world(1)
    (group,) = ranks.open()
    source, output = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    work = group.bounded_all_reduce(
        Span.of(output), Span.of(source), DataType.f32, Reduction.AVG, loss=LossRules(0.5)
    )
    work.wait()
    assert (output == source).all()
    assert work.outcome == CollectiveOutcome((), (), 0, 0, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss_ratio": 1.0}, "loss_ratio is 1"),
        ({"loss_ratio": -0.1}, "loss_ratio is -0.1"),
        ({"importance": [None]}, "importance has 1 entries"),
        ({"importance": [np.zeros(9999, np.uint8)] * 2}, "9999 entries"),
        ({"deadline_s": -1.0}, "deadline"),
        ({"patience_s": -1.0}, "patience"),
        ({"patience_s": 0.1, "deadline_s": 0.1}, "accepted: one of them"),
    ],
)
def test_wrong_rules_raise_and_start_nothing(world: Of, change: dict[str, Any], words: str) -> None:
    groups = world(2).open()
    source, output = np.zeros(5000, np.float32), np.zeros(5000, np.float32)

    def run(group: Communicator) -> None:
        def start() -> None:
            rules = LossRules(**({"loss_ratio": 0.1} | change))
            group.bounded_all_reduce(Span.of(output), Span.of(source), DataType.f32, loss=rules)

        with pytest.raises(errors.ArgumentError, match=words):
            start()
        assert group.sequence == 0

    world(2).each(groups, run)


def test_overlap_of_output_and_input_raises(world: Of) -> None:
    groups = world(2).open()
    values = np.zeros(1000, np.float32)

    def run(group: Communicator) -> None:
        with pytest.raises(errors.ArgumentError, match="overlap"):
            group.bounded_all_reduce(Span.of(values), Span.of(values), DataType.f32, loss=LossRules(0.1))

    world(2).each(groups, run)


def test_outcome_of_a_plain_collective_raises(world: Of) -> None:
    groups = world(2).open()

    def run(group: Communicator) -> None:
        work = group.barrier()
        work.wait()
        with pytest.raises(errors.DlcpError, match="no outcome"):
            _ = work.outcome

    world(2).each(groups, run)


def test_reserved_numbers_may_be_used_in_any_order(world: Of) -> None:
    ranks = world(3)
    groups = ranks.open()

    def run(group: Communicator) -> list[Values]:
        order = list(range(20))
        random.Random(group.rank).shuffle(order)
        group.barrier().wait()
        first = group.reserve(20)
        values = [np.full(100 + i, group.rank + i, np.float32) for i in range(20)]
        works = [
            group.all_reduce(Span.of(values[i]), DataType.f32, sequence=first + i, keep=values) for i in order
        ]
        group.barrier().wait()
        for work in works:
            work.wait()
        return values

    for values in ranks.each(groups, run):
        for i, value in enumerate(values):
            assert (value == 3 * i + 3).all()


def test_long_messages_of_droppable_blocks_alone_end(lossy: World) -> None:
    groups = lossy.open(range(2))
    count = 4 << 20

    def run(group: Communicator) -> int:
        source, output = np.ones(count, np.float32), np.zeros(count, np.float32)
        marks: list[Any] = [
            np.full(-(-(end - begin) // group.block_bytes(peer)), 128, np.uint8)
            if peer != group.rank
            else None
            for peer, (begin, end) in enumerate(group.parts(source.nbytes, DataType.f32))
        ]
        work = group.bounded_all_reduce(
            Span.of(output), Span.of(source), DataType.f32, loss=LossRules(0.05, marks)
        )
        work.wait()
        return work.outcome.abandoned_bytes

    assert sum(lossy.each(groups, run)) > 0
