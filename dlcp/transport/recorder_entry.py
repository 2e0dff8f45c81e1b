"""One operation as the flight recorder keeps it, and the group that it belongs to."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dlcp.transport.operation_counts import OperationCounts

if TYPE_CHECKING:
    from dlcp._native import CollectiveResult

Key = TypeVar("Key")


Completion = tuple[float, int, int]
"""Of a collective that has succeeded: how many seconds it took, and payload bytes sent and received."""


class Followed(Protocol):
    """An operation under way that a recorder can look at: _native.Collective."""

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""

    @property
    def completion(self) -> Completion | None:
        """How it ended, once it is over; None: it has failed."""

    @property
    def result(self) -> CollectiveResult:
        """All that is known of how it ended; asked for once it is over."""


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

    def counts_of(self, operation: str) -> OperationCounts:
        """Those of one kind of operation."""
        counts = self.counts.get(operation)
        if counts is None:
            counts = self.counts[operation] = OperationCounts()
        return counts

    def note_completed(self, operation: str, sequence: int, completion: Completion) -> None:
        """A collective has succeeded."""
        self.counts_of(operation).note_completed(*completion)
        if sequence > self.completed:  # collectives of one group may end out of order
            self.completed = sequence


Facts = tuple[
    int, RecordedGroup, int, str, int, int, Any, int | None, bool, int, float | None, str | None, int
]
"""What is known of an operation when it starts: what Entry is made of, in order, besides the lock."""


@dataclass(slots=True, eq=False)
class Entry:
    """One operation. Made by FlightRecorder; changed by whoever runs the operation, where nothing is followed."""

    lock: threading.Lock
    """Of its recorder."""
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
    created_ns: int
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
        with self.lock:
            self.completed_ns = now_ns
            completion = (now_ns - self.created_ns) / 1e9, sent, received
            if self.message:
                group.counts_of(self.operation).note_completed(*completion)
                self._note_message(received, source)
            else:
                group.note_completed(self.operation, self.sequence, completion)

    def fail(
        self, failure: str, *, culprit: int | None = None, waiting_for: Sequence[tuple[int, bool, int]] = ()
    ) -> None:
        """The operation has failed.

        `culprit`: group rank. `waiting_for`: members that something was missing of: (group rank, whether it should have
        sent, bytes). If its group has failed with it, call FlightRecorder.group_failed, which writes the record.
        """
        with self.lock:
            self.completed_ns = time.time_ns()
            self._fail(failure, culprit, waiting_for, 0, 0)

    def settle(self, result: CollectiveResult) -> None:
        """Takes over how a message, or what failed, has ended. With the recorder's lock held."""
        duration_s = result.waited_s
        self.completed_ns = self.started_ns + int(duration_s * 1e9)
        error = result.error
        if error is None:
            received_bytes = result.received_bytes
            counts = self.group.counts_of(self.operation)
            counts.note_completed(duration_s, result.sent_bytes, received_bytes)
            self._note_message(received_bytes, result.peer)
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
            self.sequence = count(self.group.received, source)
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
        self.group.counts_of(self.operation).note_failed(waited_for, sent_bytes, received_bytes)

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


def element_name(dtype: Any) -> str | None:
    """Of a DataType, or of its name; None: bytes."""
    return None if dtype is None else str(getattr(dtype, "name", dtype))


def count(counted: dict[Key, int], key: Key) -> int:
    """How often this has been called for `key` before."""
    number = counted.get(key, 0)
    counted[key] = number + 1
    return number
