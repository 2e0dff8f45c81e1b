"""Sums over a hub that are made at a deadline without ranks that are late.

Time is the test's: what a hub would call at a deadline is called when the test says so, but in one test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError, DlcpError
from dlcp.hub import group as served_group
from dlcp.hub.deadlines import Deadlines
from dlcp.hub.group import ServedGroup
from dlcp.hub.service import HubService
from dlcp.transport.communicator import Communicator, DataType, Reduction, Span
from dlcp.transport.schedule.hub import KEY_BYTES
from tests.hub.test_service import KEY, LOSSY, MIB, ranks_of, service, wait_until
from tests.support.ranks import PATIENCE_S, World

NUMEL = KEY_BYTES // 4 * 5 + 3
"""Of f32: six keys, and one of marks."""


class Clock:
    """Stands still until it is told to go to the end of all deadlines that it has been given."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def add(self, number: int, after_s: float, function: Callable[[], None]) -> None:
        assert after_s > 0
        self.waiting.append(function)

    def drop(self, number: int) -> None:
        """A clock may be about to call what is dropped."""

    def close(self) -> None:
        self.waiting.clear()

    def run_out(self) -> None:
        """All deadlines are over that it has been given until now, of what has started too."""
        due, self.waiting = self.waiting, []
        for function in due:
            function()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(served_group, "Deadlines", lambda: made)
    return made


def served(hub: HubService) -> ServedGroup:
    (job,) = hub._jobs.values()
    ((_, group),) = job.groups.values()
    return group


def called_by(hub: HubService, sequence: int) -> set[int]:
    """Whose call the hub has heard of, of a sum that has not begun."""
    return set(served(hub)._due.get(sequence, (None, set()))[1])


def given(rank: int, number: int, numel: int = NUMEL) -> np.ndarray[Any, np.dtype[np.float32]]:
    return 6 * (np.arange(numel) % 91 + 100 * number + rank).astype(np.float32)


def start(
    group: Communicator, values: np.ndarray[Any, Any], op: Reduction = Reduction.SUM, **how: Any
) -> Any:
    return group.all_reduce(Span.of(values), DataType.f32, op, deadline_s=1.0, **how)


def over(group: Communicator, number: int, op: Reduction = Reduction.SUM, **how: Any) -> tuple[bytes, Any]:
    """The bits of a sum, and whose data it has."""
    values = given(group.rank, number)
    work = start(group, values, op, **how)
    work.wait()
    return values.tobytes(), work.contributors


@pytest.mark.parametrize("op", [Reduction.SUM, Reduction.AVG], ids=["sum", "mean"])
@pytest.mark.parametrize("settings", [{}, LOSSY], ids=["", "lossy"])
def test_without_a_late_rank_all_others_have_its_sum_and_later_sums_have_nothing_of_it(
    clock: Clock, op: Reduction, settings: dict[str, Any]
) -> None:
    """Rank 2 calls when the others have the result. It gets the same one, and the next sums are of all."""
    divided_by = {Reduction.SUM: (1, 1), Reduction.AVG: (2, 3)}[op]
    with service(cores=2, **settings) as hub, ranks_of(hub, 3, **settings) as world:
        groups = world.open()
        late = threading.Event()

        def work(group: Communicator) -> list[tuple[bytes, Any]]:
            if group.rank == 2:
                assert late.wait(PATIENCE_S)
            first = over(group, 0, op)
            if group.rank == 0:
                late.set()
            return [first, over(group, 1, op), over(group, 2, op)]

        def run_out() -> None:
            wait_until(lambda: called_by(hub, 0) == {0, 1}, "nobody has called")
            clock.run_out()

        timer = threading.Thread(target=run_out)
        timer.start()
        found = world.each(groups, work)
        timer.join()
        assert found[0] == found[1] == found[2]
        without = (given(0, 0) + given(1, 0)) / divided_by[0]
        assert found[0][0] == (without.astype(np.float32).tobytes(), (0, 1))
        for number in (1, 2):
            whole = (given(0, number) + given(1, number) + given(2, number)) / divided_by[1]
            assert found[0][number] == (whole.astype(np.float32).tobytes(), (0, 1, 2))
        cores = [group.core for group in served(hub).cores]
        wait_until(lambda: all(core.used_bytes == 0 for core in cores), "memory is in use for nobody")


def test_each_sum_has_those_that_were_in_time_for_it_whatever_the_order(clock: Clock) -> None:
    """Two sums at a time, which ranks start in different orders; rank 1 is late for one of them."""
    with service(cores=2) as hub, ranks_of(hub, 3) as world:
        groups = world.open()
        late = threading.Event()

        def work(group: Communicator) -> list[tuple[bytes, Any]]:
            first = group.reserve(2)
            values = [given(group.rank, number) for number in range(2)]
            works: dict[int, Any] = {}
            for number in (1, 0) if group.rank else (0, 1):
                if group.rank == 1 and number == 0:
                    assert late.wait(PATIENCE_S)
                works[number] = start(group, values[number], sequence=first + number)
            for one in works.values():
                one.wait()
            return [(values[number].tobytes(), works[number].contributors) for number in range(2)]

        def run_out() -> None:
            wait_until(lambda: called_by(hub, 0) == {0, 2}, "nobody has called")
            wait_until(lambda: 1 not in served(hub)._due, "all have called the other")
            clock.run_out()
            late.set()

        timer = threading.Thread(target=run_out)
        timer.start()
        found = world.each(groups, work)
        timer.join()
        assert found[0] == found[1] == found[2]
        assert found[0] == [
            ((given(0, 0) + given(2, 0)).tobytes(), (0, 2)),
            ((given(0, 1) + given(1, 1) + given(2, 1)).tobytes(), (0, 1, 2)),
        ]


@pytest.mark.parametrize("dtype", [DataType.i8, DataType.f16, DataType.bf16, DataType.f64, DataType.i64])
def test_of_every_type_is_known_whose_data_is_there(clock: Clock, dtype: DataType) -> None:
    """Rank 0 is late, so the first contribution is another's. Zeros are data too."""
    with service(cores=1) as hub, ranks_of(hub, 3) as world:
        groups = world.open()
        late = threading.Event()

        def work(group: Communicator) -> Any:
            if group.rank == 0:
                assert late.wait(PATIENCE_S)
            op = Reduction.AVG if dtype in (DataType.f16, DataType.bf16, DataType.f64) else Reduction.SUM
            one = group.all_reduce(Span.of(np.zeros(64, np.uint8)), dtype, op, deadline_s=1.0)
            one.wait()
            return one.contributors

        def run_out() -> None:
            wait_until(lambda: called_by(hub, 0) == {1, 2}, "nobody has called")
            clock.run_out()
            late.set()

        timer = threading.Thread(target=run_out)
        timer.start()
        assert world.each(groups, work) == [(1, 2)] * 3
        timer.join()


def test_the_hubs_own_clock_ends_the_wait() -> None:
    with service(cores=1) as hub, ranks_of(hub, 2) as world:
        late = threading.Event()

        def work(group: Communicator) -> Any:
            if group.rank == 1:
                assert late.wait(PATIENCE_S)
            values = given(group.rank, 0)
            one = group.all_reduce(Span.of(values), DataType.f32, deadline_s=0.02)
            one.wait()
            late.set()
            return values.tobytes(), one.contributors

        assert world.each(world.open(), work) == [(given(0, 0).tobytes(), (0,))] * 2


def test_a_clock_calls_in_the_order_of_times_and_nothing_once_it_is_closed() -> None:
    called, both = [], threading.Event()
    clock = Deadlines()
    clock.add(1, PATIENCE_S, lambda: called.append("never"))
    clock.add(2, 0.02, lambda: (called.append("second"), both.set()))
    clock.add(3, 0.01, lambda: called.append("dropped"))
    clock.drop(3)
    clock.drop(3)
    clock.add(4, 0.0, lambda: called.append("first"))
    assert both.wait(PATIENCE_S)
    assert list(clock._due) == [1]
    clock.close()
    clock.add(5, 0.0, lambda: called.append("never"))
    clock.close()
    assert called == ["first", "second"]
    assert not clock._due


def test_where_no_single_hub_adds_all_ranks_are_waited_for(clock: Clock) -> None:
    with service(cores=1) as first, service(cores=1) as second:
        racks = (first.address, second.address)
        ways: list[dict[str, Any]] = [
            {"per_rank": lambda rank: {"hub": racks[rank]}, "hub_bytes_min": 1},
            {"hub": ",".join(racks), "hub_bytes_min": 1},
            {"hub": first.address, "hub_bytes_min": 64 * MIB},
            {},
        ]
        for settings in ways:
            with World(2, key=KEY, **settings) as world:
                found = world.each(world.open(), lambda group: over(group, 0))
                assert found == [((given(0, 0) + given(1, 0)).tobytes(), (0, 1))] * 2
        assert not clock.waiting


def test_what_has_no_contributors_says_so_and_wrong_arguments_are_refused() -> None:
    with World(2) as world:

        def work(group: Communicator) -> None:
            values = np.ones(10, np.float32)
            plain = group.all_reduce(Span.of(values), DataType.f32)
            plain.wait()
            with pytest.raises(DlcpError, match="no contributors; an all_reduce with deadline_s has some"):
                plain.contributors  # noqa: B018
            for wrong in (0.0, -1.0, 1e4, "soon"):
                with pytest.raises(ArgumentError, match="deadline_s is"):
                    group.all_reduce(Span.of(values), DataType.f32, deadline_s=wrong)
            for dtype, op in ((DataType.f32, Reduction.MAX), (DataType.i32, Reduction.AVG)):
                with pytest.raises(
                    ArgumentError, match="accepted: with Reduction.SUM, or AVG of floating point"
                ):
                    group.all_reduce(Span.of(values), dtype, op, deadline_s=1.0)

        world.each(world.open(), work)
