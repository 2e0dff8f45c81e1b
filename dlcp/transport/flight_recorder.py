"""The last operations of a process, kept in memory, and written where torch's trace tool reads them.

When a collective hangs or fails, the question is who called what, in which order, and who did not come. Each rank keeps
its last operations and writes them to a file when a group fails, or when asked; `torchfrtrace FOLDER` lines the files
of all ranks up and names the first operation that differs.

Recording is part of every operation, so it does no more than note values. Names and sizes are worked out when somebody
looks. How an operation ended is read off what it follows, when a later one is recorded or somebody looks; so its end is
seen late, and its duration is the transport's own. The oldest operation goes when a new one needs its place.

The tool knows torch's own backends only, and takes a group's messages for collectives of all its members. So
operations carry the prefix of torch's backend for CPUs, and each direction between two ranks is written as a group of
its own, in which the i-th send belongs to the i-th receive.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dlcp import __version__, _native
from dlcp.transport.operation_counts import OperationCounts

if TYPE_CHECKING:
    from dlcp._native import CollectiveResult

Key = TypeVar("Key")

DEFAULT_ENTRIES = 2048

# The format that this writes: version_val in torch's FlightRecorder.hpp. The tool refuses to mix versions.
TRACE_VERSION = "2.10"
# The prefix of operations that the tool accepts for tensors of a CPU; it accepts no unknown one.
_TRACE_BACKEND = "gloo"
# torch's names of element types, and their sizes in bytes, by ours.
_ELEMENTS = {each.type.name: (each.recorder_name, each.nbytes) for each in _native.DATA_TYPES}
# Operations whose input and output are as large on all ranks, though some ranks bring only one of them.
_ONE_SIZE = frozenset({"all_reduce", "broadcast", "reduce", "all_gather_v", "reduce_scatter_v"})


class Followed(Protocol):
    """An operation under way that a recorder can look at: _native.Collective."""

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""

    @property
    def result(self) -> CollectiveResult:
        """How it ended; asked for once it is over."""


class RecordedGroup:
    """A group of ranks as the recorder knows it. Made by FlightRecorder.open_group."""

    __slots__ = (
        "completed",
        "counts",
        "description",
        "enqueued",
        "failure",
        "id",
        "members",
        "name",
        "own",
        "received",
        "sent",
    )

    def __init__(self, number: int, name: str, members: tuple[int, ...], own: int, description: str) -> None:
        self.id = number
        self.name = name
        self.members = members
        """Global ranks, by rank in the group."""
        self.own = own
        """This rank in the group."""
        self.description = description
        self.enqueued = -1
        """Sequence number of the collective that was started last; -1: none."""
        self.completed = -1
        """The highest sequence number of a collective that succeeded; -1: none."""
        self.sent: dict[int, int] = {}
        """Per group rank, messages sent so far."""
        self.received: dict[int, int] = {}
        self.counts: dict[str, OperationCounts] = {}
        """By operation, whether the recorder keeps entries or not."""
        self.failure: str | None = None
        """Why the group has failed, if it has."""


class Entry:
    """One operation. Made by FlightRecorder.record and record_message; changed by whoever runs the operation."""

    __slots__ = (
        "completed_ns",
        "created_ns",
        "culprit",
        "dtype",
        "failure",
        "followed",
        "group",
        "id",
        "input_nbytes",
        "label",
        "message",
        "operation",
        "output_nbytes",
        "peer",
        "recorder",
        "sequence",
        "started_ns",
        "tag",
        "timeout_s",
        "waiting_for",
    )

    def __init__(
        self,
        recorder: FlightRecorder,
        number: int,
        group: RecordedGroup,
        sequence: int,
        operation: str,
        input_nbytes: int,
        output_nbytes: int,
        dtype: Any,
        peer: int | None,
        message: bool,
        tag: int,
        timeout_s: float | None,
        label: str | None,
    ) -> None:
        self.recorder = recorder
        self.id = number
        self.group = group
        self.sequence = sequence
        self.operation = operation
        self.input_nbytes = input_nbytes
        self.output_nbytes = output_nbytes
        self.dtype = dtype
        self.peer = peer
        self.message = message
        self.tag = tag
        self.timeout_s = timeout_s
        self.label = label
        self.followed: Followed | None = None
        self.created_ns = time.time_ns()
        self.started_ns = 0
        self.completed_ns = 0
        self.failure: str | None = None
        self.culprit: int | None = None
        self.waiting_for: tuple[dict[str, Any], ...] = ()

    @property
    def state(self) -> str:
        """`scheduled`, `started`, `completed` or `failed`."""
        if self.failure is not None:
            return "failed"
        if self.completed_ns:
            return "completed"
        return "started" if self.started_ns else "scheduled"

    def follow(self, operation: Followed) -> None:
        """The operation is under way; the recorder finds out by itself how it ends."""
        self.started_ns = time.time_ns()
        self.followed = operation
        self.recorder._follow(self)

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
            "dtype": _element_name(self.dtype),
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
    `dump` writes unless told otherwise; see dump_path. All methods may be called from any thread.

    It keeps what an entry follows until a later operation is recorded or somebody looks: at most a few that are over.
    """

    def __init__(
        self, rank: int, *, entries: int = DEFAULT_ENTRIES, path: str | os.PathLike[str] | None = None
    ) -> None:
        self.rank = rank
        self.path = Path(path) if path is not None else None
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
    ) -> Entry:
        """A collective that is about to start.

        `sequence`: counts the group's collectives, equal on all ranks. `operation`: all_reduce, reduce, reduce_scatter,
        all_gather, broadcast, gather, scatter, all_to_all, barrier; where ranks have parts of different sizes
        all_gather_v and reduce_scatter_v. `dtype`: a DataType or its name; None: bytes. `root`: rank in the group.
        """
        entry = Entry(
            self,
            next(self._numbers),
            group,
            sequence,
            operation,
            input_nbytes,
            output_nbytes,
            dtype,
            root,
            False,
            0,
            timeout_s,
            label,
        )
        with self._lock:
            group.enqueued = sequence
            counts = group.counts.get(operation)
            if counts is None:
                counts = group.counts[operation] = OperationCounts()
            counts.started += 1
            self._entries.append(entry)
        return entry

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
    ) -> Entry:
        """A message to or from `peer`, a rank in the group, that is about to start. None: from anyone.

        `operation`: send or receive.
        """
        sending = operation == "send"
        number = -1 if peer is None else _count(group.sent if sending else group.received, peer)
        entry = Entry(
            self,
            next(self._numbers),
            group,
            number,
            operation,
            nbytes if sending else 0,
            0 if sending else nbytes,
            dtype,
            peer,
            True,
            tag,
            timeout_s,
            label,
        )
        with self._lock:
            counts = group.counts.get(operation)
            if counts is None:
                counts = group.counts[operation] = OperationCounts()
            counts.started += 1
            self._entries.append(entry)
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
        except OSError:
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
        """What is kept, in the format of torch's flight recorder; JSON-able."""
        with self._lock:
            groups = list(self._groups)
        pg_config = {
            group.name: _group_config(group.name, group.description, group.members) for group in groups
        }
        entries = []
        for entry in self.entries():
            traced, members = _trace_entry(entry)
            entries.append(traced)
            name, description = traced["process_group"]
            pg_config.setdefault(name, _group_config(name, description, members))
        return {
            "version": TRACE_VERSION,
            "comm_lib_version": f"dlcp {__version__}",
            "nccl_comm_state": {},
            "pg_config": pg_config,
            "pg_status": {
                str(group.id): {
                    "last_enqueued_collective": str(group.enqueued),
                    "last_started_collective": str(group.enqueued),
                    "last_completed_collective": str(group.completed),
                }
                for group in groups
            },
            "failures": {group.name: group.failure for group in groups if group.failure is not None},
            "entries": entries,
        }

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
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Whole or not at all: the tool may look at any time. The name must not look like a dump.
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                pickle.dump(self.trace(), file)
            Path(temporary).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
        return target

    def _follow(self, entry: Entry) -> None:
        """Follows one more, and looks after two others: what is over does not pile up behind one that never ends."""
        self._look_after(2)
        self._under_way.append(entry)

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


def dump_path(rank: int, directory: str | None, job: int) -> Path:
    """Where a rank writes. All ranks of a host that ask with the same values write to one folder.

    `directory`: as set; None: where TORCH_FR_DUMP_TEMP_FILE says (a path that the rank is appended to), else a folder
    of this user and job among temporary files.
    """
    if directory is not None:
        return Path(directory) / f"rank_{rank}"
    prefix = os.environ.get("TORCH_FR_DUMP_TEMP_FILE")
    if prefix:
        return Path(f"{prefix}{rank}")
    return Path(tempfile.gettempdir()) / f"dlcp-{os.getuid()}-{job:08x}" / f"rank_{rank}"


def _count(counted: dict[Key, int], key: Key) -> int:
    """How often this has been called for `key` before."""
    number = counted.get(key, 0)
    counted[key] = number + 1
    return number


def _element_name(dtype: Any) -> str | None:
    return None if dtype is None else str(getattr(dtype, "name", dtype))


def _group_config(name: str, description: str, members: Sequence[int]) -> dict[str, str]:
    return {"name": name, "desc": description, "ranks": str(list(members))}


def _trace_entry(entry: Entry) -> tuple[dict[str, Any], Sequence[int]]:
    """An operation as torch writes it, and the members of the group that it is written under."""
    group = entry.group
    type_name, item_bytes = _ELEMENTS.get(_element_name(entry.dtype) or "u8", ("Byte", 1))
    input_nbytes, output_nbytes = entry.input_nbytes, entry.output_nbytes
    name, description = group.name, group.description
    members: Sequence[int] = group.members
    sequence = max(entry.sequence, 0)
    operation = entry.operation
    if entry.message:
        name, members, operation = _direction(entry)
        description = "messages"
        input_nbytes = output_nbytes = max(input_nbytes, output_nbytes)
    elif operation in _ONE_SIZE:
        input_nbytes = output_nbytes = max(input_nbytes, output_nbytes)
    has_data = operation != "barrier"
    traced = {
        "record_id": entry.id,
        "pg_id": group.id,
        "process_group": (name, description),
        "collective_seq_id": sequence,
        "p2p_seq_id": sequence if entry.message else 0,
        "op_id": entry.id,
        "is_p2p": entry.message,
        "profiling_name": f"{_TRACE_BACKEND}:{operation}",
        "input_sizes": [[input_nbytes // item_bytes]] if has_data else [],
        "output_sizes": [[output_nbytes // item_bytes]] if has_data else [],
        "input_dtypes": [type_name] if has_data else [],
        "output_dtypes": [type_name] if has_data else [],
        "time_created_ns": entry.created_ns,
        "time_discovered_started_ns": entry.started_ns or None,
        "time_discovered_completed_ns": entry.completed_ns or None,
        "timeout_ms": int(1000 * entry.timeout_s) if entry.timeout_s is not None else 0,
        # torch knows no failure: what has ended without being completed has failed.
        "state": "started" if entry.state == "failed" else entry.state,
        "retired": entry.completed_ns != 0,
        "frames": [],
        "label": entry.label,
        "failure": entry.failure,
        "culprit": entry.culprit,
        "waiting_for": list(entry.waiting_for),
    }
    if entry.state == "completed":
        traced["duration_ms"] = (entry.completed_ns - (entry.started_ns or entry.created_ns)) / 1e6
    return traced, members


def _direction(entry: Entry) -> tuple[str, list[int], str]:
    """The group of two that stands for one direction between two ranks: its name, its members, the operation in it."""
    group = entry.group
    own = group.members[group.own]
    if entry.peer is None:
        # Nobody has answered yet, so nobody else has this operation.
        return f"{group.name} anyone->{own}", [own], "recv 0<-0"
    peer = group.members[entry.peer]
    source, destination = (own, peer) if entry.operation == "send" else (peer, own)
    members = sorted((source, destination))
    s, d = members.index(source), members.index(destination)
    operation = f"send {s}->{d}" if entry.operation == "send" else f"recv {d}<-{s}"
    return f"{group.name} {source}->{destination}", members, operation
