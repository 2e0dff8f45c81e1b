"""Futures whose callbacks may start collectives, while any number of buckets are pending.

A callback may wait for a collective that it started. It must not block the thread that completes other collectives, so
each callback runs on a thread of the callback pool.

All ranks must start collectives in one order. Callbacks run when their future completes, beside the main thread and in
an order that differs from rank to rank; one that is registered on a complete future runs at once, as torch documents.
Therefore

- each callback gets a ticket. Tickets follow the order in which the program registers callbacks; a callback that
  another callback registers has the same ticket as that one;
- a collective that a callback starts waits until all callbacks with earlier tickets have returned;
- it runs on a communicator for callbacks (process_group.py), whose collectives are numbered apart from the main
  thread's.

Sends and receives may stay pending for as long as a program likes. So their callbacks have a line of tickets and a
communicator of their own, and hold up one another alone. Callbacks that start no collective never wait. A callback must
not wait for a collective that a later one starts: the error at the timeout names what is waited for.

When Python completes a torch future with an exception, C++ code such as DDP's reducer takes the exception for the
tensor that it expects. So a failed future here has a Failure as its value, which raises the error at any use: Python
raises the error itself, backward() a RuntimeError with its text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from dlcp.errors import CollectiveTimeoutError
from dlcp.torch import cuda
from dlcp.torch.callbacks import pool, run_logged
from dlcp.torch.failures import for_torch


class CallbackOrder:
    """The order of callbacks in this process: one for all groups, since a callback may use any group."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Of the communicator for what the callbacks start."""
        self._changed = threading.Condition()
        self._next = 0
        # The number of callbacks that have not returned, and whose they are, by ticket; in the order of tickets.
        self._open: dict[int, tuple[int, str]] = {}

    def enter(self, what: str) -> int:
        """The ticket of a callback registered now: a new one, or that of the callback that registers it."""
        with self._changed:
            if (running := _running()) is not None and running[0] is self:
                ticket = running[1]
            else:
                ticket = self._next
                self._next += 1
            count, known = self._open.get(ticket, (0, what))
            self._open[ticket] = count + 1, known
            return ticket

    def run(self, ticket: int, callback: Callable[[], None]) -> None:
        """Runs a callback under its ticket on this thread, and gives the ticket back."""
        before, _mine.running = _running(), (self, ticket)
        try:
            callback()
        finally:
            _mine.running = before
            with self._changed:
                count, what = self._open[ticket]
                self._open[ticket] = count - 1, what
                if count == 1:
                    del self._open[ticket]
                    self._changed.notify_all()

    def wait_turn(self, timeout_s: float) -> None:
        """In a callback: blocks until those with earlier tickets have returned. Raises CollectiveTimeoutError."""
        running = _running()
        assert running is not None
        with self._changed:
            if not self._changed.wait_for(
                lambda: next(iter(self._open)) == running[1], min(timeout_s, _LONGEST_S)
            ):
                text = (
                    f"a collective that a callback starts was not begun after {timeout_s:g} s (timeout): the"
                    f" callback of {next(iter(self._open.values()))[1]} was registered before and has not returned"
                )
                raise for_torch(CollectiveTimeoutError(text))


collectives_line = CallbackOrder("callbacks")
messages_line = CallbackOrder("callbacks of messages")


class _Mine(threading.local):
    """What this thread runs. A class attribute: asking a plain threading.local for what it lacks takes 0.5 us."""

    running: tuple[CallbackOrder, int] | None = None


_mine = _Mine()
# Longer waits are none: a thread cannot be asked to wait for ever.
_LONGEST_S = threading.TIMEOUT_MAX


def _running() -> tuple[CallbackOrder, int] | None:
    """The line and the ticket of the callback that this thread runs, if it does."""
    return _mine.running


def line_of_callback() -> CallbackOrder | None:
    """The line of the callback that this thread runs; None: it runs none."""
    running = _running()
    return None if running is None else running[0]


class Failure:
    """The value of a future that failed. Whatever is done with it raises the error."""

    def __init__(self, error: BaseException) -> None:
        # Set as an attribute: __getattr__ is called only for names that are not.
        self.error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self.error

    def __getitem__(self, index: object) -> NoReturn:
        raise self.error

    def __iter__(self) -> NoReturn:
        raise self.error

    def __repr__(self) -> str:
        # DDP's reducer shows this text when a communication hook's value is no tensor.
        return f"{type(self.error).__name__}: {self.error}"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # torch's C++ pickles a Python object to find the tensors in it.
        raise self.error


class CollectiveFuture(torch.futures.Future[Any]):
    """A future of a collective, or of a callback of one. On CUDA the streams that wait for it are ordered after it."""

    def __init__(
        self,
        devices: Sequence[torch.device] = (),
        what: str = "a collective",
        line: CallbackOrder = collectives_line,
    ) -> None:
        """`what`: for errors, whose future it is. `line`: of the tickets of its callbacks."""
        super().__init__(devices=list(devices))
        self._on = devices
        self._what = what
        self._line = line

    def then(self, callback: Callable[[Any], Any]) -> CollectiveFuture:
        """The future of `callback(self)`. That runs at once if this one is complete, else later on another thread."""
        child = CollectiveFuture(self._on, self._what, self._line)

        def run() -> None:
            # Completed under the callback's ticket, and so are the child's own callbacks.
            child.complete(lambda: callback(self))

        self._run_later(run)
        return child

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Runs `callback(self)` as `then` does. What it raises is logged."""
        self._run_later(lambda: callback(self))

    def wait(self) -> Any:
        """The value. Blocks until the future is complete. Raises the error of a failed one."""
        return _unpacked(super().wait())

    def value(self) -> Any:
        """The value of a complete future. Raises the error of a failed one."""
        return _unpacked(super().value())

    def complete(self, work: Callable[[], Any]) -> None:
        """Completes the future with what `work()` returns, or with the error that it raises. Again: nothing."""
        if self.done():
            return
        try:
            value = work()
        except BaseException as error:
            value = Failure(error)
        if self._on:
            # A stream that waits for the future waits for everything queued on these streams so far.
            with cuda.on_streams_of(self._on):
                self.set_result(value)
        else:
            self.set_result(value)

    def set_exception(self, result: Any) -> None:
        self.set_result(Failure(result))

    def _run_later(self, task: Callable[[], None]) -> None:
        ticket = self._line.enter(self._what)

        def on_streams() -> None:
            with cuda.on_streams_of(self._on):
                if self._on:
                    # The callback's streams wait for this future's work on the device. What waits for the callback's
                    # own future waits for what the callback queues on these streams.
                    super(CollectiveFuture, self).wait()
                task()

        def run() -> None:
            # The ticket is returned even if the streams fail: later callbacks wait for it.
            self._line.run(ticket, on_streams)

        if self.done():
            run_logged(run)
        else:
            super().add_done_callback(lambda _: pool.submit(run))


def _unpacked(value: Any) -> Any:
    if isinstance(value, Failure):
        raise value.error
    return value
