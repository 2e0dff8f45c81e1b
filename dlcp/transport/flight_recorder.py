"""The last operations of a process, kept in memory, and written to a file when a group fails.

When a collective hangs or fails, its user asks which rank called what, in which order, and which rank is missing. Each
rank keeps its last operations and writes them when a group fails, or on request (flight_trace.py).

Every operation is recorded, so recording only stores values: an Entry is made when somebody looks. The recorder learns
how an operation ended when later ones are recorded or on request; the duration is measured by the transport. When the
recorder is full, an operation that ends replaces the one that ended first: what hangs stays.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dlcp.transport.flight_trace import own_folder, trace_of, write_trace
from dlcp.transport.recorder_entry import Completion, Entry, Facts, Followed, RecordedGroup, count

DEFAULT_ENTRIES = 2048


class FlightRecorder:
    """The last operations of one rank.

    `rank`: in the job. `entries`: how many are kept; 0: none, and failures are not written. `path`: the file that
    `dump` writes if it is given no other (dump_path). `own_folder`: that file's folder must be this user's alone; where
    it is not, a fresh one is made and `path` changes. All methods may be called from any thread.

    It keeps what it follows until later operations are recorded or somebody looks: of what is over a few small ones or
    two of 64 KiB or more, or as many as there are that never end.
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
        # Those that have ended, and those that nothing is followed of.
        self._entries: deque[Entry | tuple[Facts, Completion]] = deque(maxlen=entries)
        self.numbers = itertools.count()
        self._groups: list[RecordedGroup] = []
        self._opened: dict[tuple[str, tuple[int, ...]], int] = {}
        self._lock = threading.Lock()
        self.followed: deque[tuple[Facts, Followed, Any]] = deque()
        """Operations that are not known to be over: what is said of each, what tells its end, and what is held."""

    @property
    def groups(self) -> list[tuple[RecordedGroup, list[Entry]]]:
        """The open groups, in the order in which they were opened, with up-to-date counts, and what is under way."""
        with self._settled():
            groups = list(self._groups)
            under_way = [self._entry_of(each) for each in self.followed.copy()]
            for entry in under_way:
                entry.group.counts_of(entry.operation)
        return [(group, [entry for entry in under_way if entry.group is group]) for group in groups]

    @property
    def under_way(self) -> list[Entry]:
        """Operations that are followed and not over, in no order."""
        with self._settled():
            return [self._entry_of(each) for each in self.followed.copy()]

    def held(self, group: RecordedGroup) -> list[Any]:
        """What was given to be held of this group's operations, where that is not over itself."""
        with self._settled():
            return [held for facts, _, held in self.followed.copy() if facts[1] is group and not held.over]

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

    def record(self, facts: Facts) -> Entry:
        """An operation that is about to start, of which the caller tells the rest."""
        entry = Entry(self._lock, *facts)
        self._entries.append(entry)
        return entry

    def follow(self, facts: Facts, followed: Followed, held: Any = None) -> None:
        """An operation that has started and tells by itself how it ends. `held`: for `held`, while it is under way.

        A group's native calls do the same for collectives (native/bind/group_calls.cpp).
        """
        self.followed.append((facts, followed, held))
        # Two others are looked after: what is over does not pile up behind one that never ends.
        self.look_after(3)

    def facts(
        self,
        group: RecordedGroup,
        sequence: int,
        operation: str,
        input_nbytes: int = 0,
        output_nbytes: int = 0,
        dtype: Any = None,
        root: int | None = None,
        timeout_s: float | None = None,
        label: str | None = None,
    ) -> Facts:
        """What there is to say of a collective when it starts.

        `sequence`: counts the group's collectives, equal on all ranks. `operation`: all_reduce, reduce, reduce_scatter,
        all_gather, broadcast, gather, scatter, all_to_all, barrier; where ranks have parts of different sizes
        all_gather_v and reduce_scatter_v. `dtype`: a DataType or its name; None: bytes. `root`: rank in the group.
        """
        group.enqueued = sequence
        return (
            next(self.numbers), group, sequence, operation, input_nbytes, output_nbytes, dtype, root, False, 0,
            timeout_s, label, time.time_ns(),
        )  # fmt: skip

    def message_facts(
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
    ) -> Facts:
        """As facts, of a message to or from `peer`, a rank in the group; None: from anyone.

        `operation`: send or receive.
        """
        sending = operation == "send"
        number = -1 if peer is None else count(group.sent if sending else group.received, peer)
        return (
            next(self.numbers), group, number, operation, nbytes if sending else 0, 0 if sending else nbytes, dtype,
            peer, True, tag, timeout_s, label, time.time_ns(),
        )  # fmt: skip

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
        """The operations kept and those under way, oldest first, as they stand now."""
        with self._settled():
            kept = [*self._entries, *self.followed.copy()] if self._entries.maxlen else []
        entries = [each if isinstance(each, Entry) else self._entry_of(each) for each in kept]
        return sorted(entries, key=lambda entry: entry.id)

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

    def look_after(self, most: int) -> None:
        """Settles those of the next `most` under way that are over."""
        over: list[Any] = []
        with self._lock:
            self._settle(most, over)

    @contextlib.contextmanager
    def _settled(self) -> Iterator[None]:
        """The lock, with everything settled that is over."""
        over: list[Any] = []
        with self._lock:
            self._settle(len(self.followed), over)
            yield

    def _settle(self, most: int, over: list[Any]) -> None:
        # `over` takes what was followed, to be let go of after the lock: whose memory goes with it may look here.
        # Other threads may add some meanwhile, but who holds the lock is the only one that takes any.
        followed = self.followed
        for _ in range(min(most, len(followed))):
            each = followed[0]
            facts, operation, _ = each
            if not operation.over:
                followed.rotate(-1)
                continue
            over.append(followed.popleft())
            if facts[8] or (completion := operation.completion) is None:
                entry = self._entry_of(each)
                entry.settle(operation.result)
                self._entries.append(entry)
            else:
                facts[1].note_completed(facts[3], facts[2], completion)
                self._entries.append((facts, completion))

    def _entry_of(self, known: Sequence[Any]) -> Entry:
        """Of the facts of an operation that has started, and, if it has been completed, how."""
        entry = Entry(self._lock, *known[0])
        entry.started_ns = entry.created_ns
        if isinstance(known[1], tuple):
            entry.completed_ns = entry.started_ns + int(known[1][0] * 1e9)
        return entry
