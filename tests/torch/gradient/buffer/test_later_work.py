"""A collective that starts later: once, by whoever comes first, and not at all after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from dlcp.errors import CollectiveTimeoutError
from dlcp.torch.gradient.buffer.later_work import LaterWork


class Fake:
    """As much of a Work as is asked."""

    words = "a fake"

    def __init__(self) -> None:
        self.over = False
        self.error: Any = None
        self.callbacks: list[Any] = []

    def done(self) -> bool:
        return self.over

    def wait(self, timeout_s: float | None = None) -> None:
        self.end()
        if self.error is not None:
            raise self.error

    def exception(self) -> Any:
        return self.error

    def add_done_callback(self, callback: Any) -> None:
        if self.over:
            callback(self)
        else:
            self.callbacks.append(callback)

    def end(self, error: Any = None) -> None:
        if not self.over:
            self.over, self.error = True, error
            for callback in self.callbacks:
                callback(self)


class Starts:
    """Counts how often it starts its work."""

    def __init__(self) -> None:
        self.work = Fake()
        self.count = 0

    def __call__(self) -> Any:
        self.count += 1
        return self.work


def test_it_starts_once_when_the_work_before_it_is_over() -> None:
    before, start = Fake(), Starts()
    later, called = LaterWork("all_gather", start, after=before), []
    later.add_done_callback(called.append)
    assert not later.done()
    assert start.count == 0
    before.end()
    assert start.count == 1
    assert not later.done()
    assert called == []
    start.work.end()
    assert later.done()
    assert called == [later]
    later.add_done_callback(called.append)
    later.wait()
    assert (start.count, len(called)) == (1, 2)
    assert later.exception() is None


def test_a_waiting_thread_starts_it() -> None:
    before, start = Fake(), Starts()
    LaterWork("all_gather", start, after=before).wait()
    assert before.over
    assert (start.count, start.work.over) == (1, True)
    alone = Starts()
    later = LaterWork("all_reduce", alone)
    assert not later.done()
    later.begin()
    later.wait()
    assert (alone.count, later.done()) == (1, True)


def test_after_a_failure_it_does_not_start() -> None:
    before, start = Fake(), Starts()
    later, called = LaterWork("all_gather", start, after=before), []
    later.add_done_callback(called.append)
    error = CollectiveTimeoutError("too late")
    before.end(error)
    assert (later.done(), later.exception(), start.count, called) == (True, error, 0, [later])
    with pytest.raises(CollectiveTimeoutError):
        later.wait()


def test_what_cannot_be_started_has_failed() -> None:
    def start() -> Any:
        raise ValueError("no such thing")

    later = LaterWork("all_gather", start)
    with pytest.raises(ValueError, match="no such thing"):
        later.wait()
    assert later.done()
    assert isinstance(later.exception(), ValueError)
