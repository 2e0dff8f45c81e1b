"""All-reduces that a switch adds up: which ones, and the thread that carries them out in the order of the calls.

A call is announced on its communicator, under the call's number, so that ranks that call something else, or do not use
the same switch, find out. What follows is on a group of the thread's alone, with which the communicator fails. A switch
that fails fails no sum: the ring adds then (reducer.py).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from dlcp import errors
from dlcp.transport.aggregation.address import SwitchAddress
from dlcp.transport.aggregation.reducer import SwitchReducer
from dlcp.transport.call_options import CallOptions, CollectiveKeywords
from dlcp.transport.communicator import Communicator
from dlcp.transport.element import ELEMENT_BYTES, DataType, Reduction
from dlcp.transport.plan import Memory, Recorded, check_aligned
from dlcp.transport.recorder_entry import Completion
from dlcp.transport.schedule.adders import Addition
from dlcp.transport.span import Span
from dlcp.transport.store import Store
from dlcp.transport.transfer import Dispatcher
from dlcp.transport.work import Work, WorkGroup

Opener = Callable[[str, tuple[int, ...], Store, float], Communicator]
"""Opens a communicator that nobody adds for: a name, members, a store, the timeout in seconds."""

# How long close() waits for sums under way.
_JOIN_S = 5.0


class _Sum:
    """A sum under way: what a _native.Collective is to Work and FlightRecorder, and once over its result too."""

    cause = peer = None
    sent_bytes = received_bytes = 0
    waiting_for = ()

    def __init__(self, steps: Callable[[], tuple[int, int]], finished: queue.SimpleQueue[list[int]]) -> None:
        self.steps: Callable[[], tuple[int, int]] | None = steps
        """What the thread does; holds the memory until the sum is over."""
        self.announced: Work
        self.exception: errors.DlcpError | None = None
        self.result = self
        self._finished = finished
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watches: list[int] = []

    @property
    def over(self) -> bool:
        return self._over.is_set()

    @property
    def completion(self) -> Completion | None:
        return (self.waited_s, self.sent_bytes, self.received_bytes) if self.error is None else None

    def wait(self, timeout_s: float | None) -> bool:
        return self._over.wait(None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))

    def watch(self, watch: int) -> bool:
        with self._lock:
            if not self.over:
                self._watches.append(watch)
            return not self.over

    def finish(self, exception: errors.DlcpError | None = None) -> None:
        with self._lock:
            if self.over:
                return
            self.waited_s, self.steps = time.monotonic() - self.announced.started_s, None
            self.exception, self.error = exception, exception and type(exception).__name__
            self.culprit = getattr(
                exception, "culprit", None
            )  # of all ranks: alike in the group and in the job
            self._over.set()
        if self._watches:
            self._finished.put(self._watches)


class SwitchSums:
    """One rank's sums by a switch; an Adder (schedule/adders.py). Made by `open_switch_sums`."""

    def __init__(self, beside: Communicator, address: SwitchAddress, store: Store, opener: Opener) -> None:
        self._beside = beside
        self._opener = opener
        self._address = address
        self._store = store
        self._control: Communicator | None = None
        self._reducer = SwitchReducer(
            address, beside.rank, beside.size, beside.job.place_on_host(beside.rank)
        )
        self._lock = threading.Lock()
        self._ending = False
        self._under_way: set[_Sum] = set()
        self._queue: queue.SimpleQueue[_Sum | None] = queue.SimpleQueue()
        # For the Dispatcher, to which this is what a _native.Runtime is to others.
        self._finished: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        self.next_finished = lambda _: self._finished.get()
        dispatcher = Dispatcher(cast("Any", self), beside.job.rank)
        wait_timeout = beside._diagnosis.wait_timeout
        self._group = WorkGroup(beside.name, beside.rank, _exception, wait_timeout, dispatcher.add)
        self._thread = threading.Thread(target=self._run, name="dlcp-switch-sums", daemon=True)
        self._thread.start()

    def takes(self, addition: Addition) -> bool:
        """As Adder.takes: all-reduces of float32 of some size, sums and averages.

        No numbered ones: one sum waits for the one before, so all ranks have to start them in one order.
        """
        return (
            (addition.collective, addition.dtype) == ("all_reduce", DataType.f32)
            and addition.op in (Reduction.SUM, Reduction.AVG)
            and addition.nbytes >= self._address.min_bytes
            and not (addition.factor is not None or addition.numbered)
        )

    def start(self, addition: Addition, inputs: Memory, outputs: Memory, how: CollectiveKeywords) -> Work:
        """As Adder.start."""
        del inputs
        beside, data, dtype, nbytes = self._beside, cast("Span", outputs), addition.dtype, addition.nbytes
        call = beside._calls.all_reduce(nbytes, dtype, addition.op, False, addition.agree)
        check_aligned(data, ELEMENT_BYTES[dtype])
        words = f"{call.words} by a switch ({self._address.agreed})"
        plan = beside._plan(None, words, beside._calls.all_reduce, 1, DataType.u8, Reduction.MAX, False)
        plan = replace(
            plan,
            words=words,
            algorithm="switch",
            recorded=Recorded(call.operation, nbytes, nbytes, dtype, None),
        )
        options = beside._options(how)
        steps = partial(self._sum, data, addition.op is Reduction.AVG, options)
        each: Any = _Sum(steps, self._finished)
        flag = Span.of(np.zeros(1, np.uint8))
        announced = beside._start(plan, None, flag, options._replace(wait_follows=False), followed=each)
        each.announced = announced
        with self._lock:
            if self._ending:  # since a moment ago: the thread takes no more
                each.finish(errors.CollectiveAbortedError(f"{words} was given up: the group is closed"))
            else:
                self._under_way.add(each)
                self._queue.put(each)
        return Work(
            self._group, each, replace(plan, operation=call.operation), announced.sequence, announced.started_s,
            options.label,
        )  # fmt: skip

    @property
    def under_way(self) -> int:
        """As Adder.under_way; what is still being announced counts as the communicator's."""
        with self._lock:
            return sum(each.announced.done() for each in self._under_way)

    def abort(self, reason: str = "") -> None:
        """As Adder.abort."""
        self._end()
        if self._control is not None:
            self._control.abort(reason)
            return
        if threading.current_thread() is self._thread:
            return  # of a sum that has failed, whose own error its work gets
        # The thread may be waiting in the store for ranks that have gone.
        with self._lock:
            waiting = list(self._under_way)
        for each in waiting:
            each.finish(errors.CollectiveAbortedError(f"the group was aborted: {reason}"))

    def close(self) -> None:
        """As Adder.close. What is under way ends as if the switch had failed, then nothing is begun any more."""
        self._end()
        self._thread.join(_JOIN_S)
        if self._control is not None:
            self._control.close()

    def withdraw(self) -> None:
        """As Adder.withdraw."""
        self._end()
        if self._control is not None:
            self._control.withdraw()

    def _end(self) -> None:
        self._reducer.stop()
        with self._lock:
            self._ending = True
            self._queue.put(None)

    def _run(self) -> None:
        while (each := self._queue.get()) is not None:
            failure = None
            try:
                each.announced.wait()
                if (steps := each.steps) is not None:
                    each.sent_bytes, each.received_bytes = steps()
            except BaseException as error:  # the thread must not leave a caller waiting
                failure = self._failure_of(error)
            with self._lock:
                self._under_way.remove(each)
            each.finish(failure)
        self._finished.put([])

    def _sum(self, data: Span, average: bool, options: CallOptions) -> tuple[int, int]:
        """Carries one out. The thread's group is opened once a call has been announced: then all ranks do so."""
        beside = self._beside
        if self._control is None:
            name, timeout_s = f"{beside.name}.switch", beside.timeout_s
            self._control = self._opener(name, beside.members, self._store, timeout_s)
            if beside.failed is not None:
                self._control.abort("the communicator has failed")
        how: CollectiveKeywords = {"timeout_s": options.timeout_s, "traffic_class": options.traffic_class}
        return self._reducer.all_reduce(self._control, data, average=average, call=how)

    def _failure_of(self, error: BaseException) -> errors.DlcpError:
        """A sum's exception. The thread's group fails too, on all ranks, and with it the communicator."""
        if not isinstance(error, errors.DlcpError):
            error = errors.CollectiveAbortedError(f"{type(error).__name__}: {error}")
        if self._control is not None:
            self._control.abort(str(error))
            if isinstance(error, errors.GroupFailedError) and self._control.failed is not None:
                error = self._control.failed
        if self._beside.failed is None:
            self._beside.fail_with(error)
            self._beside.abort(str(error))  # other ranks may have no sum under way
        return error


def _exception(_: Work, result: Any) -> errors.CollectiveError:
    return cast("errors.CollectiveError", result.exception)


def open_switch_sums(communicator: Communicator, store: Store, opener: Opener) -> SwitchSums | None:
    """The switch's sums of the first group of all of the job's ranks, in their order, for which the switch has a place.

    None: of another group. Raises SettingsError; AddressError: the UDP port is not free.
    """
    job = communicator.job
    address = SwitchAddress.parse(job.settings.aggregation or "")
    is_whole = communicator.members == tuple(range(job.size))
    if not is_whole or job.metrics.aggregation is not None or not address.serves(job.size):
        return None
    sums = SwitchSums(communicator, address, store, opener)
    job.metrics.aggregation = sums._reducer.account
    return sums
