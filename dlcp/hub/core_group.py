"""One core's end of a group: runs its part of each collective, on memory of its own.

Between the sum and the reply an optimizer may work on weights that stay here (native/collective/update.cpp): then the
weights come back in place of the sum. A sum of coded values is coded once here (native/collective/coded.cpp), and what
its code leaves stays for the next of its row.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from dlcp import _native
from dlcp.hub.core import Core
from dlcp.hub.memory import Memory, RowResidual, Weights
from dlcp.transport.call_options import CallOptions
from dlcp.transport.coded import GROUP_VALUES
from dlcp.transport.hub.announcement import Announcement, AnnouncementKind
from dlcp.transport.hub.plan import HubShape, KeyPlan

logger = logging.getLogger("dlcp")


class WatchedOperation:
    """A native operation, for the endpoint's Dispatcher."""

    def __init__(self, operation: _native.Collective) -> None:
        self.operation = operation
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Whether it is over."""
        return self.operation.over

    def _watch(self, watch: int) -> bool:
        return self.operation.watch(watch)


class CoreGroup:
    """One core's end of a group; a Starter (core.py)."""

    def __init__(self, core: Core, number: int, shape: HubShape, members: list[int], own: int) -> None:
        self.core = core
        self.shape = shape
        self.rank = own
        """In the group."""
        self.rack = (own - shape.workers) // shape.cores
        self.number = number
        self._free: dict[tuple[int, ...], list[Memory]] = {}
        self._weights: dict[int, Weights] = {}
        self._residuals: dict[int, RowResidual] = {}
        self._lock = threading.Lock()
        self._under_way = 0
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self.failure: str | None = None
        """Why it has failed; None: it has not."""
        runtime = core.endpoint.runtime
        if not runtime.open_group(number, members, own):
            raise ValueError(f"group number {number} is open")

    @property
    def runtime(self) -> _native.Runtime:
        """The core's."""
        return self.core.endpoint.runtime

    def run(self, said: Announcement, plan: KeyPlan, when_over: Callable[[], None], present: int) -> bool:
        """Starts a collective; `when_over` is called once its memory is free. False: the group is closed or failed.

        `present`: how many workers are in the sum.
        """
        with self._lock:
            if self._closed:
                return False
            self._under_way += 1
            free = self._free.get(plan.sizes)
            memory = free.pop() if free else None
        try:
            if memory is None:
                memory = Memory(plan.sizes)
            else:
                self.core.keep(-memory.nbytes)
            operation = self._start(said, plan, memory, present)
        except Exception as error:
            self._give_back(plan, memory)
            self.abort(f"{said.kind.name} of {said.nbytes} bytes: {error}")
            return False

        def over(_: object) -> None:
            if (error := operation.result.error) is not None:
                self.note_failure(error)
            self._give_back(plan, None if said.kind is AnnouncementKind.LOAD else memory)
            when_over()

        self.core.endpoint.dispatcher.add(WatchedOperation(operation), over)
        return True

    def _start(self, said: Announcement, plan: KeyPlan, memory: Memory, present: int) -> _native.Collective:
        """Starts it in native code. Raises ValueError: it cannot."""
        average_over, update, weights = said.average_over, None, None
        if said.deadline_us and average_over:
            average_over = present
        coded, residual = None, None
        if said.kind in (AnnouncementKind.STEP, AnnouncementKind.FETCH):
            weights = self._weights_of(said, plan)
            update = weights.update(said, self.core.vml_square_root)
            average_over = 0  # divided by the optimizer, before anything else
        elif said.kind is AnnouncementKind.LOAD:
            self._load(said, plan, memory)
        elif said.coded is not None:
            residual = self._residual_of(said, plan)
            coded = _native.CodedRules(said.coded.codec) if residual is None else residual.rules(said.coded)
        command = _native.CollectiveCommand(
            plan.schedule, self.number, said.signature, said.type, said.op, average_over, copies_short=False
        )
        options = CallOptions(traffic_class=said.traffic_class)
        return self.runtime.start_collective(
            command,
            said.sequence & 0xFFFFFFFF,
            None,
            memory.spans,
            options,
            # Weights, states and residuals are addresses to native code, and may be replaced or let go meanwhile.
            (memory, () if weights is None else weights.arrays, residual),
            coded=coded,
            update=update,
        )

    def _load(self, said: Announcement, plan: KeyPlan, memory: Memory) -> None:
        """What is reduced there stays here, as weights or state. Raises ValueError: there is no room.

        It is complete when the first worker announces a step, since that worker has it then.
        """
        assert said.rule is not None
        if said.part:
            self._weights_of(said, plan).replace_state(said.part, memory)
            return
        nbytes = memory.nbytes * (1 + said.rule.states)
        with self._lock:
            if self._closed:
                raise ValueError("the group is closed")  # and has let go of what it held
            old = self._weights.get(said.weights)
            more = nbytes - (old.nbytes if old else 0)
            if not self.core.hold(more):
                raise ValueError(f"they need {nbytes} bytes, of {self.core.memory_bytes} for the job")
            try:
                self._weights[said.weights] = Weights(memory, said.rule.states)
            except MemoryError:
                self.core.hold(-more)
                raise

    def _weights_of(self, said: Announcement, plan: KeyPlan) -> Weights:
        weights = self._weights.get(said.weights)
        if weights is None or weights.memory.sizes != plan.sizes:
            raise ValueError(f"no weights {said.weights} of this size are loaded")
        return weights

    def _residual_of(self, said: Announcement, plan: KeyPlan) -> RowResidual | None:
        """What is kept for a coded sum, made for the first one; None: it keeps nothing.

        Raises ValueError: there is no room, or nothing of its size.
        """
        assert said.coded is not None
        number = said.coded.kept
        if not number:
            return None
        values = sum(plan.sizes) // said.buffer.group_bytes * GROUP_VALUES
        with self._lock:
            if self._closed:
                raise ValueError("the group is closed")
            known = self._residuals.get(number)
            if known is None and not said.coded.before:
                known = RowResidual(values)
                if not self.core.hold(known.nbytes):
                    raise ValueError(
                        f"what codes leave needs {known.nbytes} bytes, of {self.core.memory_bytes} for the job"
                    )
                self._residuals[number] = known
            if known is None or known.values != values:
                raise ValueError(f"nothing of this size is kept under {number}")
            return known

    def forget(self, number: int) -> None:
        """Lets go of what is kept under a number. There is nothing: does nothing."""
        with self._lock:
            if (known := self._residuals.pop(number, None)) is not None:
                self.core.hold(-known.nbytes)

    def _give_back(self, plan: KeyPlan, memory: Memory | None) -> None:
        """Ends a collective; its memory, if any, serves the next one."""
        with self._lock:
            if memory is not None and not self._closed and self.core.keep(memory.nbytes):
                self._free.setdefault(plan.sizes, []).append(memory)
            self._under_way -= 1
            self._changed.notify_all()

    def note_failure(self, reason: str) -> None:
        """The group has failed, and its members know."""
        with self._changed:
            if self.failure is not None or self._closed:
                return
            self.failure = reason
            self._changed.notify_all()
        logger.warning("hub: group %d has failed at core rank %d: %s", self.number, self.core.rank, reason)

    def abort(self, reason: str) -> None:
        """Fails the group on all members."""
        self.note_failure(reason)
        self.close(tell=True)

    def wait_over(self, timeout_s: float, *, orderly: bool) -> None:
        """Waits until nothing is under way and, if not `orderly`, the group has failed; at most so long."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (self._under_way == 0 and (orderly or self.failure is not None)),
                timeout_s,
            )

    def close(self, *, tell: bool = False) -> None:
        """Leaves the group; what is under way ends. `tell`: its members learn of it. Again: nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            self.core.keep(-sum(memory.nbytes for free in self._free.values() for memory in free))
            self._free.clear()
            # Operations under way keep theirs.
            self.core.hold(-sum(weights.nbytes for weights in self._weights.values()))
            self._weights.clear()
            self.core.hold(-sum(residual.nbytes for residual in self._residuals.values()))
            self._residuals.clear()
        self.runtime.close_group(self.number, tell)
