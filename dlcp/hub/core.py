"""One core of a hub, for one job: an endpoint with its thread, and a bound on the memory of what it does.

A key belongs to one core of a rack from the first contribution to the reply. The endpoint's thread adds contributions
in the engine's receive path (native/collective/dataflow.cpp) and takes no lock of Python's; Python starts each
collective and no more (core_group.py).

Memory is bounded: a collective that does not fit waits until an earlier one is over. Contributions to it are kept or
held meanwhile, as of any rank that is behind. With one rack it cannot wait for ever, since a collective that has
started needs nothing of the core but what its workers send unasked. Cores of several racks need each other's sums:
where memory is short and they have begun with different collectives, the time of these ends it.

What waits is an announcement and no more, and no more of them than a worker may have messages under way. Of plans those
used last are kept, as far as a part of the memory goes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dlcp import errors
from dlcp.transport.endpoint import Endpoint
from dlcp.transport.hub.announcement import Announcement, AnnouncementKind
from dlcp.transport.hub.buffer import Buffer
from dlcp.transport.hub.plan import HubShape, KeyPlan, core_bytes, key_plan
from dlcp.transport.rank_card import RankCard
from dlcp.transport.settings import Settings

# What is kept for later collectives is at most this part of a core's memory.
_KEPT_PART = 4
# And plans at most this part.
_PLANS_PART = 8


class Starter(Protocol):
    """What starts a group's collectives at a core; a CoreGroup."""

    shape: HubShape
    rank: int
    rack: int

    def run(self, said: Announcement, plan: KeyPlan, when_over: Callable[[], None], present: int) -> bool:
        """Starts a collective of `present` workers, and calls `when_over` after it. False: it cannot."""

    def forget(self, number: int) -> None:
        """Lets go of what is kept under a number."""

    def abort(self, reason: str) -> None:
        """Fails the group on all members."""


@dataclass(slots=True)
class _Waiting:
    """A collective that waits for memory."""

    group: Starter
    said: Announcement
    absent: tuple[int, ...]
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
        self._plans: OrderedDict[tuple[HubShape, int, Buffer, tuple[int, ...]], KeyPlan] = OrderedDict()
        self._plans_bytes = 0
        self.waiting_max = settings.max_messages_per_peer
        """How many announcements may wait, here and at a group for its other workers."""
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

    def start(self, group: Starter, said: Announcement, absent: tuple[int, ...] = ()) -> None:
        """Starts a collective, or has it wait for memory. Raises ValueError: it can never have it, or too many wait.

        `absent`: workers that are not in the sum.
        """
        nbytes = core_bytes(group.shape, group.rack, said.buffer, self._plan(group, said, absent).sizes)
        if nbytes > self.memory_bytes:
            raise ValueError(f"{said.nbytes} bytes need {nbytes} at a core, which has {self.memory_bytes}")
        self._wait(_Waiting(group, said, absent, nbytes))

    def forget(self, group: Starter, said: Announcement) -> None:
        """Has a group let go of what it keeps, behind those of its sums that wait for memory: they may still use it.

        Before other groups' sums, which may wait for just this memory. Raises ValueError: too many wait.
        """
        self._wait(_Waiting(group, said, (), 0))

    def _wait(self, one: _Waiting) -> None:
        with self._lock:
            if len(self._waiting) >= self.waiting_max:
                raise ValueError(f"{self.waiting_max} wait for memory already")
            place = len(self._waiting)
            if one.said.kind is AnnouncementKind.FORGET:
                while place > 0 and self._waiting[place - 1].group is not one.group:
                    place -= 1
            self._waiting.insert(place, one)
        self._start_waiting()

    def _plan(self, group: Starter, said: Announcement, absent: tuple[int, ...]) -> KeyPlan:
        """What this core does with such a buffer."""
        key = group.shape, group.rank, said.buffer, absent
        with self._lock:
            if (plan := self._plans.get(key)) is not None:
                self._plans.move_to_end(key)
                return plan
        plan = key_plan(*key)
        with self._lock:
            if self._plans.setdefault(key, plan) is plan:
                self._plans_bytes += plan.nbytes
            while self._plans_bytes > self.memory_bytes // _PLANS_PART:
                self._plans_bytes -= self._plans.popitem(last=False)[1].nbytes
        return plan

    def _start_waiting(self) -> None:
        """Starts what there is memory for, in order. Called while it runs, as by what is over at once: nothing."""
        with self._lock:
            if self._starting:
                return
            self._starting = True
        while (first := self._next()) is not None:
            if first.said.kind is AnnouncementKind.FORGET:
                first.group.forget(first.said.weights)
                continue
            if (room := self.memory_bytes - self._held_bytes) < first.nbytes:
                # Nothing else is under way: what stays here has the rest, and keeps it.
                first.group.abort(
                    f"{first.said.kind.name} of {first.said.nbytes} bytes needs {first.nbytes} at a core, which has"
                    f" {room} beside what it keeps"
                )
                self._over(first.nbytes)
                continue
            try:
                plan = self._plan(first.group, first.said, first.absent)
            except errors.DlcpError as error:
                first.group.abort(str(error))
                self._over(first.nbytes)
                continue
            present = first.group.shape.workers - len(first.absent)
            if not first.group.run(first.said, plan, partial(self._over, first.nbytes), present):
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
        """Counts what stays here from step to step, or less of it (negative). False: there would be too much."""
        with self._lock:
            if nbytes > 0 and self._held_bytes + nbytes > self.memory_bytes:
                return False
            self._held_bytes += nbytes
            return True

    def close(self) -> None:
        """Closes the endpoint: peers learn of it. Again: nothing."""
        self.endpoint.close()
