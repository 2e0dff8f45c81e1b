"""The last operations of a process, kept in memory, and written to a file when a group fails.

When a collective hangs or fails, its user asks which rank called what, in which order, and which rank is missing. Each
rank keeps its last operations and writes them when a group fails, or on request (flight_trace.py).

Every operation is recorded, so recording only stores values. Names and sizes are computed on request. The recorder
learns how an operation ended when a later one is recorded or on request; the duration is measured by the transport.
When the recorder is full, a new operation replaces the oldest.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dlcp.transport.flight_trace import element_name, own_folder, trace_of, write_trace
from dlcp.transport.operation_counts import OperationCounts

if TYPE_CHECKING:
    from dlcp._native import CollectiveResult

Key = TypeVar("Key")

DEFAULT_ENTRIES = 2048


class Followed(Protocol):
    """An operation under way that a recorder can look at: _native.Collective."""

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""

    @property
    def result(self) -> CollectiveResult:
        """How it ended; asked for once it is over."""


@dataclass(slots=True, eq=False)
class RecordedGroup:
    """A group of ranks as the recorder knows it. Made by FlightRecorder.open_group."""

    id: int
    name: str
    members: tuple[int, ...]
    """Global ranks, by rank in the group."""
    own: int
    """This rank in the group."""
    description: str
    enqueued: int = -1
    """Sequence number of the collective that was started last; -1: none."""
    completed: int = -1
    """The highest sequence number of a collective that succeeded; -1: none."""
    sent: dict[int, int] = field(default_factory=dict)
    """Per group rank, messages sent so far."""
    received: dict[int, int] = field(default_factory=dict)
    counts: dict[str, OperationCounts] = field(default_factory=dict)
    """By operation, whether the recorder keeps entries or not."""
    failure: str | None = None
    """Why the group has failed, if it has."""


@dataclass(slots=True, eq=False)
class Entry:
    """One operation. Made by FlightRecorder.record and record_message; changed by whoever runs the operation."""

    recorder: FlightRecorder
    id: int
    group: RecordedGroup
    sequence: int
    """Number of the collective in its group, or of the message in its direction; -1: not known yet."""
    operation: str
    input_nbytes: int
    output_nbytes: int
    dtype: Any
    """A DataType or its name; None: bytes."""
    peer: int | None
    """Group rank of the other side of a message, or the root; None: none, or not known yet."""
    message: bool
    """Between two ranks, not a collective."""
    tag: int
    timeout_s: float | None
    label: str | None
    followed: Followed | None = None
    """What is under way and not known to be over; the recorder finds out by itself how it ends."""
    created_ns: int = field(default_factory=time.time_ns)
    started_ns: int = 0
    completed_ns: int = 0
    """When it ended, well or not; 0: it has not, as for started_ns."""
    failure: str | None = None
    culprit: int | None = None
    """Global rank of whoever is to blame."""
    waiting_for: tuple[dict[str, Any], ...] = ()

    @property
    def state(self) -> str:
        """`scheduled`, `started`, `completed` or `failed`."""
        if self.failure is not None:
            return "failed"
        if self.completed_ns:
            return "completed"
        return "started" if self.started_ns else "scheduled"

    def start(self) -> None:
        """The operation is under way, and complete or fail will be called."""
        self.started_ns = time.time_ns()

    def complete(self, source: int | None = None, nbytes: int | None = None) -> None:
        """The operation has succeeded. After a receive: the group rank that sent, and how many bytes came."""
        now_ns = time.time_ns()
        sent = received = 0
        if self.operation == "send":
            sent = self.input_nbytes
        elif self.operation == "receive":
            received = self.output_nbytes if nbytes is None else nbytes
        group = self.group
        with self.recorder._lock:
            self.completed_ns = now_ns
            group.counts[self.operation].note_completed((now_ns - self.created_ns) / 1e9, sent, received)
            if self.message:
                self._note_message(received, source)
            elif self.sequence > group.completed:
                group.completed = self.sequence

    def fail(
        self, failure: str, *, culprit: int | None = None, waiting_for: Sequence[tuple[int, bool, int]] = ()
    ) -> None:
        """The operation has failed.

        `culprit`: group rank. `waiting_for`: members that something was missing of: (group rank, whether it should have
        sent, bytes). If its group has failed with it, call FlightRecorder.group_failed, which writes the record.
        """
        with self.recorder._lock:
            self.completed_ns = time.time_ns()
            self._fail(failure, culprit, waiting_for, 0, 0)

    def _settle(self, result: CollectiveResult) -> None:
        """Takes over how what was followed has ended. For the one thread that has taken this off the list."""
        duration_s = result.waited_s
        self.completed_ns = self.started_ns + int(duration_s * 1e9)
        error = result.error
        if error is None:
            group = self.group
            received_bytes = result.received_bytes
            group.counts[self.operation].note_completed(duration_s, result.sent_bytes, received_bytes)
            if self.message:
                self._note_message(received_bytes, result.peer)
            elif self.sequence > group.completed:  # collectives of one group may end out of order
                group.completed = self.sequence
            return
        cause = result.cause
        failure = error if cause in (None, error) else f"{error} ({cause})"
        self._fail(
            failure,
            result.culprit,
            [(each.peer, each.for_arrival, each.missing_bytes) for each in result.waiting_for],
            result.sent_bytes,
            result.received_bytes,
        )

    def _note_message(self, nbytes: int, source: int | None) -> None:
        """What a message that has been completed says of itself."""
        if self.operation == "receive":
            self.output_nbytes = nbytes
        if self.peer is None and source is not None:
            self.sequence = _count(self.group.received, source)
            self.peer = source

    def _fail(
        self,
        failure: str,
        culprit: int | None,
        waiting_for: Sequence[tuple[int, bool, int]],
        sent_bytes: int,
        received_bytes: int,
    ) -> None:
        self.failure = failure
        members = self.group.members
        self.culprit = members[culprit] if culprit is not None else None
        self.waiting_for = tuple(
            {"rank": members[rank], "for_arrival": for_arrival, "missing_bytes": missing}
            for rank, for_arrival, missing in waiting_for
        )
        waited_for = {rank for rank, _, _ in waiting_for}
        self.group.counts[self.operation].note_failed(waited_for, sent_bytes, received_bytes)

    def describe(self) -> dict[str, Any]:
        """Everything known, JSON-able; ranks are global."""
        group = self.group
        peer = group.members[self.peer] if self.peer is not None else None
        return {
            "id": self.id,
            "group": group.name,
            "operation": self.operation,
            "sequence": self.sequence if self.sequence >= 0 else None,
            "label": self.label,
            "input_bytes": self.input_nbytes,
            "output_bytes": self.output_nbytes,
            "dtype": element_name(self.dtype),
            "peer": peer,
            "tag": self.tag if self.message else None,
            "state": self.state,
            "created_ns": self.created_ns,
            "started_ns": self.started_ns or None,
            "completed_ns": self.completed_ns or None,
            "timeout_s": self.timeout_s,
            "failure": self.failure,
            "culprit": self.culprit,
            "waiting_for": list(self.waiting_for),
        }


class FlightRecorder:
    """The last operations of one rank.

    `rank`: in the job. `entries`: how many are kept; 0: none, and failures are not written. `path`: the file that
    `dump` writes if it is given no other (dump_path). `own_folder`: that file's folder must be this user's alone; where
    it is not, a fresh one is made and `path` changes. All methods may be called from any thread.

    It keeps what an entry follows until a later operation is recorded or somebody looks: at most a few that are over.
    """

    def __init__(
        self,
        rank: int,
        *,
        entries: int = DEFAULT_ENTRIES,
        path: str | os.PathLike[str] | None = None,
        own_folder: bool = False,
    ) -> None:
        self.rank = rank
        self.path = Path(path) if path is not None else None
        self._own_folder = own_folder
        self._entries: deque[Entry] = deque(maxlen=entries)
        self._numbers = itertools.count()
        self._groups: list[RecordedGroup] = []
        self._opened: dict[tuple[str, tuple[int, ...]], int] = {}
        self._lock = threading.Lock()
        self._under_way: deque[Entry] = deque()

    @property
    def groups(self) -> list[RecordedGroup]:
        """The open groups, in the order in which they were opened, with up-to-date counts."""
        self._look_after(len(self._under_way))
        with self._lock:
            return list(self._groups)

    @property
    def under_way(self) -> list[Entry]:
        """Operations that are followed and not over, in no order."""
        self._look_after(len(self._under_way))
        # A copy, made without running any other code.
        return [entry for entry in self._under_way.copy() if entry.followed is not None]

    def open_group(self, name: str, members: Sequence[int], description: str = "") -> RecordedGroup:
        """A group to record operations of.

        `name` tells it from others, on all members alike; `members`: global ranks, this one among them, in their order
        in the group; `description`: free text, the same on all members.
        """
        ranks = tuple(members)
        with self._lock:
            times = _count(self._opened, (name, ranks))
            group = RecordedGroup(
                sum(self._opened.values()) - 1,
                f"{name}.{times}" if times else name,
                ranks,
                ranks.index(self.rank),
                description or "undefined",
            )
            self._groups.append(group)
        return group

    def close_group(self, group: RecordedGroup) -> None:
        """No more operations of this group will come; those recorded stay."""
        with self._lock, contextlib.suppress(ValueError):
            self._groups.remove(group)

    def record(
        self,
        group: RecordedGroup,
        sequence: int,
        operation: str,
        input_nbytes: int = 0,
        output_nbytes: int = 0,
        dtype: Any = None,
        *,
        root: int | None = None,
        timeout_s: float | None = None,
        label: str | None = None,
        followed: Followed | None = None,
    ) -> Entry:
        """A collective that is about to start; with `followed`: that has started.

        `sequence`: counts the group's collectives, equal on all ranks. `operation`: all_reduce, reduce, reduce_scatter,
        all_gather, broadcast, gather, scatter, all_to_all, barrier; where ranks have parts of different sizes
        all_gather_v and reduce_scatter_v. `dtype`: a DataType or its name; None: bytes. `root`: rank in the group.
        """
        entry = Entry(
            self, next(self._numbers), group, sequence, operation, input_nbytes, output_nbytes, dtype, root, False, 0,
            timeout_s, label, followed,
        )  # fmt: skip
        group.enqueued = sequence
        return self._keep(entry)

    def record_message(
        self,
        group: RecordedGroup,
        operation: str,
        peer: int | None,
        nbytes: int,
        dtype: Any = None,
        *,
        tag: int = 0,
        timeout_s: float | None = None,
        label: str | None = None,
        followed: Followed | None = None,
    ) -> Entry:
        """A message to or from `peer`, a rank in the group, that is about to start, or has. None: from anyone.

        `operation`: send or receive.
        """
        sending = operation == "send"
        number = -1 if peer is None else _count(group.sent if sending else group.received, peer)
        entry = Entry(
            self, next(self._numbers), group, number, operation, nbytes if sending else 0, 0 if sending else nbytes,
            dtype, peer, True, tag, timeout_s, label, followed,
        )  # fmt: skip
        return self._keep(entry)

    def _keep(self, entry: Entry) -> Entry:
        counts = entry.group.counts
        with self._lock:
            counted = counts.get(entry.operation)
            if counted is None:
                counted = counts[entry.operation] = OperationCounts()
            counted.started += 1
            self._entries.append(entry)
        if entry.followed is not None:
            entry.started_ns = entry.created_ns
            # Two others are looked after: what is over does not pile up behind one that never ends.
            self._look_after(2)
            self._under_way.append(entry)
        return entry

    def group_failed(self, group: RecordedGroup, failure: str) -> Path | None:
        """A group has failed: writes the record, if there is a path and it was not known. Answers the file if written.

        Raises nothing: what has failed already should not fail again for this.
        """
        with self._lock:
            if group.failure is not None:
                return None
            group.failure = failure
        if self.path is None or self._entries.maxlen == 0:
            return None
        try:
            return self.dump()
        except Exception:
            return None

    # ---- looking ----

    def entries(self) -> list[Entry]:
        """The operations kept, oldest first, as they stand now."""
        self._look_after(len(self._under_way))
        with self._lock:
            kept = list(self._entries)
        return sorted(kept, key=lambda entry: entry.id)

    def snapshot(self) -> list[dict[str, Any]]:
        """What is kept, JSON-able, oldest first; ranks are global, times are of the system clock."""
        return [entry.describe() for entry in self.entries()]

    def trace(self) -> dict[str, Any]:
        """What is kept, in the format of torch's flight recorder (flight_trace.py); JSON-able."""
        with self._lock:
            groups = list(self._groups)
        return trace_of(groups, self.entries())

    def dump_json(self) -> str:
        """`trace` as JSON text."""
        return json.dumps(self.trace())

    def dump(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes `trace` for `torchfrtrace`, replacing the file; answers its path. None: the recorder's own.

        Folders are made as needed. The file's name must end in the rank. Raises OSError; ValueError: there is no path.
        """
        target = self.path if path is None else Path(path)
        if target is None:
            raise ValueError("this recorder has no path of its own; name one")
        if path is None and self._own_folder:
            self.path = target = own_folder(target.parent) / target.name
        write_trace(self.trace(), target)
        return target

    def _look_after(self, count: int) -> None:
        """Settles those of the next few under way that are over. Whoever takes one off the list settles it."""
        under_way = self._under_way
        while under_way and count > 0:
            count -= 1
            try:
                entry = under_way.popleft()
            except IndexError:  # another thread has taken the last one
                return
            followed = entry.followed
            if followed is not None and followed.over:
                result = followed.result
                entry.followed = None
                with self._lock:
                    entry._settle(result)
            else:
                under_way.append(entry)


def _count(counted: dict[Key, int], key: Key) -> int:
    """How often this has been called for `key` before."""
    number = counted.get(key, 0)
    counted[key] = number + 1
    return number
