"""Schedules that may lose: a loss takes one rank's contribution out of one block, alike at all ranks; nothing else."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.transport.schedule import Chunk, Combine, Operation, RankSchedule, Receive, Send, Space
from dlcp.transport.schedule.checker import ScheduleError, check
from dlcp.transport.schedule.interpreter import Lost, run
from dlcp.transport.schedule.layout import BOUNDED, layout
from tests.support.schedules import PAIRS, Memory, build_all, make_memory

IN, OUT, TMP = Space.INPUT, Space.OUTPUT, Space.SCRATCH

Array = npt.NDArray[np.int64]
Schedules = list[RankSchedule]

LOSSY_PAIRS = [pair for pair in PAIRS if pair[0] in BOUNDED]
BLOCK_ELEMENTS = 2


def test_collectives_that_may_lose_are_the_bounded_ones() -> None:
    lossy = {
        collective
        for collective, algorithm in PAIRS
        if any(
            not isinstance(operation, Combine) and operation.lossy
            for schedule in build_all(collective, algorithm, 4)
            for operation in schedule.operations
        )
    }
    assert lossy == BOUNDED


# --- what comes out when blocks are lost ----------------------------------------------------------------------


def owner_losses(schedules: Sequence[RankSchedule], lost: Lost) -> Callable[[int, int, int], bool]:
    """Of (rank, part, block): whether the rank's contribution to it is abandoned on its way to the part's owner."""
    messages = {
        (rank, operation.source.index): (operation.peer, operation.message)
        for rank, schedule in enumerate(schedules)
        for operation in schedule.operations
        if isinstance(operation, Send) and operation.lossy
    }

    def is_lost(rank: int, part: int, block: int) -> bool:
        return (rank, part) in messages and lost(rank, *messages[rank, part], block)

    return is_lost


def expect_present_sums(
    schedules: Schedules, collective: str, memory: Memory, before: Sequence[Sequence[Array]], lost: Lost
) -> None:
    """Every output is the sum of what came, block by block; the contributions are all still there."""
    world_size = len(schedules)
    is_lost = owner_losses(schedules, lost)
    for rank in range(world_size):
        roles = layout(collective, world_size, rank, 0, schedules[rank].output_chunks).outputs
        for role, got in zip(roles, memory.outputs[rank], strict=True):
            wanted = np.zeros_like(got)
            for other in range(world_size):
                for first in range(0, len(got), BLOCK_ELEMENTS):
                    if not is_lost(other, role.part, first // BLOCK_ELEMENTS):
                        block = slice(first, first + BLOCK_ELEMENTS)
                        wanted[block] += before[other][role.part][block]
            np.testing.assert_array_equal(got, wanted)
        for now, then in zip(memory.inputs[rank], before[rank], strict=True):
            np.testing.assert_array_equal(now, then)


def run_with_losses(schedules: Schedules, collective: str, lost: Lost, seed: int) -> None:
    memory = make_memory(schedules, collective, 0, seed=seed, elements_max=9)
    before = [[chunk.copy() for chunk in chunks] for chunks in memory.inputs]
    run(schedules, memory.inputs, memory.outputs, lost=lost, block_elements=BLOCK_ELEMENTS, seed=seed)
    expect_present_sums(schedules, collective, memory, before, lost)


def random_losses(seed: int, ratio: float) -> Lost:
    def lost(*block: int) -> bool:
        return random.Random(repr((seed, block))).random() < ratio

    return lost


@pytest.mark.parametrize(("collective", "algorithm"), LOSSY_PAIRS)
@given(world_size=st.integers(1, 9), seed=st.integers(0, 2**32 - 1), ratio=st.sampled_from([0.1, 0.5, 1.0]))
def test_output_is_the_sum_of_what_came(
    collective: str, algorithm: str, world_size: int, seed: int, ratio: float
) -> None:
    run_with_losses(
        build_all(collective, algorithm, world_size), collective, random_losses(seed, ratio), seed
    )


@pytest.mark.parametrize(("collective", "algorithm"), LOSSY_PAIRS)
def test_every_set_of_lost_messages_of_three_ranks(collective: str, algorithm: str) -> None:
    schedules = build_all(collective, algorithm, 3)
    pairs = [(sender, receiver) for sender in range(3) for receiver in range(3) if sender != receiver]
    for gone in itertools.product((False, True), repeat=len(pairs)):
        by_pair = dict(zip(pairs, gone, strict=True))
        run_with_losses(schedules, collective, lambda s, r, _m, _b, by_pair=by_pair: by_pair[s, r], seed=1)  # type: ignore[misc]


@pytest.mark.parametrize(("collective", "algorithm"), LOSSY_PAIRS)
@given(world_size=st.integers(2, 7), seed=st.integers(0, 2**32 - 1))
def test_rescaled_result_is_divided_by_what_came(
    collective: str, algorithm: str, world_size: int, seed: int
) -> None:
    schedules = build_all(collective, algorithm, world_size)
    lost = random_losses(seed, 0.4)
    is_lost = owner_losses(schedules, lost)
    memory = make_memory(schedules, collective, 0, seed=seed, dtype=np.float64)
    run(
        schedules,
        memory.inputs,
        memory.outputs,
        lost=lost,
        rescale=lambda total, came: total / came,
        block_elements=BLOCK_ELEMENTS,
        seed=seed,
    )
    for rank in range(world_size):
        roles = layout(collective, world_size, rank, 0, schedules[rank].output_chunks).outputs
        for role, got in zip(roles, memory.outputs[rank], strict=True):
            for i, value in enumerate(got):
                came = [
                    memory.inputs[other][role.part][i]
                    for other in range(world_size)
                    if not is_lost(other, role.part, i // BLOCK_ELEMENTS)
                ]
                np.testing.assert_allclose(value, np.mean(came), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("collective", "algorithm"), LOSSY_PAIRS)
def test_nothing_lost_has_the_bits_of_the_reliable_one(collective: str, algorithm: str) -> None:
    """Where all comes, whoever chose the bounded one has lost nothing by it."""
    plain = collective.removeprefix("bounded_")
    results = []
    for name in (collective, plain):
        schedules = build_all(name, algorithm, 5)
        memory = make_memory(
            build_all(collective, algorithm, 5), collective, 0, seed=3, dtype=np.float32, elements_max=40
        )
        if plain == "all_reduce" and name == plain:
            memory = Memory([[] for _ in schedules], memory.inputs, memory.wanted)
        run(schedules, memory.inputs, memory.outputs, lost=lambda *_: False, seed=3)
        results.append([[chunk.tobytes() for chunk in chunks] for chunks in memory.outputs])
    assert results[0] == results[1]


# --- what is refused ----------------------------------------------------------------------------------------


def flip_losses(schedules: Schedules, chosen: Callable[[Send], bool]) -> Schedules:
    """The same, with the loss of chosen messages allowed, or not any more, at both ends."""
    ends = {
        (rank, operation.peer, operation.message)
        for rank, schedule in enumerate(schedules)
        for operation in schedule.operations
        if isinstance(operation, Send) and chosen(operation)
    }

    def flipped(rank: int, operation: Operation) -> Operation:
        match operation:
            case Send(peer=peer, message=message) if (rank, peer, message) in ends:
                return operation._replace(lossy=not operation.lossy)
            case Receive(peer=peer, message=message) if (peer, rank, message) in ends:
                return operation._replace(lossy=not operation.lossy)
        return operation

    return [
        replace(schedule, operations=tuple(flipped(rank, operation) for operation in schedule.operations))
        for rank, schedule in enumerate(schedules)
    ]


def test_loss_on_the_way_back_is_refused_and_makes_ranks_differ() -> None:
    schedules = flip_losses(
        build_all("bounded_all_reduce", "direct", 3), lambda send: send.source.space is OUT
    )
    with pytest.raises(
        ScheduleError,
        match=r"rank 2, .*\(Send OUTPUT 2 to 0, message 1, lossy\): is lossy, but carries the contribution of "
        r"ranks 0, 1, 2, computed: a loss may cost the sender's own alone",
    ):
        check(schedules, "bounded_all_reduce")

    # It is no idle complaint.
    memory = make_memory(schedules, "bounded_all_reduce", 0, seed=2)
    run(schedules, memory.inputs, memory.outputs, lost=lambda s, _r, m, _b: (s, m) == (0, 1), seed=2)
    assert memory.outputs[0][0].tobytes() != memory.outputs[1][0].tobytes()


def one_to_all(lossy: bool) -> Schedules:
    """Each rank sends its contribution to all, who add by themselves: a reduction of one part, in one hop."""
    schedules = []
    for rank in range(3):
        peers = [(rank + distance) % 3 for distance in (1, 2)]
        parts = [Chunk(IN, part) for part in range(3)]
        operations: list[Operation] = []
        scratch: dict[tuple[int, int], Chunk] = {}
        for part in range(3):
            operations += [Send(peer, part, parts[part], lossy) for peer in peers]
        for part in range(3):
            for peer in peers:
                scratch[peer, part] = Chunk(TMP, len(scratch))
                operations.append(Receive(peer, part, scratch[peer, part], lossy=lossy))
        for part in range(3):
            operands = [parts[part] if other == rank else scratch[other, part] for other in range(3)]
            operations.append(Combine(Chunk(OUT, part), tuple(operands), True))
        like = tuple(Chunk(IN, part) for _, part in scratch)
        schedules.append(RankSchedule(3, 3, like, tuple(operations)))
    return schedules


def test_loss_that_ranks_see_apart_is_refused_and_makes_them_differ() -> None:
    check(one_to_all(lossy=False), "bounded_all_reduce")
    schedules = one_to_all(lossy=True)
    with pytest.raises(
        ScheduleError,
        match=r"rank 1, OUTPUT 0, .*: differs from rank 0's if a block is lost of rank 0, .*lossy\)",
    ):
        check(schedules, "bounded_all_reduce")
    memory = make_memory(schedules, "bounded_all_reduce", 0, seed=2)
    run(schedules, memory.inputs, memory.outputs, lost=lambda s, r, _m, _b: (s, r) == (0, 1), seed=2)
    assert memory.outputs[0][0].tobytes() != memory.outputs[1][0].tobytes()


def chain(forward_lossy: bool, first_lossy: bool) -> Schedules:
    """Part 0 goes from rank 1 by rank 2 to rank 0, and each adds to it; other parts go straight."""
    parts = [Chunk(IN, part) for part in range(3)]
    result, first, second = Chunk(OUT, 0), Chunk(TMP, 0), Chunk(TMP, 1)
    straight: dict[int, list[Operation]] = {
        rank: [Send(part, int((rank, part) == (1, 2)), parts[part], True) for part in (1, 2) if part != rank]
        for rank in range(3)
    }
    own: dict[int, list[Operation]] = {0: []}
    for rank in (1, 2):
        others = [other for other in range(3) if other != rank]
        own[rank] = [
            Receive(other, int((other, rank) == (1, 2)), Chunk(TMP, i), lossy=True)
            for i, other in enumerate(others)
        ]
        own[rank].append(Combine(result, (parts[rank], first, second), True))
    return [
        RankSchedule(
            3,
            1,
            (parts[0],),
            (
                *straight[0],
                Receive(2, 0, first, lossy=forward_lossy),
                Combine(result, (parts[0], first), True),
            ),
        ),
        RankSchedule(3, 1, (parts[1], parts[1]), (Send(2, 0, parts[0], first_lossy), *straight[1], *own[1])),
        RankSchedule(
            3,
            1,
            (parts[2], parts[2], parts[0], parts[0]),
            (
                *straight[2],
                Receive(1, 0, Chunk(TMP, 2), lossy=first_lossy),
                Combine(Chunk(TMP, 3), (parts[0], Chunk(TMP, 2))),
                Send(0, 0, Chunk(TMP, 3), forward_lossy),
                *own[2],
            ),
        ),
    ]


def test_loss_of_more_than_the_sender_s_own_is_refused() -> None:
    check(chain(forward_lossy=False, first_lossy=False), "bounded_reduce_scatter")
    with pytest.raises(
        ScheduleError,
        match=r"rank 2, .*\(Send SCRATCH 3 to 0.*lossy\): is lossy, but carries .* ranks 1, 2, computed",
    ):
        check(chain(forward_lossy=True, first_lossy=False), "bounded_reduce_scatter")


def test_loss_that_whoever_completes_a_result_does_not_see_is_refused() -> None:
    with pytest.raises(
        ScheduleError,
        match=r"rank 2, .*: computes with what came of rank 2, .*, but is not the one to complete it",
    ):
        check(chain(forward_lossy=False, first_lossy=True), "bounded_reduce_scatter")


def test_loss_of_what_is_not_kept_is_refused() -> None:
    """Sent from a copy in scratch, which another collective's scratch is by the time the loss is known."""
    schedules = build_all("bounded_reduce_scatter", "direct", 3)
    send = schedules[1].operations[0]
    assert isinstance(send, Send)
    copy = Chunk(TMP, len(schedules[1].scratch))
    schedules[1] = replace(
        schedules[1],
        scratch=(*schedules[1].scratch, send.source),
        operations=(Combine(copy, (send.source,)), send._replace(source=copy), *schedules[1].operations[1:]),
    )
    with pytest.raises(
        ScheduleError,
        match=r"rank 1, operation 1 .*: is lossy, but SCRATCH 1 may be gone when its loss is known",
    ):
        check(schedules, "bounded_reduce_scatter")


def test_loss_that_one_end_knows_of_is_refused() -> None:
    schedules = build_all("bounded_all_reduce", "direct", 3)
    receive = schedules[2].operations[2]
    assert isinstance(receive, Receive)
    changed = (*schedules[2].operations[:2], receive._replace(lossy=False), *schedules[2].operations[3:])
    schedules[2] = replace(schedules[2], operations=changed)
    with pytest.raises(
        ScheduleError, match=r"rank 0, .*lossy\): is lossy, but rank 2, operation 2 \(.*\) is not"
    ):
        check(schedules, "bounded_all_reduce")


def test_loss_in_a_receive_that_adds_to_what_came_is_refused() -> None:
    """The executor tells what came by operation, so one may not stand for several losses."""
    schedules = build_all("bounded_reduce_scatter", "direct", 3)
    own, output, first = Chunk(IN, 0), Chunk(OUT, 0), Chunk(TMP, 0)
    receives = (Receive(1, 0, first, own, False, True), Receive(2, 0, output, first, True, True))
    schedules[0] = replace(schedules[0], scratch=(own,), operations=(*schedules[0].operations[:2], *receives))
    with pytest.raises(
        ScheduleError, match=r"rank 0, operation 3 .*: is lossy, but its operand is not there at the start"
    ):
        check(schedules, "bounded_reduce_scatter")


@pytest.mark.parametrize(
    ("collective", "algorithm"), [pair for pair in PAIRS if pair[0] not in BOUNDED], ids="-".join
)
def test_other_collectives_may_lose_nothing(collective: str, algorithm: str) -> None:
    schedules = flip_losses(build_all(collective, algorithm, 4), lambda send: True)
    with pytest.raises(ScheduleError, match=f"is lossy; {collective} may lose nothing"):
        check(schedules, collective)


def test_fewer_messages_may_be_lossy() -> None:
    schedules = flip_losses(
        build_all("bounded_all_reduce", "direct", 4), lambda send: send.lossy and send.peer == 1
    )
    check(schedules, "bounded_all_reduce")
    run_with_losses(schedules, "bounded_all_reduce", lambda *_: True, seed=5)


# --- what is accepted is right --------------------------------------------------------------------------------


@st.composite
def changed_schedules(draw: st.DrawFn) -> tuple[str, Schedules]:
    """A right schedule with the losses of some messages flipped and operations of a rank moved and changed."""
    collective = draw(st.sampled_from(sorted(BOUNDED)))
    schedules = build_all(collective, "direct", draw(st.integers(2, 4)))
    if draw(st.booleans()):
        chosen = draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=3))
        schedules = flip_losses(schedules, lambda send: (send.peer, send.message) in chosen)
    rank = draw(st.integers(0, len(schedules) - 1))
    operations = list(schedules[rank].operations)
    for _ in range(draw(st.integers(0, 3))):
        operations.insert(
            draw(st.integers(0, len(operations) - 1)),
            operations.pop(draw(st.integers(0, len(operations) - 1))),
        )
    if draw(st.booleans()):
        step = draw(st.integers(0, len(operations) - 1))
        operation = operations[step]
        chunk = Chunk(draw(st.sampled_from(list(Space))), draw(st.integers(0, 3)))
        match operation:
            case Send():
                operations[step] = operation._replace(source=chunk)
            case Receive():
                operations[step] = operation._replace(target=chunk)
            case Combine():
                position = draw(st.integers(0, len(operation.operands)))
                if position == len(operation.operands):
                    operations[step] = operation._replace(target=chunk)
                else:
                    operands = list(operation.operands)
                    operands[position] = chunk
                    operations[step] = operation._replace(operands=tuple(operands))
    schedules[rank] = replace(schedules[rank], operations=tuple(operations))
    return collective, schedules


@settings(max_examples=600)
@given(changed_schedules())
def test_accepted_schedules_lose_no_more_than_they_may(case: tuple[str, Schedules]) -> None:
    collective, schedules = case
    try:
        check(schedules, collective)
    except ScheduleError:
        return
    for seed, ratio in enumerate((0.0, 0.4, 1.0)):
        run_with_losses(schedules, collective, random_losses(seed, ratio), seed)
