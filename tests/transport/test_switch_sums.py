"""All-reduces of a communicator that a switch adds: which ones, and works that behave as any other's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from dlcp.errors import (
    CollectiveAbortedError,
    GroupFailedError,
    MismatchError,
    StoreTimeoutError,
    WaitTimeoutError,
)
from dlcp.transport.adder_table import ADDERS
from dlcp.transport.aggregation import reducer as module
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.settings import Settings
from dlcp.transport.work import Work
from tests.support.aggregation_relay import Relay
from tests.support.ranks import PATIENCE_S, World

RANKS = 2
SIZE = 3000
Array = np.ndarray[Any, Any]


class Bed:
    """Two ranks whose first group has a switch that adds."""

    def __init__(self, relay: Relay, *, job_of_rank_1: int = 7) -> None:
        other = relay.setting.replace("job=7", f"job={job_of_rank_1}")
        self.relay = relay
        self.world = World(
            RANKS,
            per_rank=lambda rank: {"aggregation": other if rank else relay.setting},
            flight_recorder_entries=64,
        )
        self.groups = self.world.open()
        self.counts = [job.metrics.aggregation for job in self.world.jobs]

    def start(self, rank: int, values: Array, dtype: DataType = DataType.f32, **how: Any) -> Work:
        return self.groups[rank].all_reduce(Span.of(values), dtype, **how)

    def all_reduce(self, values: Array, dtype: DataType = DataType.f32, **how: Any) -> list[Array]:
        results = [values.copy() for _ in range(RANKS)]
        self.world.each(
            self.groups, lambda group: self.start(group.rank, results[group.rank], dtype, **how).wait()
        )
        return results

    def counted(self) -> tuple[int, dict[str, int]]:
        found = [each.snapshot() for each in self.counts if each is not None]
        assert len(found) == RANKS
        assert found[0]["by_switch"] == found[1]["by_switch"]
        return found[0]["by_switch"], found[0]["by_ring"]


@contextmanager
def bed(**arguments: int) -> Iterator[Bed]:  # of Bed
    with Relay(RANKS) as relay:
        made = Bed(relay, **arguments)
        with made.world:
            yield made


def whole_numbers() -> Array:
    return (np.arange(SIZE) % 7).astype(np.float32)


def test_adders_are_asked_for_by_settings() -> None:
    assert set(ADDERS) <= {each.name for each in fields(Settings)}


def test_a_sum_by_the_switch_is_a_work_as_any_other() -> None:
    with bed() as at:
        values = [whole_numbers(), whole_numbers()]
        works = [at.start(rank, values[rank], label="gradients") for rank in range(RANKS)]
        called = threading.Event()
        works[0].add_done_callback(lambda work: called.set() if work is works[0] else None)
        for work in works:
            work.wait(PATIENCE_S)
            assert work.done()
            assert work.exception() is None
            assert work.moved_bytes == (SIZE * 4, SIZE * 4)
            assert (work.operation, work.sequence) == ("all_reduce", 0)
            assert work.words.startswith(f"all_reduce(f32, {SIZE} elements, sum) by a switch (job 7 ")
        assert called.wait(PATIENCE_S)
        assert all(np.array_equal(each, 2 * whole_numbers()) for each in values)
        assert [group.under_way for group in at.groups] == [0, 0]
        # Whoever adds, the group counts and records one call.
        assert [group.sequence for group in at.groups] == [1, 1]
        name = at.groups[0].name
        for job in at.world.jobs:
            (entry,) = (each for each in job.recorder.snapshot() if each["group"] == name)
            assert (entry["operation"], entry["sequence"], entry["state"]) == ("all_reduce", 0, "completed")
            assert (entry["input_bytes"], entry["label"]) == (SIZE * 4, "gradients")


def test_an_abort_reaches_a_sum_whose_thread_waits_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    with bed() as at:
        begun, released = threading.Event(), threading.Event()

        def opening(*_: Any, **__: Any) -> Any:
            begun.set()
            released.wait(PATIENCE_S)
            raise StoreTimeoutError("nobody came")

        for group in at.groups:
            monkeypatch.setattr(group.adders[0], "_opener", opening)
        works = [at.start(rank, whole_numbers()) for rank in range(RANKS)]
        assert begun.wait(PATIENCE_S)
        for group in at.groups:
            group.abort("enough")
        try:
            for work in works:
                with pytest.raises(CollectiveAbortedError, match="the group was aborted: enough"):
                    work.wait(PATIENCE_S / 2)
        finally:
            released.set()


def test_a_sum_whose_group_cannot_be_opened_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with bed() as at:

        def opening(*_: Any, **__: Any) -> Any:
            raise StoreTimeoutError("nobody came")

        for group in at.groups:
            monkeypatch.setattr(group.adders[0], "_opener", opening)
        works = [at.start(rank, whole_numbers()) for rank in range(RANKS)]
        assert any(isinstance(error_of(work), StoreTimeoutError) for work in works)


def test_calls_that_the_switch_does_not_take_go_by_a_schedule() -> None:
    with bed() as at:
        values = whole_numbers()
        taken = at.all_reduce(values) + at.all_reduce(values, op=Reduction.AVG)
        others = [
            at.all_reduce(values[:1000]),
            at.all_reduce(values.astype(np.float64), DataType.f64),
            at.all_reduce(values, op=Reduction.MAX),
            at.all_reduce(values, factor=2.0),
            at.all_reduce(values, algorithm="ring"),
        ]
        numbers = [group.reserve(2) for group in at.groups]
        # Each rank starts these two in an order of its own.
        results = [[values.copy(), values.copy()] for _ in range(RANKS)]
        works = [
            at.start(rank, results[rank][place], sequence=numbers[rank] + place)
            for rank in range(RANKS)
            for place in ((0, 1) if rank == 0 else (1, 0))
        ]
        for work in works:
            work.wait()
        assert all(np.array_equal(each, 2 * values) for rows in results for each in rows)
        assert np.array_equal(taken[0], 2 * values)
        assert np.array_equal(taken[2], values)
        assert np.array_equal(others[2][0], values)
        assert at.counted() == (2, {})


def test_a_second_group_has_no_place_at_the_switch() -> None:
    with bed() as at:
        first, at.groups = at.groups, at.world.open()
        assert [len(group.adders) for group in (*first, *at.groups)] == [1, 1, 0, 0]
        at.all_reduce(whole_numbers())
        assert at.counted() == (0, {})


def error_of(work: Work) -> BaseException:
    with pytest.raises(Exception) as caught:
        work.wait(PATIENCE_S)
    assert work.done()
    assert work.exception() is caught.value
    return caught.value


def ends(groups: list[Communicator]) -> None:
    """A group that has failed starts nothing any more, whoever would add."""
    for group in groups:
        for values in (whole_numbers(), whole_numbers()[:10]):
            with pytest.raises(GroupFailedError):
                group.all_reduce(Span.of(values), DataType.f32)


def test_ranks_with_other_switches_are_named_and_nothing_is_added() -> None:
    with bed(job_of_rank_1=8) as at:
        works = [at.start(rank, whole_numbers()) for rank in range(RANKS)]
        found = [error_of(work) for work in works]
        assert all(isinstance(each, MismatchError) for each in found), found
        for each in found:
            assert "by a switch (job 7 " in str(each), each
            assert "by a switch (job 8 " in str(each), each
        ends(at.groups)
        assert at.counted() == (0, {})


def test_a_wait_of_some_time_leaves_the_sum_under_way() -> None:
    with bed() as at:
        values = [whole_numbers(), whole_numbers()]
        work = at.start(0, values[0])
        with pytest.raises(WaitTimeoutError, match="all_reduce.* by a switch .* operation 0"):
            work.wait(0.01)
        assert not work.done()
        assert at.groups[0].under_way == 1
        at.start(1, values[1]).wait()
        work.wait()
        assert np.array_equal(values[0], 2 * whole_numbers())


@pytest.mark.parametrize("announced", [False, True])
def test_an_abort_ends_sums_on_all_ranks(announced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the other rank has called it, and while both wait for a switch that says nothing any more."""
    monkeypatch.setattr(module, "GIVE_UP_S", PATIENCE_S)
    with bed() as at:
        at.all_reduce(whole_numbers())
        asked = threading.Event()
        at.relay.take = lambda _worker, _payload: bool(asked.set())
        works = [at.start(0, whole_numbers())]
        if announced:
            works.append(at.start(1, whole_numbers()))
            assert asked.wait(PATIENCE_S)
        at.groups[0].abort("of the test")
        if announced:
            # As after GIVE_UP_S; the rank learns of the abort when it next agrees on something.
            at.groups[1].adders[0]._reducer.stop()  # type: ignore[attr-defined]
        found = [error_of(work) for work in works]
        assert all(isinstance(each, CollectiveAbortedError) for each in found), found
        assert "of the test" in str(found[0])
        if not announced:
            error_of(at.start(1, whole_numbers()))
        ends(at.groups)


def test_a_sum_that_fails_on_one_rank_fails_the_group_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with bed() as at:
        barrier = at.groups[1].barrier(sequence=[group.reserve(1) for group in at.groups][1])

        def fail(*_: Any, **__: Any) -> None:
            raise MemoryError("no memory is left")

        monkeypatch.setattr(at.groups[0].adders[0]._reducer, "all_reduce", fail)  # type: ignore[attr-defined]
        works = [at.start(rank, whole_numbers(), label=str(rank)) for rank in range(RANKS)]
        found = [error_of(work) for work in (*works, barrier)]
        assert all(isinstance(each, CollectiveAbortedError) for each in found), found
        assert "MemoryError: no memory is left" in str(found[0])
        ends(at.groups)


def test_closing_groups_end_what_is_under_way_by_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVE_UP_S", PATIENCE_S)
    with bed() as at:
        at.all_reduce(whole_numbers())
        asked = threading.Event()
        at.relay.take = lambda _worker, _payload: bool(asked.set())
        values = [whole_numbers(), whole_numbers()]
        works = [at.start(rank, values[rank]) for rank in range(RANKS)]
        assert asked.wait(PATIENCE_S)
        at.world.each(at.groups, lambda group: group.close())
        assert [work.exception() for work in works] == [None, None]
        assert all(np.array_equal(each, 2 * whole_numbers()) for each in values)
        assert at.counted() == (1, {"stopped": 1})
