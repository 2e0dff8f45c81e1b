"""One group at a hub: starts at its cores what the group's workers announce.

Every worker announces every collective; the first announcement of a number starts it, on all cores of this hub that the
group has. A worker that calls something else under the number is found out by its tags and fails the group, as
between ranks.

A collective with a deadline waits for the announcements of all workers until then, and starts without those that are
late. Cores take what these send, whenever they do, and throw it away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlcp import _native, errors
from dlcp.hub.core import Core
from dlcp.hub.core_group import CoreGroup, WatchedOperation
from dlcp.hub.deadlines import Deadlines
from dlcp.transport.call_options import CallOptions
from dlcp.transport.hub.announcement import NBYTES, Announcement, AnnouncementKind
from dlcp.transport.hub.group import ANNOUNCEMENT_TAG
from dlcp.transport.hub.plan import HubShape
from dlcp.transport.span import Span

logger = logging.getLogger("dlcp")

# Receives for announcements that are posted at a time: as many as workers may send before one is handled.
_POSTED_PER_WORKER = 2
_POSTED_MAX = 64


@dataclass(eq=False, slots=True)
class _Posted:
    """A receive, and whether its announcement is there."""

    content: np.ndarray[Any, np.dtype[np.uint8]]
    worker: int | None = None
    """Whose announcement is there; None: none is."""


class ServedGroup:
    """One group. `own`: per core of this hub its rank in the group, of those that the group has."""

    def __init__(
        self,
        number: int,
        name: str,
        shape: HubShape,
        members: list[int],
        own: list[tuple[Core, int]],
        listener: Core,
    ) -> None:
        self.number = number
        self.name = name
        self._lock = threading.Lock()
        # How many of this rack's workers have announced a number, until all have.
        self._announced: dict[int, int] = {}
        # Those with a deadline that have not started, and the workers that have announced them.
        self._due: dict[int, tuple[Announcement, set[int]]] = {}
        self._deadlines = Deadlines()
        self._posted: deque[_Posted] = deque()
        self._busy = False
        self.cores: list[CoreGroup] = []
        try:
            for core, rank in own:
                self.cores.append(CoreGroup(core, number, shape, members, rank))
        except BaseException:
            self.close(0.0)
            raise
        rack = self.cores[0].rack
        self._workers = [worker for worker, place in enumerate(shape.racks) if place == rack]
        listening = next(group for group in self.cores if group.core is listener)
        for _ in range(min(_POSTED_MAX, _POSTED_PER_WORKER * len(self._workers))):
            self._listen(listening)

    def _listen(self, group: CoreGroup) -> None:
        """Posts a receive for an announcement of any worker."""
        posted = _Posted(np.zeros(NBYTES, np.uint8))
        with self._lock:
            try:
                operation = group.runtime.start_message(
                    self.number,
                    False,
                    None,
                    ANNOUNCEMENT_TAG,
                    Span.of(posted.content),
                    CallOptions(),
                    posted.content,
                )
            except (ValueError, errors.DlcpError):
                return  # the group is closed
            self._posted.append(posted)
        group.core.endpoint.dispatcher.add(
            WatchedOperation(operation), lambda _: self._heard(group, operation.result, posted)
        )

    def _heard(self, group: CoreGroup, result: _native.CollectiveResult, posted: _Posted) -> None:
        """Acts on what receives brought, one announcement after the other, in the order of the receives.

        That is the order in which a worker sent them, and the parts of a load depend on it. One that is posted when its
        announcement is there already is heard at once, before others that were there earlier: then only noted.
        """
        if result.error is not None:
            group.note_failure(result.error)
            return
        with self._lock:
            posted.worker = result.peer
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                if not self._posted or (worker := self._posted[0].worker) is None:
                    self._busy = False
                    return
                said = self._posted.popleft().content.tobytes()
            self._listen(group)
            try:
                self._take(Announcement.read(said), worker)
            except Exception as why:
                self.abort(f"an announcement that it cannot serve: {why}")

    def _take(self, said: Announcement, worker: int) -> None:
        if said.kind is AnnouncementKind.FORGET:
            # Whoever says it: each worker does, before its next collective, when it has its part of all that used it.
            for group in self.cores:
                group.core.forget(group, said)
            return
        with self._lock:
            count = self._announced.get(said.sequence, 0) + 1
            if count == len(self._workers):
                self._announced.pop(said.sequence, None)
            else:
                self._announced[said.sequence] = count
                if len(self._announced) > (most := self.cores[0].core.waiting_max):
                    raise ValueError(f"{most} of its workers' wait for other workers already")
        if said.deadline_us:
            self._gather(said, worker, is_first=count == 1, is_last=count == len(self._workers))
        elif count == 1:
            self._start(said)

    def _start(self, said: Announcement, absent: tuple[int, ...] = ()) -> None:
        for group in self.cores:
            group.core.start(group, said, absent)

    def _gather(self, said: Announcement, worker: int, *, is_first: bool, is_last: bool) -> None:
        """Starts a collective once all workers have announced it, at the latest when its time is up."""
        with self._lock:
            if is_first:
                self._due[said.sequence] = said, set()
            elif said.sequence not in self._due:
                return  # it has started without this worker
            self._due[said.sequence][1].add(worker)
        if is_last:
            self._end_waiting(said.sequence)
        elif is_first:
            wait_s = said.deadline_us * 1e-6
            self._deadlines.add(said.sequence, wait_s, lambda: self._end_waiting(said.sequence))

    def _end_waiting(self, sequence: int) -> None:
        with self._lock:
            said, workers = self._due.pop(sequence, (None, set()))
        if said is None:
            return
        self._deadlines.drop(sequence)
        absent = tuple(worker for worker in self._workers if worker not in workers)
        try:
            self._start(said, absent)
        except Exception as why:
            self.abort(f"an announcement that it cannot serve: {why}")

    @property
    def failed(self) -> bool:
        """Whether it has failed at one of the cores."""
        return any(group.failure is not None for group in self.cores)

    def abort(self, reason: str) -> None:
        """Fails the group on all members."""
        for group in self.cores:
            group.abort(f"group {self.name!r}: {reason}")

    def close(self, timeout_s: float, *, orderly: bool = True) -> None:
        """Leaves the group once nothing is under way, at the latest after `timeout_s`. Again: nothing.

        Not `orderly`: a worker has gone without a word. Then once the group has failed: until then others may still
        come and wait for that worker, and learn from the cores that it has gone. Who comes later learns of the end.
        """
        end_s = time.monotonic() + timeout_s
        for group in self.cores:
            group.wait_over(max(0.0, end_s - time.monotonic()), orderly=orderly)
        for group in self.cores:
            group.close(tell=not orderly)
        self._deadlines.close()
