"""One collective, or one message of a group, under way, and how it ended.

Waiting drives the transport from the waiting thread, without the interpreter's lock. Ctrl-C ends the wait, not the
operation, whose memory stays alive until it is over. The exception of a failed operation is made at the first request,
and is the same object from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dlcp import errors
from dlcp.checks import timeout
from dlcp.transport.bounded import CollectiveOutcome, outcome_of
from dlcp.transport.schedule.layout import BOUNDED

if TYPE_CHECKING:
    from dlcp._native import Collective, CollectiveResult
    from dlcp.transport.plan import Plan


@dataclass(frozen=True, slots=True)
class WorkGroup:
    """What a work needs of its group."""

    name: str
    rank: int
    """This rank in the group."""
    explain: Callable[[Work, CollectiveResult], errors.CollectiveError]
    """The exception of a work that has failed."""
    wait_timeout: Callable[[Work, float], errors.WaitTimeoutError]
    """The exception of a wait() that has lasted so many seconds."""
    call_when_over: Callable[[Work, Callable[[Any], object]], None]
    """Has a callback called with a work once that is over."""


@dataclass(frozen=True, slots=True)
class MessageWords:
    """What a work says of itself where there is no Plan."""

    operation: str
    words: str
    algorithm: str = ""


class Work:
    """An operation under way or over. Made by the methods of Communicator."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_collective",
        "_error",
        "_group",
        "_said",
        "_starts",
        "label",
        "marks",
        "numbered",
        "sequence",
        "started_s",
    )

    def __init__(
        self,
        group: WorkGroup,
        collective: Collective | None,
        said: Plan | MessageWords,
        sequence: int,
        started_s: float,
        label: str | None,
        starts: Sequence[int] = (),
        *,
        numbered: bool = True,
    ) -> None:
        self._group = group
        # None: it was over when it started, since it needed no other rank or moved no bytes.
        self._collective = collective
        self._said = said
        self._error: errors.CollectiveError | None = None
        # Of a bounded collective: where each rank's part of the input begins.
        self._starts = starts
        self._callbacks: list[Callable[[Any], object]] = []
        self.sequence = sequence
        """Of a collective: its number in the group, from 0. Of a single message: among those of this rank."""
        self.numbered = numbered
        """Whether all members of the group count it: True for collectives, False for single messages."""
        self.started_s = started_s
        """time.monotonic() at the start."""
        self.label = label
        """What the caller named it."""
        self.marks: NDArray[np.uint8] | None = None
        """Of an all_reduce with a deadline, once it is over: per rank in the group what is not 0 if its data is in."""

    def __repr__(self) -> str:
        state = "under way" if not self.done() else "over" if self._peek() is None else "failed"
        return f"<Work: {self.words}, number {self.sequence} of group {self._group.name}, {state}>"

    @property
    def operation(self) -> str:
        """Its name: all_reduce, send, …."""
        return self._said.operation

    @property
    def algorithm(self) -> str:
        """The schedule that a collective goes by, or who adds: hub, switch. Empty: nothing was to be sent."""
        return self._said.algorithm

    @property
    def words(self) -> str:
        """The operation with its arguments, and its label."""
        return self._said.words if self.label is None else f"{self._said.words} [{self.label}]"

    def done(self) -> bool:
        """Whether it is over, well or not. Does not block."""
        return self._collective is None or self._collective.over

    def wait(self, timeout_s: float | None = None) -> None:
        """Blocks until it is over, for at most `timeout_s` (None: as long as the operation may take).

        Raises the exception of the operation's failure (CollectiveTimeoutError, PeerFailedError, MismatchError,
        CollectiveAbortedError), and WaitTimeoutError: `timeout_s` has passed; it goes on then. ClosedError, ForkError.
        """
        collective = self._collective
        if collective is None:
            return
        if timeout_s is not None:
            timeout_s = timeout("timeout_s", timeout_s)
        if not collective.wait(timeout_s):
            assert timeout_s is not None
            raise self._group.wait_timeout(self, timeout_s)
        if collective.completion is None:
            error = self.exception()
            assert error is not None
            raise error

    def exception(self) -> errors.CollectiveError | None:
        """The exception of its failure, or None. After a failure that other ranks can explain it blocks for a moment.

        Raises DlcpError if it is not over yet.
        """
        result = self._peek()
        if result is None:
            return None
        if self._error is None:
            self._error = self._group.explain(self, result)
        return self._error

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Has `callback(self)` called once it is over: at once, by this thread, if it is already.

        Otherwise on the endpoint's callback thread, one after the other: a callback that blocks delays the others, so
        it needs a thread of its own. Its exceptions are logged.
        """
        self._group.call_when_over(self, callback)

    @property
    def source(self) -> int:
        """After a receive: the group rank that sent. Raises DlcpError: it is not over, failed, or was no receive."""
        peer = self._ended().peer
        if self.operation != "receive" or peer is None:
            raise errors.DlcpError(
                f"{self.words} has no source; only a receive that is over and went well has one"
            )
        return peer

    @property
    def nbytes(self) -> int:
        """After a send or receive: how many bytes went over. Raises DlcpError: it is not over, or was neither."""
        if self.numbered:
            raise errors.DlcpError(f"{self.words} has no number of bytes; send and receive have one")
        result = self._ended()
        return result.sent_bytes if self.operation == "send" else result.bytes

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """Payload bytes sent and received, once it is over; repairs not counted. Raises DlcpError: it is not over."""
        if self._collective is None:
            return 0, 0
        result = self._ended()
        return result.sent_bytes, result.received_bytes

    @property
    def contributors(self) -> tuple[int, ...]:
        """After an all_reduce with `deadline_s`: ranks in the group whose data it has, the same on all of them.

        Raises DlcpError: it is not over, failed, or was none.
        """
        if self.marks is None:
            raise errors.DlcpError(
                f"{self.words} has no contributors; an all_reduce with deadline_s has some"
            )
        if self._collective is not None and self._ended().error is not None:
            raise errors.DlcpError(f"{self.words} has failed, so nobody has contributed")
        return tuple(np.flatnonzero(self.marks.any(axis=1)).tolist())

    @property
    def outcome(self) -> CollectiveOutcome:
        """After a bounded or coded collective: what it cost and what was lost. Raises DlcpError: not over, or none."""
        if self.operation not in BOUNDED:
            raise errors.DlcpError(f"{self.words} has no outcome; a bounded or coded collective has one")
        if self._collective is None:
            return CollectiveOutcome((), (), 0, 0, 0)
        return outcome_of(self._ended(), self._starts, self._group.rank)

    # ---- helpers ----

    def _watch(self, watch: int) -> bool:
        return self._collective is not None and self._collective.watch(watch)

    def _ended(self) -> CollectiveResult:
        if self._collective is None or not self._collective.over:
            raise errors.DlcpError(f"{self.words} is not over; wait() first")
        return self._collective.result

    def _peek(self) -> CollectiveResult | None:
        """The result if it is over and has an error."""
        if self._collective is None:
            return None
        result = self._ended()
        # Releases the memory, even if no thread waits.
        self._collective.wait(0.0)
        return None if result.error is None else result


class ManyWorks(Work):
    """Works that are one operation to their caller: a message too long for one, in pieces that all have one tag."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[Work]) -> None:
        first = pieces[0]
        super().__init__(
            first._group,
            first._collective,
            first._said,
            first.sequence,
            first.started_s,
            first.label,
            numbered=False,
        )
        self._pieces = pieces

    def done(self) -> bool:
        """Whether all of it is over, well or not."""
        return all(piece.done() for piece in self._pieces)

    def wait(self, timeout_s: float | None = None) -> None:
        """As Work.wait; the time is for every piece."""
        for piece in self._pieces:
            piece.wait(timeout_s)

    def exception(self) -> errors.CollectiveError | None:
        """The exception of the first piece that failed, or None."""
        return next(filter(None, (piece.exception() for piece in self._pieces)), None)

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """As Work.add_done_callback, after the last piece."""
        left = len(self._pieces)
        lock = threading.Lock()

        def one_less(_: Work) -> None:
            nonlocal left
            with lock:
                left -= 1
                last = left == 0
            if last:
                callback(self)

        for piece in self._pieces:
            piece.add_done_callback(one_less)

    @property
    def nbytes(self) -> int:
        """How many bytes went over."""
        return sum(piece.nbytes for piece in self._pieces)

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """Payload bytes sent and received."""
        sent, received = zip(*(piece.moved_bytes for piece in self._pieces), strict=True)
        return sum(sent), sum(received)
