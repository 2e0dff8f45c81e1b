"""One pending message, as a future.

A future is done when the message's final event has come; until then the endpoint holds on to the memory. Callbacks
run one after the other on a thread of the endpoint's own, started when the first is added. So a callback may wait for
other messages, and neither packets nor the interpreter's end wait for a callback.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dlcp import checks, errors
from dlcp.transport.driver_events import log_event
from dlcp.transport.logger import RankLogger
from dlcp.transport.outcome import Outcome
from dlcp.transport.statistics import LogEntry

if TYPE_CHECKING:
    from dlcp import _native

logger = logging.getLogger("dlcp")

_NO_WORDS = np.zeros(0, np.uint64)


class TransferFuture:
    """The future of one message, like concurrent.futures.Future. Made by Endpoint.isend and Endpoint.ireceive."""

    __slots__ = (
        "_action",
        "_callbacks",
        "_dispatcher",
        "_runtime",
        "_log",
        "_rank",
        "_tag",
        "_transfer",
        "__weakref__",
    )

    def __init__(
        self,
        runtime: _native.Runtime,
        transfer: _native.Transfer,
        dispatcher: Dispatcher,
        action: str,
        rank: int | None,
        tag: int,
        log: PeerLog,
    ) -> None:
        self._log = log
        self._runtime = runtime
        self._transfer = transfer
        self._dispatcher = dispatcher
        self._action = action
        self._rank = rank
        self._tag = tag
        self._callbacks: list[Callable[[TransferFuture], object]] = []

    def __repr__(self) -> str:
        state = "under way" if not self.done() else self._transfer.error or "finished"
        return f"<TransferFuture: {self._name()}, {state}>"

    def done(self) -> bool:
        """Whether the message is over. Does not block."""
        return self._transfer.over

    def cancelled(self) -> bool:
        """Whether this side gave the message up."""
        return self.done() and self._transfer.error == "cancelled"

    def cancel(self) -> bool:
        """Asks to give the message up; False if it is over already. It is done soon after, not at once."""
        return self._runtime.cancel(self._transfer)

    def result(self, timeout: float | None = None) -> Outcome:
        """The outcome; blocks until the message is over.

        `timeout`: seconds. Raises TransferTimeoutError when it has passed (the message goes on), and the message's own
        TransferError if it failed.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.outcome

    def exception(self, timeout: float | None = None) -> errors.TransferError | None:
        """The error of the message, or None; blocks until it is over.

        `timeout`: seconds. Raises TransferTimeoutError when it has passed.
        """
        checks.timeout("timeout", timeout)
        if not self._runtime.wait(self._transfer, timeout):
            raise errors.TransferTimeoutError(
                f"{self._name()} is not over after {timeout:g} s (timeout){self._absence(timeout)}; it goes on: call"
                " result() again or cancel()"
            )
        name = self._transfer.error
        if name is None:
            return None
        outcome = self.outcome
        absence = self._absence(outcome.waited_s) if name == "peer_timeout" else ""
        error = _failure(name, self._name(), outcome, absence)
        error.outcome = outcome
        return error

    @property
    def outcome(self) -> Outcome:
        """The outcome of the message, whether it failed or not. Raises DlcpError if it is not over yet."""
        if not self.done():
            raise errors.DlcpError(f"{self._name()} is not over; wait for result() first")
        transfer = self._transfer
        message, block, blocks, delivered, abandoned, abandoned_blocks, retransmitted = transfer.outcome
        return Outcome(
            rank=transfer.rank,
            tag=self._tag,
            message_bytes=message,
            block_bytes=block,
            blocks=blocks,
            delivered_bytes=delivered,
            abandoned_bytes=abandoned,
            abandoned_blocks=abandoned_blocks,
            retransmitted_bytes=retransmitted,
            waited_s=transfer.waited_s,
            _words=transfer.abandoned_words if abandoned_blocks else _NO_WORDS,
        )

    def add_done_callback(self, callback: Callable[[TransferFuture], object]) -> None:
        """Has `callback(self)` called once the message is over: at once, by this thread, if it is already.

        Otherwise on the endpoint's callback thread, in the order in which messages end. What it raises is logged.
        """
        self._dispatcher.add(self, callback)

    def _watch(self, watch: int) -> bool:
        return self._runtime.watch(self._transfer, watch)

    def _absence(self, waited_s: float | None) -> str:
        """What is known about a peer that has left, as the end of a clause; "" if it has not."""
        if self._rank is None or waited_s is None or not self._log.has_closed(self._rank):
            return ""
        return f": the peer closed its endpoint before and has not come back within {waited_s:.3g} s"

    def _name(self) -> str:
        whom = "any rank" if self._rank is None else f"rank {self._rank}"
        return f"{self._action} {whom}, tag {self._tag}"


class PeerLog:
    """What happened to an endpoint, kept for drain_log, and which peers have closed and not come back.

    Events of the driver are logged by look(), which an EventWatch calls.
    """

    def __init__(self, runtime: _native.Runtime, rank: int) -> None:
        self._runtime = runtime
        self._logger = RankLogger(rank)
        self._lock = threading.Lock()
        self._entries: deque[LogEntry] = deque(maxlen=1024)
        self._closed: set[int] = set()
        self._untold: list[LogEntry] = []

    def drain(self) -> tuple[LogEntry, ...]:
        """The entries since the last call."""
        with self._lock:
            self._read()
            entries = tuple(self._entries)
            self._entries.clear()
        return entries

    def look(self, *, closing: bool = False) -> None:
        """Reads what is new, keeps it, and logs the driver's events of it. Raises ForkError.

        A link that has just gone down is reported by the next call only, since the end of a run looks the same
        (driver_events); with `closing` it is reported at once, and not as a warning.
        """
        with self._lock:
            known = len(self._untold)
            self._read()
            untold = self._untold
            first = len(untold)  # of the links that have gone down last
            while first > 0 and untold[first - 1].kind == "link_down":
                first -= 1
            end = len(untold) if closing else max(first, known)
            self._untold = untold[end:]
        # Without the lock: a handler may ask for the log.
        for place, entry in enumerate(untold[:end]):
            log_event(self._logger, entry, expected=closing and place >= first)

    def has_closed(self, rank: int) -> bool:
        """Whether the last packet of a peer was its goodbye."""
        with self._lock:
            self._read()
            return rank in self._closed

    def _read(self) -> None:
        for entry in itertools.starmap(LogEntry, self._runtime.drain_log()):
            self._entries.append(entry)
            if entry.text:
                self._untold.append(entry)
            if entry.rank is None:
                continue
            if entry.kind == "peer_established":
                self._closed.discard(entry.rank)
            elif entry.kind == "peer_down" and entry.error == "peer_closed":
                self._closed.add(entry.rank)


class Watched(Protocol):
    """What a Dispatcher can wait for: messages, and collectives (work.py)."""

    _callbacks: list[Callable[[Any], object]]

    def done(self) -> bool:
        """Whether it is over."""

    def _watch(self, watch: int) -> bool:
        """Has the runtime answer `watch` once it is over. False: it is over already."""


class Dispatcher:
    """Calls the callbacks of one endpoint's futures, on a thread that starts with the first of them."""

    def __init__(self, runtime: _native.Runtime, rank: int) -> None:
        self._runtime = runtime
        self._rank = rank
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[int, Watched] = {}
        self._thread: threading.Thread | None = None

    def add(self, future: Watched, callback: Callable[[Any], object]) -> None:
        """Has the callback called when the future is done, or calls it now."""
        with self._lock:
            if future._callbacks and not future.done():
                future._callbacks.append(callback)
                return
            watch = next(self._ids)
            self._waiting[watch] = future
            future._callbacks.append(callback)
            if future._watch(watch):
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name=f"dlcp-callbacks-{self._rank}", daemon=True
                    )
                    self._thread.start()
                return
            del self._waiting[watch]
            future._callbacks.remove(callback)
        _call(callback, future)

    def join(self) -> None:
        """Waits until the callbacks of a closed runtime have run, unless called by one of them."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        # Nothing more comes once the runtime is closed, and then there is no waiting either.
        while watches := self._runtime.next_finished(None):
            for watch in watches:
                with self._lock:
                    future = self._waiting.pop(watch)
                    callbacks, future._callbacks = future._callbacks, []
                for callback in callbacks:
                    _call(callback, future)


def _call(callback: Callable[[Any], object], future: Watched) -> None:
    try:
        callback(future)
    except Exception:
        logger.exception("callback of %r", future)


def _failure(name: str, what: str, outcome: Outcome, absence: str = "") -> errors.TransferError:
    """The exception for an error of the engine, by its name; `absence`: what is known of a peer that has gone."""
    waited = f"after {outcome.waited_s:.3g} s"
    match name:
        case "peer_timeout" if absence:
            return errors.PeerTimeoutError(f"{what}{absence}; see whether it is to be started again")
        case "peer_timeout":
            return errors.PeerTimeoutError(
                f"{what}: the peer went silent {waited}; see whether its process runs and the network reaches it"
                " (peer_timeout_s is how long to wait)"
            )
        case "peer_restarted":
            return errors.PeerRestartedError(
                f"{what}: the peer came back as another process {waited}; what was under way is lost: start over"
            )
        case "peer_closed":
            return errors.PeerClosedError(f"{what}: the peer closed its endpoint {waited}")
        case "peer_gone":
            return errors.PeerClosedError(
                f"{what}: the peer's process ended {waited} without closing its endpoint; see the end of its log"
            )
        case "cancelled":
            return errors.TransferCancelledError(f"{what}: given up by this side {waited}")
        case "peer_cancelled":
            return errors.PeerCancelledError(f"{what}: given up by the peer {waited}")
        case "receive_too_small":
            return errors.ReceiveTooSmallError(
                f"{what}: the message of {outcome.message_bytes} bytes is longer than the receive buffer; give"
                " a buffer of at least the message's length"
            )
        case "refused":
            return errors.RefusedError(
                f"{what}: the peer refused {outcome.message_bytes} bytes, its receive buffer is smaller; let both sides"
                " agree on the length"
            )
        case "closed":
            return errors.TransferClosedError(f"{what}: this endpoint was closed {waited}")
        case _:
            return errors.TransferError(f"{what}: {name} {waited}")
