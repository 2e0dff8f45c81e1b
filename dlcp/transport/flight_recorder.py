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
import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlcp.transport.flight_trace import own_folder, trace_of, write_trace
from dlcp.transport.operation_counts import OperationCounts
from dlcp.transport.recorder_entry import Entry, Followed, RecordedGroup, count

DEFAULT_ENTRIES = 2048


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
            times = count(self._opened, (name, ranks))
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
            self._lock, next(self._numbers), group, sequence, operation, input_nbytes, output_nbytes, dtype, root,
            False, 0, timeout_s, label, followed,
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
        number = -1 if peer is None else count(group.sent if sending else group.received, peer)
        entry = Entry(
            self._lock, next(self._numbers), group, number, operation, nbytes if sending else 0,
            0 if sending else nbytes, dtype, peer, True, tag, timeout_s, label, followed,
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

    def _look_after(self, most: int) -> None:
        """Settles those of the next `most` under way that are over. Whoever takes one off the list settles it."""
        under_way = self._under_way
        while under_way and most > 0:
            most -= 1
            try:
                entry = under_way.popleft()
            except IndexError:  # another thread has taken the last one
                return
            followed = entry.followed
            if followed is not None and followed.over:
                result = followed.result
                entry.followed = None
                with self._lock:
                    entry.settle(result)
            else:
                under_way.append(entry)
