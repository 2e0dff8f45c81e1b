"""The checker finds every kind of fault, and what it accepts the interpreter gets right in any order of arrival."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.transport.schedule import Chunk, Combine, Operation, RankSchedule, Receive, Send, Space
from dlcp.transport.schedule.checker import ScheduleError, check
from dlcp.transport.schedule.interpreter import run
from dlcp.transport.schedule.layout import REDUCING
from tests.support.schedules import PAIRS, build_all, make_memory

IN, OUT, TMP = Space.INPUT, Space.OUTPUT, Space.SCRATCH

Schedules = list[RankSchedule]


def with_operations(schedules: Schedules, rank: int, operations: list[Operation]) -> Schedules:
    changed = replace(schedules[rank], operations=tuple(operations))
    return [changed if r == rank else schedule for r, schedule in enumerate(schedules)]


def with_operation(schedules: Schedules, rank: int, step: int, operation: Operation | None) -> Schedules:
    """One operation replaced, or left out."""
    operations = list(schedules[rank].operations)
    operations[step : step + 1] = [] if operation is None else [operation]
    return with_operations(schedules, rank, operations)


def each_operation(schedules: Schedules) -> Iterator[tuple[int, int, Operation]]:
    for rank, schedule in enumerate(schedules):
        for step, operation in enumerate(schedule.operations):
            yield rank, step, operation


# --- one fault at every place -------------------------------------------------------------------------------


def left_out(operation: Operation) -> Iterator[Operation | None]:
    yield None


def other_peer(operation: Operation) -> Iterator[Operation]:
    if not isinstance(operation, Combine):
        yield operation._replace(peer=(operation.peer + 1) % 5)


def other_message(operation: Operation) -> Iterator[Operation]:
    if not isinstance(operation, Combine):
        yield operation._replace(message=operation.message + 1)


def final_inverted(operation: Operation) -> Iterator[Operation]:
    if not isinstance(operation, Send):
        yield operation._replace(final=not operation.final)


def lossy_inverted(operation: Operation) -> Iterator[Operation]:
    if not isinstance(operation, Combine):
        yield operation._replace(lossy=not operation.lossy)


def other_chunk(operation: Operation) -> Iterator[Operation]:
    def next_to(chunk: Chunk) -> Chunk:
        return chunk._replace(index=chunk.index + 1)

    match operation:
        case Send():
            yield operation._replace(source=next_to(operation.source))
        case Receive():
            yield operation._replace(target=next_to(operation.target))
            if operation.operand is not None:
                yield operation._replace(operand=next_to(operation.operand))
        case Combine():
            yield operation._replace(target=next_to(operation.target))
            for i, operand in enumerate(operation.operands):
                changed = (*operation.operands[:i], next_to(operand), *operation.operands[i + 1 :])
                yield operation._replace(operands=changed)


def operand_left_out_or_twice(operation: Operation) -> Iterator[Operation]:
    match operation:
        case Receive() if operation.operand is not None:
            yield operation._replace(operand=None)
        case Combine():
            yield operation._replace(operands=operation.operands[1:])
            yield operation._replace(operands=operation.operands + operation.operands[:1])


def is_refused(schedules: Schedules, collective: str, root: int) -> bool:
    try:
        check(schedules, collective, root)
    except ScheduleError:
        return True
    return False


FAULTS = [
    left_out,
    other_peer,
    other_message,
    final_inverted,
    lossy_inverted,
    other_chunk,
    operand_left_out_or_twice,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_fault_anywhere_is_found(
    collective: str, algorithm: str, fault: Callable[[Operation], Iterator[Operation | None]]
) -> None:
    schedules = build_all(collective, algorithm, 5, root=2)
    check(schedules, collective, 2)
    for rank, step, operation in each_operation(schedules):
        for changed in fault(operation):
            what = f"rank {rank}, operation {step}: {operation} as {changed}"
            assert is_refused(with_operation(schedules, rank, step, changed), collective, 2), what


# --- what is accepted is right ------------------------------------------------------------------------------


@st.composite
def changed_schedules(draw: st.DrawFn) -> tuple[str, int, Schedules]:
    """A right schedule with its operations moved about and one of its chunks exchanged, at one rank."""
    collective, algorithm = draw(st.sampled_from(PAIRS))
    world_size = draw(st.integers(2, 5))
    root = draw(st.integers(0, world_size - 1))
    schedules = build_all(collective, algorithm, world_size, root)
    rank = draw(st.integers(0, world_size - 1))
    operations = list(schedules[rank].operations)
    for _ in range(draw(st.integers(1, 3))):
        operations.insert(
            draw(st.integers(0, len(operations) - 1)),
            operations.pop(draw(st.integers(0, len(operations) - 1))),
        )
    if draw(st.booleans()):
        changes = [c for step, op in enumerate(operations) for o in other_chunk(op) for c in [(step, o)]]
        step, changed = draw(st.sampled_from(changes))
        operations[step] = changed
    return collective, root, with_operations(schedules, rank, operations)


@settings(max_examples=400)
@given(changed_schedules())
def test_accepted_schedules_give_the_right_result(case: tuple[str, int, Schedules]) -> None:
    collective, root, schedules = case
    if is_refused(schedules, collective, root):
        return
    for seed in range(3):
        memory = make_memory(schedules, collective, root, seed=seed, elements_max=3, in_place=seed == 1)
        run(schedules, memory.inputs, memory.outputs, block_elements=2, seed=seed)
        for rank, wanted in enumerate(memory.wanted):
            for got, want in zip(memory.outputs[rank], wanted, strict=True):
                np.testing.assert_array_equal(got, want)


# --- each complaint, by its text ----------------------------------------------------------------------------


def pair(first: list[Operation], second: list[Operation], scratch: int = 0) -> Schedules:
    """An all-reduce of one chunk between two ranks."""
    like = tuple(Chunk(OUT, 0) for _ in range(scratch))
    return [RankSchedule(0, 1, like, tuple(first)), RankSchedule(0, 1, like, tuple(second))]


def test_overwriting_what_is_still_sent_is_found() -> None:
    o, t, copy = Chunk(OUT, 0), Chunk(TMP, 0), Chunk(TMP, 1)
    schedules = pair(
        [Send(1, 0, o), Receive(1, 0, t), Combine(o, (o, t), True)],
        [Combine(copy, (o,)), Send(0, 0, copy), Receive(0, 0, t), Combine(o, (t, copy), True)],
        scratch=2,
    )
    text = (
        "rank 0, operation 2 (Combine OUTPUT 0 + SCRATCH 0 into OUTPUT 0, final): may overwrite OUTPUT 0 "
        "before rank 0, operation 0 (Send OUTPUT 0 to 1, message 0) is through with it"
    )
    with pytest.raises(ScheduleError, match=re.escape(text)):
        check(schedules, "all_reduce")

    # It is no idle complaint: the result depends on the order of arrival.
    results = set()
    for seed in range(20):
        outputs = [[np.array([1])], [np.array([2])]]
        run(schedules, [[], []], outputs, seed=seed)
        results.add((int(outputs[0][0][0]), int(outputs[1][0][0])))
    assert results == {(3, 3), (3, 5)}


def test_overwriting_what_a_local_operation_has_yet_to_read_is_found() -> None:
    """A message may arrive before an operation that stands before its receive has run."""
    o, first, second, third = Chunk(OUT, 0), Chunk(TMP, 0), Chunk(TMP, 1), Chunk(TMP, 2)
    one: list[Operation] = [
        Combine(first, (o,)),
        Send(1, 0, first),
        Receive(1, 0, second),
        Combine(third, (first, second), True),
        Receive(1, 1, second),  # may come before the combination has read what it replaces
        Combine(o, (third,)),
    ]
    other: list[Operation] = [
        Combine(first, (o,)),
        Send(0, 0, first),
        Send(0, 1, first),
        Receive(0, 0, second),
        Combine(o, (second, first), True),
    ]
    with pytest.raises(
        ScheduleError, match=r"operation 4 .* may overwrite SCRATCH 1 before rank 0, operation 3"
    ):
        check(pair(one, other, scratch=3), "all_reduce")


def test_two_messages_into_one_place_are_found() -> None:
    """Nothing says which of them comes last."""
    o = Chunk(OUT, 0)
    schedules = [
        RankSchedule(0, 1, (), (Send(1, 0, o), Send(1, 1, o))),
        RankSchedule(0, 1, (), (Receive(0, 0, o), Receive(0, 1, o))),
    ]
    with pytest.raises(ScheduleError, match=r"may overwrite OUTPUT 0 before rank 1, operation 0"):
        check(schedules, "broadcast")


def test_circle_is_found() -> None:
    o, t = Chunk(OUT, 0), Chunk(TMP, 0)
    operations: list[list[Operation]] = [
        [Receive(1 - rank, 0, t), Send(1 - rank, 0, t), Combine(o, (o, t), True)] for rank in (0, 1)
    ]
    with pytest.raises(ScheduleError, match=r"waits for itself, through rank"):
        check(pair(*operations, scratch=1), "all_reduce")


def test_other_order_of_addition_is_found() -> None:
    schedules = build_all("all_reduce", "one_shot", 3)
    last = schedules[1].operations[-1]
    assert isinstance(last, Combine)
    turned = last._replace(operands=last.operands[::-1])
    with pytest.raises(
        ScheduleError, match=r"rank 1, OUTPUT 0, .*: is added up in another order than at rank 0"
    ):
        check(with_operation(schedules, 1, len(schedules[1].operations) - 1, turned), "all_reduce")


def ring_with(step: int, changed: Operation | None) -> Schedules:
    return with_operation(build_all("all_reduce", "ring", 3), 1, step, changed)


FAR = Chunk(OUT, 9)


@pytest.mark.parametrize(
    ("schedules", "text"),
    [
        (ring_with(6, None), r"rank 2, operation 7 \(Receive from 1.*\): rank 1 does not send it"),
        (ring_with(1, None), r"rank 0, operation 0 \(Send .*\): rank 1 does not receive it"),
        (ring_with(0, Send(1, 0, Chunk(OUT, 0))), "peer 1 is not another rank below 3"),
        (ring_with(0, Send(3, 0, Chunk(OUT, 0))), "peer 3 is not another rank below 3"),
        (ring_with(0, Send(2, 4096, Chunk(OUT, 0))), "message 4096 is out of range: 0 to 4095"),
        (ring_with(0, Send(2, 1, Chunk(OUT, 0))), "message 1 is also that of rank 1, operation 0"),
        (ring_with(0, Send(2, 0, FAR)), "reads OUTPUT 9, which is not there"),
        (ring_with(0, Send(2, 0, Chunk(OUT, 2))), "is received into another size: rank 2, operation 1"),
        (ring_with(1, Receive(0, 0, FAR)), "writes OUTPUT 9, which is not there"),
        (
            ring_with(1, Receive(0, 0, Chunk(OUT, 2), Chunk(OUT, 1))),
            "OUTPUT 2 is of another size than what becomes it",
        ),
        (ring_with(0, Combine(Chunk(OUT, 0), ())), "combines nothing"),
        (
            ring_with(0, Combine(Chunk(OUT, 0), (Chunk(OUT, 0), Chunk(OUT, 1)))),
            "OUTPUT 1 is of another size than what it is combined with",
        ),
        (ring_with(3, Receive(0, 1, Chunk(OUT, 1), Chunk(OUT, 1))), "no operation on its way is final"),
        (
            ring_with(1, Receive(0, 0, Chunk(OUT, 2), Chunk(OUT, 2), True)),
            "is final but lacks the contribution of rank 2",
        ),
        (ring_with(5, Receive(0, 2, Chunk(OUT, 0), None, True)), "adds to, or divides, what was final"),
    ],
)
def test_complaint_names_operation_and_fault(schedules: Schedules, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        check(schedules, "all_reduce")


def test_contribution_that_comes_twice_is_found() -> None:
    i, o, t = Chunk(IN, 0), Chunk(OUT, 0), Chunk(TMP, 0)
    schedules = [
        RankSchedule(1, 1, (i,), (Receive(1, 0, t, i), Receive(2, 0, o, t, True))),
        RankSchedule(1, 0, (i,), (Send(0, 0, i), Send(2, 0, i))),
        RankSchedule(1, 0, (i,), (Receive(1, 0, t, i), Send(0, 0, t))),
    ]
    with pytest.raises(ScheduleError, match="adds the contribution of rank 1 twice"):
        check(schedules, "reduce")


def test_sparse_numbers_are_found() -> None:
    o = Chunk(OUT, 0)
    schedules = [RankSchedule(0, 1, (), (Send(1, 1, o),)), RankSchedule(0, 1, (), (Receive(0, 1, o),))]
    with pytest.raises(ScheduleError, match="messages to rank 1 are not numbered densely"):
        check(schedules, "broadcast")


def test_wrong_origin_is_found() -> None:
    """A gather of the right sizes that hands one rank's contribution out as another's does not pass."""
    i = Chunk(IN, 0)
    o = Chunk(OUT, 0)
    schedules = [
        RankSchedule(0, 1, (), (Send(1, 0, o),)),
        RankSchedule(0, 1, (), (Receive(0, 0, o),)),
    ]
    with pytest.raises(ScheduleError, match="reads OUTPUT 0, where nothing has been written"):
        check(schedules, "broadcast", root=1)
    schedules = [
        RankSchedule(1, 1, (), (Receive(1, 0, o, i, True), Combine(o, (i,)))),
        RankSchedule(1, 0, (), (Send(0, 0, i),)),
    ]
    with pytest.raises(ScheduleError, match="rank 0, OUTPUT 0, .*: lacks the contribution of rank 1"):
        check(schedules, "reduce")


def test_nothing_written_is_found() -> None:
    schedules = [
        RankSchedule(1, 2, (), (Combine(Chunk(OUT, 0), (Chunk(IN, 0),)),)),
        RankSchedule(1, 0, (), ()),
    ]
    with pytest.raises(ScheduleError, match="rank 0, OUTPUT 1: nothing is written there"):
        check(schedules, "gather")


def test_writing_to_the_input_is_found() -> None:
    schedules = build_all("reduce_scatter", "ring", 3)
    receive = schedules[0].operations[1]
    assert isinstance(receive, Receive)
    changed = receive._replace(target=receive.operand)
    with pytest.raises(ScheduleError, match="writes to the input"):
        check(with_operation(schedules, 0, 1, changed), "reduce_scatter")


def test_overwriting_an_input_that_is_the_output_is_found() -> None:
    """Right where input and output lie apart; wrong where the sum lies in this rank's part of the input."""
    i, o, t = Chunk(IN, 0), Chunk(OUT, 0), Chunk(TMP, 0)
    late = [
        RankSchedule(1, 1, (i,), (Receive(1, 0, o), Combine(t, (o, i), True), Combine(o, (t,)))),
        RankSchedule(1, 0, (), (Send(0, 0, i),)),
    ]
    with pytest.raises(ScheduleError, match="may overwrite INPUT 0 before rank 0, operation 1"):
        check(late, "reduce")


def test_wrong_number_of_chunks_is_found() -> None:
    schedules = build_all("all_gather", "ring", 3)
    schedules[1] = replace(schedules[1], output_chunks=2)
    with pytest.raises(
        ScheduleError, match="rank 1: has 1 input and 2 output chunks; all_gather has 1 and 3 there"
    ):
        check(schedules, "all_gather")
    schedules = build_all("reduce_scatter", "direct", 3)
    schedules[1] = replace(schedules[1], scratch=(Chunk(IN, 3), Chunk(IN, 1)))
    with pytest.raises(ScheduleError, match="rank 1: scratch 0 is to be as large as INPUT 3, not there"):
        check(schedules, "reduce_scatter")


def test_wrong_root_is_found() -> None:
    for collective in ("broadcast", "gather"):
        with pytest.raises(ScheduleError):
            check(build_all(collective, "direct", 3, root=1), collective, root=2)
    with pytest.raises(ScheduleError, match="root 3 is not below the number of schedules, 3"):
        check(build_all("broadcast", "direct", 3), "broadcast", root=3)


def test_reducing_collectives_are_those_that_add() -> None:
    for collective, algorithm in PAIRS:
        adds = any(
            not isinstance(operation, Send) and operation.final
            for _, _, operation in each_operation(build_all(collective, algorithm, 3))
        )
        assert adds == (collective in REDUCING)
