"""A work: what it says before and after its end, with a native operation that ends when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dlcp import errors
from dlcp.transport.work import ManyWorks, MessageWords, Work, WorkGroup


class Operation:
    """Stands for a native collective."""

    def __init__(self) -> None:
        self.over = False
        self.result: Any = SimpleNamespace(
            error=None, peer=1, bytes=64, sent_bytes=10, received_bytes=20, abandoned=[]
        )

    @property
    def completion(self) -> tuple[float, int, int] | None:
        return (0.5, 10, 20) if self.result.error is None else None

    def end(self, error: str | None = None) -> None:
        self.result.error = error
        self.over = True

    def wait(self, timeout_s: float | None) -> bool:
        return self.over

    def watch(self, id: int) -> bool:  # noqa: A002
        return not self.over


def call_at_once(work: Work, callback: Callable[[Any], object]) -> None:
    callback(work)


GROUP = WorkGroup(
    "dp",
    0,
    lambda work, result: errors.CollectiveTimeoutError(f"{work.words}: {result.error}"),
    lambda work, waited_s: errors.WaitTimeoutError(f"{work.words}: {waited_s} s"),
    call_at_once,
)


def work_of(operation: Operation | None, name: str = "all_reduce", **more: Any) -> Work:
    said = MessageWords(name, f"{name}()")
    return Work(GROUP, operation, said, 3, 0.0, "layer 1", **more)  # type: ignore[arg-type]


def test_work_that_began_over_has_moved_nothing() -> None:
    work = work_of(None)
    assert work.done()
    work.wait()
    assert work.exception() is None
    assert work.moved_bytes == (0, 0)


def test_work_says_where_it_is() -> None:
    operation = Operation()
    work = work_of(operation)
    assert repr(work) == "<Work: all_reduce() [layer 1], number 3 of group dp, under way>"
    operation.end()
    assert repr(work) == "<Work: all_reduce() [layer 1], number 3 of group dp, over>"
    assert work.words == "all_reduce() [layer 1]"
    assert work.moved_bytes == (10, 20)


def test_results_are_refused_before_the_end() -> None:
    work = work_of(Operation())
    for ask in (lambda: work.exception(), lambda: work.moved_bytes):
        with pytest.raises(errors.DlcpError, match="is not over; wait\\(\\) first"):
            ask()


def test_failure_is_one_exception_ever_after() -> None:
    operation = Operation()
    work = work_of(operation)
    operation.end("timeout")
    with pytest.raises(errors.CollectiveTimeoutError, match="timeout") as caught:
        work.wait()
    assert work.exception() is caught.value


def test_wait_that_has_had_its_time_raises_and_goes_on() -> None:
    operation = Operation()
    work = work_of(operation)
    with pytest.raises(errors.WaitTimeoutError, match="0.5 s"):
        work.wait(0.5)
    operation.end()
    work.wait(0.5)


@pytest.mark.parametrize("timeout_s", ["x", -1, float("nan"), True])
def test_timeout_of_wait_is_checked(timeout_s: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="timeout_s is .*; accepted: a number of seconds from 0"):
        work_of(Operation()).wait(timeout_s)


def test_source_is_that_of_a_receive() -> None:
    operation = Operation()
    operation.end()
    assert work_of(operation, "receive", numbered=False).source == 1
    with pytest.raises(errors.DlcpError, match="has no source; only a receive"):
        _ = work_of(operation).source


def test_bytes_are_those_of_a_message() -> None:
    operation = Operation()
    operation.end()
    assert work_of(operation, "receive", numbered=False).nbytes == 64
    assert work_of(operation, "send", numbered=False).nbytes == 10
    with pytest.raises(errors.DlcpError, match="has no number of bytes"):
        _ = work_of(operation).nbytes


def test_many_works_are_over_with_their_last() -> None:
    operations = [Operation(), Operation()]
    works = ManyWorks([work_of(each, "send", numbered=False) for each in operations])
    operations[0].end()
    assert not works.done()
    operations[1].end("timeout")
    assert works.done()
    assert isinstance(works.exception(), errors.CollectiveTimeoutError)
    assert works.moved_bytes == (20, 40)


def test_callback_of_many_works_comes_once() -> None:
    operations = [Operation(), Operation()]
    for each in operations:
        each.end()
    called: list[Work] = []
    works = ManyWorks([work_of(each, "send", numbered=False) for each in operations])
    works.add_done_callback(called.append)
    assert called == [works]
