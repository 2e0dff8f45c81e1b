"""Single messages between the ranks of a group: order, sources, sizes, and what goes wrong with one alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport.communicator import Communicator, Span
from tests.support.ranks import PATIENCE_S, World

Of = Callable[[int], World]


def number(value: int) -> np.ndarray:
    return np.array([value], np.int64)


@pytest.mark.parametrize("count", [0, 1, 1000, 300_000])
def test_what_is_sent_is_received(world: Of, count: int) -> None:
    sender, receiver = world(2).open()
    data, got = np.arange(count, dtype=np.float32), np.zeros(count, np.float32)
    receiving = receiver.receive(Span.of(got), 0, 7)
    sending = sender.send(Span.of(data), 1, 7)
    receiving.wait(PATIENCE_S)
    sending.wait(PATIENCE_S)
    np.testing.assert_array_equal(got, data)
    assert receiving.source == 0
    assert receiving.nbytes == sending.nbytes == data.nbytes
    assert sender.sequence == receiver.sequence == 0


def test_messages_of_one_tag_come_in_order(world: Of) -> None:
    """Long and short in turn, so that a later one would be there first."""
    sender, receiver = world(2).open()
    sizes = [100_000, 1, 50_000, 2, 1]
    sent = [np.full(size, i, np.int32) for i, size in enumerate(sizes)]
    got = [np.full(size, -1, np.int32) for size in sizes]
    works = [sender.send(Span.of(data), 1) for data in sent]
    works += [receiver.receive(Span.of(data), 0) for data in got]
    for work in works:
        work.wait(PATIENCE_S)
    assert [set(data.tolist()) for data in got] == [{i} for i in range(len(sizes))]


def test_tags_keep_apart(world: Of) -> None:
    sender, receiver = world(2).open()
    first, second = number(0), number(0)
    works = [
        receiver.receive(Span.of(second), 0, 2**32 - 1),
        receiver.receive(Span.of(first), 0, 0),
        sender.send(Span.of(one := number(1)), 1, 0),
        sender.send(Span.of(two := number(2)), 1, 2**32 - 1),
    ]
    for work in works:
        work.wait(PATIENCE_S)
    assert (first[0], second[0]) == (one[0], two[0])


def test_receive_from_anyone_tells_who(world: Of) -> None:
    groups = world(4).open()
    got = [number(-1) for _ in range(3)]
    receiving = [groups[0].receive(Span.of(each), None, 5) for each in got]
    numbers = [number(100 + rank) for rank in range(4)]
    sending = [groups[rank].send(Span.of(numbers[rank]), 0, 5) for rank in (1, 2, 3)]
    for work in [*receiving, *sending]:
        work.wait(PATIENCE_S)
    assert sorted(work.source for work in receiving) == [1, 2, 3]
    assert [each[0] for each in got] == [100 + work.source for work in receiving]


def test_receive_from_anyone_takes_what_came_before_it(world: Of) -> None:
    sender, receiver = world(2).open()
    sender.send(Span.of(number(3)), 1, 9).wait(PATIENCE_S)
    receiving = receiver.receive(Span.of(got := number(0)), None, 9)
    receiving.wait(PATIENCE_S)
    assert (got[0], receiving.source) == (3, 0)


def test_groups_with_the_same_ranks_keep_apart(world: Of) -> None:
    first, second = world(2).open(), world(2).open()
    a, b = number(0), number(0)
    works = [
        second[1].receive(Span.of(b), 0),
        first[1].receive(Span.of(a), 0),
        first[0].send(Span.of(one := number(1)), 1),
        second[0].send(Span.of(two := number(2)), 1),
    ]
    for work in works:
        work.wait(PATIENCE_S)
    assert (a[0], b[0]) == (one[0], two[0])


def test_both_directions_at_once_between_all(world: Of) -> None:
    """Everybody sends first and receives then, as batch_isend_irecv does."""
    size = 4

    def one(group: Communicator) -> list[int]:
        others = [rank for rank in range(size) if rank != group.rank]
        out = {rank: np.full(5000, 10 * group.rank + rank, np.int32) for rank in others}
        into = {rank: np.zeros(5000, np.int32) for rank in others}
        works = [group.send(Span.of(out[rank]), rank) for rank in others]
        works += [group.receive(Span.of(into[rank]), rank) for rank in others]
        for work in works:
            work.wait(PATIENCE_S)
        return [int(each[-1]) for each in into.values()]

    for rank, received in enumerate(world(size).each(world(size).open(), one)):
        assert received == [10 * other + rank for other in range(size) if other != rank]


def test_message_of_another_length_fails_alone(world: Of) -> None:
    groups = sender, receiver = world(2).open()
    short, room = np.ones(10, np.uint8), np.zeros(20, np.uint8)
    receiving = receiver.receive(Span.of(room), 0)
    sender.send(Span.of(short), 1)
    with pytest.raises(
        errors.MismatchError, match=r"receive\(20 bytes from rank 0, tag 0\) of group .*sent 10 bytes"
    ):
        receiving.wait(PATIENCE_S)
    assert receiver.failed is None

    def one(group: Communicator) -> None:
        group.barrier().wait(PATIENCE_S)

    world(2).each(groups, one)


def test_receive_that_nobody_answers_fails_alone(world: Of) -> None:
    groups = world(2).open()
    waiting = groups[0].receive(Span.of(number(0)), 1, timeout_s=0.05)
    with pytest.raises(
        errors.CollectiveTimeoutError, match=r"receive\(8 bytes from rank 1, tag 0\)"
    ) as caught:
        waiting.wait(PATIENCE_S)
    assert caught.value.sequence is None
    assert groups[0].failed is None
    world(2).each(groups, lambda group: group.barrier().wait(PATIENCE_S))


def test_long_message_goes_in_pieces(world: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = world(2).open()
    for group in groups:
        monkeypatch.setattr(group, "_limit_bytes", 1000)
    data, got = np.arange(5001, dtype=np.uint16), np.zeros(5001, np.uint16)
    over: list[object] = []
    receiving = groups[1].receive(Span.of(got), 0)
    receiving.add_done_callback(over.append)
    sending = groups[0].send(Span.of(data), 1)
    receiving.wait(PATIENCE_S)
    sending.wait(PATIENCE_S)
    np.testing.assert_array_equal(got, data)
    assert receiving.nbytes == data.nbytes
    assert receiving.exception() is None
    assert receiving.moved_bytes == (0, data.nbytes)
    with pytest.raises(errors.MessageTooLongError, match="name the source"):
        groups[1].receive(Span.of(got), None)


def test_group_of_one_has_nobody_to_send_to(world: Of) -> None:
    (group,) = world(1).open()
    with pytest.raises(errors.ArgumentError, match="there is nobody else"):
        group.receive(Span.of(number(0)), None)


def test_source_and_length_are_those_of_single_messages(world: Of) -> None:
    groups = world(2).open()

    def one(group: Communicator) -> None:
        work = group.barrier()
        work.wait(PATIENCE_S)
        with pytest.raises(errors.DlcpError, match="has no source"):
            _ = work.source
        with pytest.raises(errors.DlcpError, match="has no number of bytes"):
            _ = work.nbytes

    world(2).each(groups, one)
    waiting = groups[0].receive(Span.of(number(0)), 1)
    with pytest.raises(errors.DlcpError, match="is not over"):
        _ = waiting.nbytes
    groups[1].send(Span.of(number(1)), 0).wait(PATIENCE_S)
    waiting.wait(PATIENCE_S)
