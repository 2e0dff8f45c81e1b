"""Groups and what runs in them: subgroups, many operations in flight, callbacks, numbers, and how groups end well."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport.communicator import Communicator, DataType, Span, Work
from dlcp.transport.job_ranks import GROUPS
from tests.support.ranks import PATIENCE_S, World

Of = Callable[[int], World]


def ones(count: int = 1000) -> np.ndarray:
    return np.ones(count, np.float32)


# --- subgroups ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [[2], [0, 3], [4, 1], [3, 1, 0], [4, 3, 2, 1, 0]])
def test_subgroup_counts_its_own_ranks(world: Of, members: list[int]) -> None:
    def one(group: Communicator) -> tuple[int, float, float]:
        data, first = ones(), np.array([group.job.rank], np.int32)
        group.all_reduce(Span.of(data), DataType.f32).wait(PATIENCE_S)
        group.broadcast(Span.of(first), 0).wait(PATIENCE_S)
        return group.rank, float(data[-1]), int(first[0])

    results = world(5).each(world(5).open(members), one)
    assert results == [(rank, float(len(members)), members[0]) for rank in range(len(members))]


def test_groups_that_overlap_run_side_by_side(world: Of) -> None:
    """A ring of pairs: each rank is in two groups, and begins them in the order in which it has them."""
    size = 5
    pairs = [world(size).open([rank, (rank + 1) % size]) for rank in range(size)]

    def one(rank: int) -> list[float]:
        own = [group for pair in pairs for group in pair if group.job.rank == rank]
        data = [np.full(10_000, rank + 1, np.float32) for _ in own]
        works = [group.all_reduce(Span.of(each), DataType.f32) for group, each in zip(own, data, strict=True)]
        for work in works:
            work.wait(PATIENCE_S)
        return sorted(float(each[-1]) for each in data)

    for rank, found in enumerate(world(size).run(one)):
        before, after = (rank - 1) % size, (rank + 1) % size
        assert found == sorted([rank + 1 + before + 1.0, rank + 1 + after + 1.0])


def test_members_are_checked(world: Of) -> None:
    job = world(2).jobs[0]
    for members, words in [
        ([0, 0], "distinct ranks from 0 to 1"),
        ([0, 2], "distinct ranks from 0 to 1"),
        ([], "at least one"),
        ([1], "without this rank, 0"),
    ]:
        with pytest.raises(errors.ArgumentError, match=words):
            job.open_communicator("g", members)


def test_member_that_does_not_come_is_named(world: Of) -> None:
    with pytest.raises(
        errors.StoreTimeoutError, match=r"number of group 'nobody' \(rank 0, its first member"
    ):
        world(2).jobs[1].open_communicator("nobody", timeout_s=0.01)


def test_group_may_be_opened_again_under_its_name(world: Of) -> None:
    for _ in range(3):
        groups = world(2).run(lambda rank: world(2).jobs[rank].open_communicator("again"))
        assert groups[0].number == groups[1].number
        world(2).each(groups, lambda group: group.barrier().wait(PATIENCE_S))
        world(2).each(groups, lambda group: group.close())


def test_group_may_agree_in_a_store_of_its_own(world: Of) -> None:
    from dlcp.transport.store import MemoryStore

    store = MemoryStore()
    groups = world(2).open(store=store)
    world(2).each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    assert store._values


# --- numbers ------------------------------------------------------------------------------------------------


def test_open_groups_have_numbers_of_their_own(world: Of) -> None:
    numbers = [
        group.number for members in ([0, 1], [1, 2], [0, 2], [0, 1, 2]) for group in world(3).open(members)
    ]
    assert len(set(numbers)) == 4
    assert all(number is not None and 0 <= number < GROUPS for number in numbers)


def test_number_is_free_again_when_all_members_have_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp.transport.job_ranks.GROUPS", 3)
    with World(2) as world:
        kept = world.open()
        for _ in range(5):
            groups = world.open()
            assert groups[0].number not in (None, kept[0].number)
            world.each(groups, lambda group: group.close())
        world.each(kept, lambda group: group.barrier().wait(PATIENCE_S))


def test_number_that_one_member_still_has_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp.transport.job_ranks.GROUPS", 2)
    with World(2) as world:
        world.open()[0].close()
        world.open()
        with pytest.raises(errors.LimitError, match="2 groups are open"):
            world.jobs[0].open_communicator("one too many")


# --- many in flight -----------------------------------------------------------------------------------------


def test_many_in_flight_end_right_whatever_their_order(world: Of) -> None:
    def one(group: Communicator) -> list[float]:
        data = [np.full(1 + 97 * i % 5000, i, np.float32) for i in range(100)]
        works = [
            group.all_reduce(Span.of(each), DataType.f32, traffic_class=i % 7, keep=each)
            for i, each in enumerate(data)
        ]
        for work in reversed(works):
            work.wait(PATIENCE_S)
        assert [work.sequence for work in works] == list(range(100))
        return [float(each.sum()) / each.size for each in data]

    for found in world(3).each(world(3).open(), one):
        assert found == [3.0 * i for i in range(100)]


def test_kinds_mix_in_flight(world: Of) -> None:
    def one(group: Communicator) -> list[object]:
        a, b, c = ones(), np.zeros(3000, np.float32), np.array([group.rank], np.int32)
        works = [
            group.all_reduce(Span.of(a), DataType.f32),
            group.all_gather(Span.of(b), Span.of(own := ones())),
            group.broadcast(Span.of(c), 2),
            group.barrier(),
        ]
        for work in works:
            work.wait(PATIENCE_S)
        assert own.all()
        return [float(a[0]), float(b.sum()), int(c[0])]

    assert world(3).each(world(3).open(), one) == [[3.0, 3000.0, 2]] * 3


def test_threads_of_one_rank_may_share_a_group(world: Of) -> None:
    """Messages, since collectives need an order that all ranks agree on."""
    groups = world(2).open()
    failures: list[BaseException] = []

    def talk(tag: int) -> None:
        try:
            for turn in range(20):
                data, got = np.full(100, turn, np.int32), np.zeros(100, np.int32)
                receiving = groups[1].receive(Span.of(got), 0, tag)
                groups[0].send(Span.of(data), 1, tag).wait(PATIENCE_S)
                receiving.wait(PATIENCE_S)
                assert got[0] == turn
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(tag,)) for tag in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- works --------------------------------------------------------------------------------------------------


def test_callback_comes_once_the_work_is_over(world: Of) -> None:
    called: list[tuple[int, bool]] = []
    came = threading.Semaphore(0)

    def one(group: Communicator) -> None:
        def note(work: Work) -> None:
            called.append((work.sequence, work.done()))
            came.release()

        work = group.barrier()
        work.add_done_callback(note)
        work.wait(PATIENCE_S)
        work.add_done_callback(note)  # over: at once

    world(2).each(world(2).open(), one)
    for _ in range(4):
        assert came.acquire(timeout=PATIENCE_S)
    assert called == [(0, True)] * 4


def test_callback_of_an_operation_that_ends_inline_is_called_at_once(world: Of) -> None:
    (group,) = world(1).open()
    called: list[Work] = []
    work = group.all_reduce(Span.of(ones()), DataType.f32)
    work.add_done_callback(called.append)
    assert called == [work]
    assert work.done()
    assert work.exception() is None
    assert work.moved_bytes == (0, 0)
    work.wait()


def test_wait_with_a_time_leaves_the_operation_under_way(world: Of) -> None:
    groups = world(2).open()
    work = groups[0].barrier(label="epoch 3")
    with pytest.raises(
        errors.WaitTimeoutError, match=r"barrier\(\) \[epoch 3\], operation 0 of group .* goes on"
    ) as caught:
        work.wait(0.0)
    assert isinstance(caught.value, TimeoutError)
    assert not work.done()
    assert "under way" in repr(work)
    with pytest.raises(errors.DlcpError, match="is not over"):
        work.exception()
    groups[1].barrier().wait(PATIENCE_S)
    work.wait(PATIENCE_S)
    assert work.exception() is None
    assert "over" in repr(work)


def test_memory_is_kept_while_the_operation_is_under_way(world: Of) -> None:
    class Owner:
        pass

    groups = world(2).open()
    owner = Owner()
    kept = weakref.ref(owner)
    data = ones()
    groups[0].all_reduce(Span.of(data), DataType.f32, keep=owner)  # nobody holds the work
    del owner
    gc.collect()
    assert kept() is not None
    groups[1].all_reduce(Span.of(other := ones()), DataType.f32).wait(PATIENCE_S)
    while groups[0].under_way:
        world(2).jobs[0].endpoint.progress(0.01)
    assert data[0] == other[0] == 2.0
    for _ in range(2):  # what is over is let go of when later operations start
        world(2).each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    gc.collect()
    assert kept() is None


def test_what_is_over_is_forgotten_behind_an_operation_that_takes_long(world: Of) -> None:
    groups = world(2).open()
    for waiting in (1, 20):
        unanswered = [groups[0].receive(Span.of(ones()), 1) for _ in range(waiting)]
        for _ in range(60):
            world(2).each(groups, lambda group: group.barrier().wait(PATIENCE_S))
        # As many that are over as there are that are not, and the last eight.
        assert len(groups[0].job.recorder.followed) <= 2 * waiting + 10
        assert groups[0].under_way == waiting
        for work in unanswered:
            groups[1].send(Span.of(ones()), 0).wait(PATIENCE_S)
            work.wait(PATIENCE_S)


def test_bytes_that_moved_are_told(world: Of) -> None:
    def one(group: Communicator) -> tuple[int, int]:
        work = group.all_reduce(Span.of(ones(10_000)), DataType.f32, algorithm="ring")
        work.wait(PATIENCE_S)
        return work.moved_bytes

    assert world(2).each(world(2).open(), one) == [(40_000, 40_000)] * 2


def test_native_code_records_what_the_flight_recorder_does(world: Of) -> None:
    group, other = world(2).open()
    data = Span.of(ones(100))
    work = group.reduce(data, DataType.f32, root=1, label="first", timeout_s=7.0)
    recorder, record = group.job.recorder, group._record
    assert recorder.followed
    facts, followed, held = recorder.followed[-1]
    assert followed is held
    wanted = recorder.facts(record, 0, "reduce", 400, 0, DataType.f32, 1, 7.0, "first")
    assert facts[1:-1] == wanted[1:-1]
    assert wanted[0] == facts[0] + 1
    assert 0 <= wanted[-1] - facts[-1] < 60e9
    other.reduce(data, DataType.f32, root=1).wait(PATIENCE_S)
    work.wait(PATIENCE_S)


def test_operations_are_in_the_flight_recorder() -> None:
    with World(2, flight_recorder_entries=10) as world:
        groups = world.open()

        def one(group: Communicator) -> list[dict]:
            group.all_reduce(Span.of(ones(100)), DataType.f32, label="first").wait(PATIENCE_S)
            group.broadcast(Span.of(ones(0)), 1).wait(PATIENCE_S)
            return group.job.recorder.snapshot()

        for entries in world.each(groups, one):
            assert [(entry["operation"], entry["sequence"], entry["state"]) for entry in entries] == [
                ("all_reduce", 0, "completed"),
                ("broadcast", 1, "completed"),
            ]
            assert (entries[0]["label"], entries[0]["input_bytes"], entries[0]["dtype"]) == (
                "first",
                400,
                "f32",
            )


# --- ending well --------------------------------------------------------------------------------------------


def test_rank_that_closes_first_does_not_disturb_the_others() -> None:
    """A ring: rank 0 has its result, and leaves, while others may still pass blocks on."""
    with World(3) as world:
        groups = world.open()

        def one(group: Communicator) -> float:
            data = ones(100_000)
            work = group.all_reduce(Span.of(data), DataType.f32, algorithm="ring")
            work.wait(PATIENCE_S)
            group.job.close()
            return float(data.sum())

        assert world.each(groups, one) == [300_000.0] * 3


def test_close_lets_what_is_under_way_end() -> None:
    with World(2) as world:
        groups = world.open()
        data = [ones(), ones()]
        works = [None, None]

        def one(group: Communicator) -> None:
            works[group.rank] = group.all_reduce(Span.of(data[group.rank]), DataType.f32)
            group.close()

        world.each(groups, one)
        for work, each in zip(works, data, strict=True):
            assert work.exception() is None
            assert each[0] == 2.0


def test_withdrawing_ends_what_waits_here_and_tells_nobody(world: Of) -> None:
    groups = world(3).open()
    world(3).each(groups, lambda group: group.barrier().wait(PATIENCE_S))
    request = groups[0].receive(Span.of(ones()), None)
    groups[0].withdraw()
    groups[0].withdraw()
    with pytest.raises(errors.CollectiveAbortedError):
        request.wait(PATIENCE_S)
    with pytest.raises((errors.ClosedError, errors.GroupFailedError)):
        groups[0].barrier()
    message = groups[2].receive(Span.of(ones()), 1)
    groups[1].send(Span.of(ones()), 2).wait(PATIENCE_S)
    message.wait(PATIENCE_S)
    assert [group.failed for group in groups[1:]] == [None, None]
    for group in groups[1:]:
        group.close()


def test_closed_group_takes_no_calls(world: Of) -> None:
    groups = world(2).open()
    for group in groups:
        group.close()
        group.close()
        group.abort()
    with pytest.raises(errors.ClosedError, match=r"barrier\(\) on group .*, which is closed"):
        groups[0].barrier()
    assert "closed" in repr(groups[0])


@pytest.mark.parametrize("size", [1, 2])
def test_closed_group_leaves_memory_alone(world: Of, size: int) -> None:
    """Also where the group is of one rank, whose memory would be written without asking anybody."""
    group = world(size).open()[0]
    group.close()
    data, parts = np.full(4, 3.0, np.float32), np.zeros(4 * size, np.float32)
    with pytest.raises(errors.ClosedError):
        group.all_reduce(Span.of(data), DataType.f32, factor=2.0)
    with pytest.raises(errors.ClosedError):
        group.all_gather(Span.of(parts), Span.of(data))
    assert set(data) == {3.0}
    assert set(parts) == {0.0}


def test_closed_job_takes_no_calls() -> None:
    with World(2) as world:
        groups = world.open()
        world.jobs[0].close()
        with pytest.raises(errors.ClosedError):
            groups[0].barrier()
        with pytest.raises(errors.ClosedError):
            groups[0].send(Span.of(ones()), 1)
