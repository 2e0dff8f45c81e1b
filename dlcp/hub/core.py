"""One core of a hub, for one job: an endpoint with its thread, and the memory of the keys that it owns.

A key belongs to one core of a rack from the first contribution to the reply. The endpoint's thread adds contributions
in the engine's receive path (native/collective/dataflow.cpp) and takes no lock of Python's; Python starts each
collective and no more. Between the sum and the reply an optimizer may work on weights that stay here
(native/collective/update.cpp): then the weights come back in place of the sum.

Memory is bounded: a collective that does not fit waits until an earlier one is over. Contributions to it are kept or
held meanwhile, as of any rank that is behind. It cannot wait for ever, since a collective that has started needs
nothing of the core but what its workers send unasked.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dlcp import _native
from dlcp.transport.call_options import CallOptions
from dlcp.transport.endpoint import Endpoint
from dlcp.transport.hub.announcement import Announcement, Kind
from dlcp.transport.hub.plan import KeyPlan, Shape, core_bytes, key_plan
from dlcp.transport.rank_card import RankCard
from dlcp.transport.settings import Settings
from dlcp.transport.span import Span

logger = logging.getLogger("dlcp")

# Plans kept per group: sizes and types of its buffers.
_PLANS_MAX = 256
# What is kept for later collectives is at most this part of a core's memory.
_KEPT_PART = 4


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


@dataclass(slots=True)
class _Waiting:
    """A collective that waits for memory."""

    group: CoreGroup
    said: Announcement
    plan: KeyPlan
    nbytes: int


class Core:
    """One. `memory_bytes`: what its collectives may need together."""

    def __init__(
        self,
        rank: int,
        number: int,
        settings: Settings,
        incarnation: int,
        memory_bytes: int,
        vml_square_root: int | None = None,
    ) -> None:
        self.rank = rank
        """In the job."""
        self.memory_bytes = memory_bytes
        self.vml_square_root = vml_square_root
        self.endpoint = Endpoint(rank, settings=settings, has_groups=True, incarnation=incarnation)
        self.card = RankCard.of_this_process(
            rank, self.endpoint.address, None, role=f"the hub's core {number} (rank {rank})"
        )
        """What workers know of it."""
        self._lock = threading.Lock()
        self._used_bytes = 0
        self._kept_bytes = 0
        self._held_bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._starting = False
        self._peers: set[int] = set()

    @property
    def used_bytes(self) -> int:
        """What the collectives under way may need."""
        return self._used_bytes

    def connect(self, rank: int, address: str) -> None:
        """Makes a worker or another core a peer. Again: nothing. Does not wait for the handshake."""
        with self._lock:
            if rank in self._peers:
                return
            self._peers.add(rank)
        self.endpoint.connect(rank, address, wait=False)

    def start(self, group: CoreGroup, said: Announcement) -> None:
        """Starts a collective, or has it wait for memory. Raises ValueError: it can never have it."""
        plan = group.plan(said)
        nbytes = core_bytes(group.shape, group.rack, plan.sizes)
        if nbytes > self.memory_bytes:
            raise ValueError(f"{said.nbytes} bytes need {nbytes} at a core, which has {self.memory_bytes}")
        with self._lock:
            self._waiting.append(_Waiting(group, said, plan, nbytes))
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Starts what there is memory for, in order. Called while it runs, as by what is over at once: nothing."""
        with self._lock:
            if self._starting:
                return
            self._starting = True
        while (first := self._next()) is not None:
            if not first.group.run(first.said, first.plan, partial(self._over, first.nbytes)):
                self._over(first.nbytes)

    def _next(self) -> _Waiting | None:
        """The next collective that there is memory for, which it then has; None: there is none now."""
        with self._lock:
            first = self._waiting[0] if self._waiting else None
            needed = 0 if first is None else self._used_bytes + self._held_bytes + first.nbytes
            if first is None or (self._used_bytes and needed > self.memory_bytes):
                self._starting = False
                return None
            self._waiting.popleft()
            self._used_bytes += first.nbytes
            return first

    def _over(self, nbytes: int) -> None:
        with self._lock:
            self._used_bytes -= nbytes
        self._start_waiting()

    def keep(self, nbytes: int) -> bool:
        """Counts memory that is kept for later collectives, or no longer (negative). False: there would be too much."""
        with self._lock:
            if self._kept_bytes + nbytes > self.memory_bytes // _KEPT_PART:
                return False
            self._kept_bytes += nbytes
            return True

    def hold(self, nbytes: int) -> bool:
        """Counts weights and their state, or less of them (negative). False: there would be too much."""
        with self._lock:
            if nbytes > 0 and self._held_bytes + nbytes > self.memory_bytes:
                return False
            self._held_bytes += nbytes
            return True

    def close(self) -> None:
        """Closes the endpoint: peers learn of it. Again: nothing."""
        self.endpoint.close()


class CoreGroup:
    """One core's end of a group."""

    def __init__(self, core: Core, number: int, shape: Shape, members: list[int], own: int) -> None:
        self.core = core
        self.shape = shape
        self.rank = own
        """In the group."""
        self.rack = (own - shape.workers) // shape.cores
        self.number = number
        self._plans: dict[tuple[int, _native.DataType], KeyPlan] = {}
        self._free: dict[tuple[int, ...], list[Memory]] = {}
        self._weights: dict[int, Weights] = {}
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

    def plan(self, said: Announcement) -> KeyPlan:
        """What this core does with such a buffer."""
        key = (said.nbytes, said.type)
        plan = self._plans.get(key)
        if plan is None:
            plan = key_plan(self.shape, self.rank, said.nbytes, said.type)
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def run(self, said: Announcement, plan: KeyPlan, when_over: Callable[[], None]) -> bool:
        """Starts a collective; `when_over` is called once its memory is free. False: the group is closed or failed."""
        with self._lock:
            if self._closed:
                return False
            self._under_way += 1
            free = self._free.get(plan.sizes)
            memory = free.pop() if free else None
        if memory is None:
            memory = Memory(plan.sizes)
        else:
            self.core.keep(-memory.nbytes)
        try:
            operation = self._start(said, plan, memory)
        except Exception as error:
            self._give_back(plan, memory)
            self.abort(f"{said.kind.name} of {said.nbytes} bytes: {error}")
            return False

        def over(_: object) -> None:
            if (error := operation.result.error) is not None:
                self.note_failure(error)
            self._give_back(plan, None if said.kind is Kind.LOAD else memory)
            when_over()

        self.core.endpoint.dispatcher.add(WatchedOperation(operation), over)
        return True

    def _start(self, said: Announcement, plan: KeyPlan, memory: Memory) -> _native.Collective:
        """Starts it in native code. Raises ValueError: it cannot."""
        average_over, update = said.average_over, None
        if said.kind is Kind.STEP:
            update = self._weights_of(said, plan).update(said, self.core.vml_square_root)
            average_over = 0  # divided by the optimizer, before anything else
        elif said.kind is Kind.LOAD:
            self._load(said, memory)
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
            (memory, update),
            update=update,
        )

    def _load(self, said: Announcement, memory: Memory) -> None:
        """What is reduced there stays here, as weights. Raises ValueError: there is no room.

        They are complete when the first worker announces a step, since it has them then.
        """
        assert said.rule is not None
        nbytes = memory.nbytes * (1 + said.rule.states)
        with self._lock:
            old = self._weights.pop(said.weights, None)
            if not self.core.hold(nbytes - (old.nbytes if old else 0)):
                raise ValueError(f"they need {nbytes} bytes, of {self.core.memory_bytes} for the job")
            self._weights[said.weights] = Weights(memory, said.rule.states)

    def _weights_of(self, said: Announcement, plan: KeyPlan) -> Weights:
        weights = self._weights.get(said.weights)
        if weights is None or weights.memory.sizes != plan.sizes:
            raise ValueError(f"no weights {said.weights} of this size are loaded")
        return weights

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
            # Not before what is under way has let go of them: the operations keep them.
            self.core.hold(-sum(weights.nbytes for weights in self._weights.values()))
            self._weights.clear()
        self.runtime.close_group(self.number, tell)


class Memory:
    """Memory for the keys of one collective, each on cache lines of its own."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        places = []
        at = 0
        for size in sizes:
            places.append(at)
            at += -(-size // 64) * 64
        self.sizes = sizes
        self.nbytes = at + 64
        self._array = np.empty(self.nbytes, np.uint8)
        start = -(-self._array.ctypes.data // 64) * 64
        self.spans = [Span(start + place, size) for place, size in zip(places, sizes, strict=True)]

    def clear(self) -> None:
        """All zeros."""
        self._array.fill(0)


class Weights:
    """Weights of a group's keys at this core, and an optimizer's state beside them."""

    def __init__(self, memory: Memory, states: int) -> None:
        self.memory = memory
        self.states = [Memory(memory.sizes) for _ in range(states)]
        for state in self.states:
            state.clear()
        self.nbytes = memory.nbytes * (1 + states)

    def update(self, said: Announcement, vml_square_root: int | None) -> _native.UpdateRules:
        """The rules of a step. Raises ValueError: another optimizer, or values out of range.

        `vml_square_root`: the address of torch's own square root; None: roots are rounded to nearest.
        """
        assert said.rule is not None
        return _native.UpdateRules(
            said.rule.native(),
            said.step,
            max(1, said.average_over),
            [span.address for span in self.memory.spans],
            [[span.address for span in state.spans] for state in self.states],
            vml_square_root,
        )
