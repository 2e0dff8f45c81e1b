"""A collective that starts later than it was asked for: after another one, or together with others.

It looks like any other work to those who wait for it. Whoever comes first starts it: a waiting thread, or the callback
of the work that it follows. Its number among the group's collectives is taken beforehand, so that the moment of its
start, which differs from rank to rank, does not matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dlcp.transport.bounded import CollectiveOutcome
from dlcp.transport.work import MessageWords, Work


class LaterWork(Work):
    """The work of a collective that `start` starts.

    `after`: the work that has to be over first; if that fails, this one fails with it. None: it starts when somebody
    waits for it, or calls begin().
    """

    __slots__ = ("_after", "_begun", "_failure", "_later", "_lock", "_start", "_waiting")

    def __init__(self, operation: str, start: Callable[[], Work], after: Work | None = None) -> None:
        # Nothing of Work's own is used: there is no collective yet.
        self._said = MessageWords(operation, operation)
        self._after = after
        self._start: Callable[[], Work] | None = start
        self._later: Work | None = None
        self._failure: Any = None
        self._begun = False
        self._lock = threading.Lock()
        self._waiting: list[Callable[[Any], object]] = []
        if after is not None:
            after.add_done_callback(lambda _: self.begin())

    def __repr__(self) -> str:
        return f"<LaterWork: {self.operation}, {self._later or 'not started'}>"

    @property
    def words(self) -> str:
        """The operation."""
        return self.operation if self._later is None else self._later.words

    def begin(self) -> None:
        """Starts it, unless it has been. The work that it follows is over."""
        with self._lock:
            if self._begun:
                return
            start, self._start = self._start, None
            assert start is not None
            self._failure = None if self._after is None else self._after.exception()
            if self._failure is None:
                try:
                    self._later = start()
                except Exception as error:
                    self._failure = error
            self._begun = True
            waiting, self._waiting = self._waiting, []
        for callback in waiting:
            self._attach(callback)

    def done(self) -> bool:
        """Whether it is over, well or not. Does not block."""
        if not self._begun:
            if self._after is None or not self._after.done():
                return False
            self.begin()
        return self._later is None or self._later.done()

    def wait(self, timeout_s: float | None = None) -> None:
        """As Work.wait; the time is for each of the two works."""
        if self._after is not None:
            self._after.wait(timeout_s)
        self.begin()
        if self._failure is not None:
            raise self._failure
        assert self._later is not None
        self._later.wait(timeout_s)

    def exception(self) -> Any:
        """As Work.exception."""
        if self._failure is not None or self._later is None:
            return self._failure
        return self._later.exception()

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """As Work.add_done_callback."""
        with self._lock:
            if not self._begun:
                self._waiting.append(callback)
                return
        self._attach(callback)

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """As Work.moved_bytes."""
        assert self._later is not None
        return self._later.moved_bytes

    @property
    def outcome(self) -> CollectiveOutcome:
        """As Work.outcome."""
        assert self._later is not None
        return self._later.outcome

    def _attach(self, callback: Callable[[Any], object]) -> None:
        if self._later is None:
            callback(self)
        else:
            self._later.add_done_callback(lambda _: callback(self))
