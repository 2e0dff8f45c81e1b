"""Memory beyond what one message carries: cut into pieces, still one operation. The limit is lowered for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport.communicator import Communicator, DataType, Span
from dlcp.transport.schedule import ALGORITHMS, ROOTED, Chunk, RankSchedule, Receive, Send, Space, build
from dlcp.transport.schedule.checker import check
from dlcp.transport.schedule_memory import Cut, compile_schedule, even_parts
from tests.support.ranks import PATIENCE_S, World

LIMIT_BYTES = 1 << 10
SIZE = 4


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(SIZE) as world:
        yield world


@pytest.fixture
def groups(world: World) -> list[Communicator]:
    groups = world.open()
    for group in groups:
        group._planner._limit_bytes = LIMIT_BYTES
    return groups


def counting(rank: int, count: int) -> np.ndarray:
    return (np.arange(count) % 7 + rank).astype(np.float32)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
@pytest.mark.parametrize("count", [10_000, 1025])
def test_all_reduce(world: World, groups: list[Communicator], algorithm: str, count: int) -> None:
    def one(group: Communicator) -> np.ndarray:
        data = counting(group.rank, count)
        work = group.all_reduce(Span.of(data), DataType.f32, algorithm=algorithm)
        work.wait(PATIENCE_S)
        assert group.sequence == 1
        return data

    for data in world.each(groups, one):
        np.testing.assert_array_equal(data, sum(counting(rank, count) for rank in range(SIZE)))


def test_moving_collectives_with_parts_long_and_short(world: World, groups: list[Communicator]) -> None:
    counts = [1000, 3, 0, 700]

    def one(group: Communicator) -> None:
        rank = group.rank
        own = counting(rank, counts[rank])
        gathered = [np.zeros(count, np.float32) for count in counts]
        group.all_gather([Span.of(each) for each in gathered], Span.of(own)).wait(PATIENCE_S)
        for other, each in enumerate(gathered):
            np.testing.assert_array_equal(each, counting(other, counts[other]))

        spans = [Span.of(np.zeros_like(each)) for each in gathered]
        back = np.zeros_like(own)
        group.gather(spans if rank == 1 else None, Span.of(own), 1).wait(PATIENCE_S)
        group.scatter(Span.of(back), spans if rank == 1 else None, 1).wait(PATIENCE_S)
        np.testing.assert_array_equal(back, own)

        inputs = [counting(rank, counts[(rank + other) % SIZE]) for other in range(SIZE)]
        outputs = [np.zeros(counts[(rank + other) % SIZE], np.float32) for other in range(SIZE)]
        group.all_to_all([Span.of(each) for each in outputs], [Span.of(each) for each in inputs]).wait(
            PATIENCE_S
        )
        for other, each in enumerate(outputs):
            np.testing.assert_array_equal(each, counting(other, counts[(rank + other) % SIZE]))

        data = counting(3, 5000) if rank == 3 else np.zeros(5000, np.float32)
        group.broadcast(Span.of(data), 3).wait(PATIENCE_S)
        np.testing.assert_array_equal(data, counting(3, 5000))

        reduced = counting(rank, 5000)
        group.reduce(Span.of(reduced), DataType.f32, root=2).wait(PATIENCE_S)
        if rank == 2:
            np.testing.assert_array_equal(reduced, sum(counting(other, 5000) for other in range(SIZE)))

        part = np.zeros(1000, np.float32)
        group.reduce_scatter(Span.of(part), Span.of(counting(rank, 4000)), DataType.f32).wait(PATIENCE_S)
        whole = sum(counting(other, 4000) for other in range(SIZE))
        np.testing.assert_array_equal(part, whole[1000 * rank : 1000 * (rank + 1)])

    world.each(groups, one)


# --- the cut itself -----------------------------------------------------------------------------------------


def pieces_of(schedules: list[RankSchedule]) -> list[tuple[int, int, int]]:
    return sorted(
        (op.peer, rank, op.message)
        for rank, s in enumerate(schedules)
        for op in s.operations
        if isinstance(op, Send)
    )


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [(collective, algorithm) for collective, known in ALGORITHMS.items() for algorithm in known],
)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_message_of_a_cut_schedule_has_its_receive(collective: str, algorithm: str, size: int) -> None:
    """All parts of one length, two and a half pieces each."""
    root = size - 1 if collective in ROOTED else 0
    whole = [build(collective, algorithm, size, rank, root) for rank in range(size)]
    cuts = [Cut(each, [160] * each.input_chunks, [160] * each.output_chunks, 64) for each in whole]
    sent = pieces_of([cut.schedule for cut in cuts])
    received = sorted(
        (rank, op.peer, op.message)
        for rank, cut in enumerate(cuts)
        for op in cut.schedule.operations
        if isinstance(op, Receive)
    )
    assert sent == received
    assert len(set(sent)) == len(sent) == 3 * len(pieces_of(whole))
    for rank, (each, cut) in enumerate(zip(whole, cuts, strict=True)):
        assert len(cut.schedule.operations) == 3 * len(each.operations)
        compile_schedule(cut.schedule, size, rank)  # which judges it, too
    if collective == "all_reduce":
        check([cut.schedule for cut in cuts], collective)


def test_parts_cover_the_memory_once() -> None:
    schedule = build("all_gather", "direct", 2, 0)
    cut = Cut(schedule, [130], [130, 0], 64)
    assert cut.inputs == [(0, 0, 64), (0, 64, 64), (0, 128, 2)]
    assert cut.outputs == [(0, 0, 64), (0, 64, 64), (0, 128, 2), (1, 0, 0)]


def test_scratch_is_cut_as_what_it_is_like() -> None:
    schedule = build("all_reduce", "one_shot", 2, 0)
    cut = Cut(schedule, [], [100], 64).schedule
    assert cut.scratch == (
        Chunk(Space.OUTPUT, 0),
        Chunk(Space.OUTPUT, 1),
        Chunk(Space.OUTPUT, 0),
        Chunk(Space.OUTPUT, 1),
    )


def test_what_no_numbers_are_left_for_is_refused() -> None:
    with pytest.raises(errors.LimitError, match="640000 bytes for one message .* use another algorithm"):
        Cut(build("broadcast", "direct", 2, 0, 0), [], [640_000], 64)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 4096])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_even_parts_follow_each_other(nbytes: int, parts: int) -> None:
    cut = even_parts(Span(4096, nbytes), parts, DataType.f32)
    assert len(cut) == parts
    assert sum(part.nbytes for part in cut) == nbytes
    at = 4096
    for part in cut:
        assert part.address == at
        at += part.nbytes
        assert part.nbytes <= cut[0].nbytes
        assert part.nbytes % 64 == 0 or at == 4096 + nbytes or nbytes % (4 * parts) == 0
