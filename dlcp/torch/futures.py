"""Futures whose callbacks may start collectives, while any number of buckets are pending.

Two things make that hard. A callback may wait for a collective that it started, so it must not hold up the thread on
which others complete: each runs on a thread of the callback pool. And all ranks must start collectives in one order,
while callbacks run whenever their future completes, which differs from rank to rank, and beside the main thread. So

- a callback has a ticket, counted in the order in which the program registers callbacks; what callbacks register
  themselves runs under their ticket;
- a collective that a callback starts waits until the callbacks with earlier tickets have returned;
- it runs on a communicator for callbacks alone (process_group.py), so that the main thread's are not in between.

Callbacks that start nothing never wait for one another. What cannot work: a callback that waits for a collective that a
later callback will start.

A future of torch that Python completes with an exception is, to C++ code such as DDP's reducer, complete with a value
that is no tensor, which it takes for one all the same. So the value of a failed future here is a Failure, which raises
the error at any use: Python sees the error itself, backward() raises a RuntimeError of its text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from dlcp.torch import cuda
from dlcp.torch.callbacks import pool


class Tickets:
    """The order of callbacks, of the whole process: a callback may use any group."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = 0
        # Tickets of callbacks that have not returned, with how many those are; in the order of tickets.
        self._open: dict[int, int] = {}
        self._mine = threading.local()

    @property
    def current(self) -> int | None:
        """The ticket of the callback that this thread runs, if it does."""
        return getattr(self._mine, "ticket", None)

    def enter(self) -> int:
        """A ticket for a callback registered now: a new one, or that of the callback that registers it."""
        with self._changed:
            ticket = self.current
            if ticket is None:
                ticket = self._next
                self._next += 1
            self._open[ticket] = self._open.get(ticket, 0) + 1
            return ticket

    def run(self, ticket: int, callback: Callable[[], None]) -> None:
        """Runs a callback under its ticket on this thread, and gives the ticket back."""
        before, self._mine.ticket = self.current, ticket
        try:
            callback()
        finally:
            self._mine.ticket = before
            with self._changed:
                self._open[ticket] -= 1
                if self._open[ticket] == 0:
                    del self._open[ticket]
                    self._changed.notify_all()

    def wait_turn(self) -> None:
        """In a callback: blocks until those with earlier tickets have returned."""
        ticket = self.current
        with self._changed:
            self._changed.wait_for(lambda: next(iter(self._open)) == ticket)


tickets = Tickets()


class Failure:
    """The value of a future that failed. Whatever is done with it raises the error."""

    def __init__(self, error: BaseException) -> None:
        # Past __getattr__'s reach, which raises for every name that is not there.
        self.error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self.error

    def __getitem__(self, index: object) -> NoReturn:
        raise self.error

    def __iter__(self) -> NoReturn:
        raise self.error

    def __repr__(self) -> str:
        # What DDP's reducer says of a communication hook's value that is no tensor.
        return f"{type(self.error).__name__}: {self.error}"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # How C++ finds the tensors in a Python object: it pickles it.
        raise self.error


class CollectiveFuture(torch.futures.Future[Any]):
    """A future of a collective, or of a callback of one. On CUDA the streams that wait for it are ordered after it."""

    def __init__(self, devices: Sequence[torch.device] = ()) -> None:
        super().__init__(devices=list(devices))
        self._on = devices

    def then(self, callback: Callable[[Any], Any]) -> CollectiveFuture:
        """The future of `callback(self)`, which runs after this one is complete, on a thread of its own."""
        child = CollectiveFuture(self._on)

        def run() -> None:
            # Complete under the callback's ticket: what hangs on the child belongs to it.
            child.complete(lambda: callback(self))

        self._run_later(run)
        return child

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Runs `callback(self)` after this one is complete, on a thread of its own. What it raises is logged."""
        self._run_later(lambda: callback(self))

    def wait(self) -> Any:
        """The value; blocks until it is there. Raises the error."""
        return _unpacked(super().wait())

    def value(self) -> Any:
        """The value of a complete future. Raises the error."""
        return _unpacked(super().value())

    def complete(self, work: Callable[[], Any]) -> None:
        """Completes the future with what `work()` returns, or with the error that it raises."""
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
        ticket = tickets.enter()

        def on_streams() -> None:
            with cuda.on_streams_of(self._on):
                if self._on:
                    # The callback's streams wait for what is still under way on the device; and what it starts on them
                    # comes before whatever waits for its own future.
                    super(CollectiveFuture, self).wait()
                task()

        # The ticket comes back whatever becomes of the streams: later callbacks wait for it.
        super().add_done_callback(lambda _: pool.submit(lambda: tickets.run(ticket, on_streams)))


def _unpacked(value: Any) -> Any:
    if isinstance(value, Failure):
        raise value.error
    return value
