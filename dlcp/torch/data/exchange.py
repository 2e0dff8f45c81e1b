"""Samples from other ranks: a rank asks the owners of what it lacks, and threads of the owners answer.

Everything travels over a communicator of its own, in the lowest traffic class: what a rank has to send of gradients
leaves before any of it, packet by packet. Messages of other groups have other tags and are never taken.

    request   rank -> owner   tag 0, one packet: kind, number, count, indices
    lengths   owner -> rank   tag 2 number + 2: bytes of each sample; ABSENT: the owner cannot read it
    samples   owner -> rank   tag 2 number + 3: the samples one after another; none if all are absent

Asking never fails: what does not come within the time limit counts as absent and is read here. A rank that did not
answer is not asked again for a while. When the group fails, nobody is asked any more, and training goes on from disk
and data set.

Ending: a rank that closes says goodbye and goes on answering until all others have said it too, or for `linger_s`.
Ranks that close at slightly different times therefore still find what they need. At the interpreter's end and when
the process group is aborted nobody lingers.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlcp.errors import DlcpError
from dlcp.transport.call_options import MessageKeywords
from dlcp.transport.closeable import Closeable
from dlcp.transport.span import Span

if TYPE_CHECKING:
    from dlcp.torch.data.read_counts import ReadCounts
    from dlcp.transport.communicator import Communicator
    from dlcp.transport.work import Work

logger = logging.getLogger("dlcp")

TRAFFIC_CLASS = 0
"""Of all that it sends: the lowest."""
INDICES_MAX = 128
"""Of one request, which then fits one packet; more samples of one owner are several requests."""
ABSENT = 2**64 - 1
"""In place of a length."""

_REQUEST_TAG = 0
_ASK, _GOODBYE = 0, 1
# kind, number, count, and the indices.
_REQUEST_WORDS = 3 + INDICES_MAX
# Reply tags have 32 bits, two for each number.
_NUMBERS = 2**30
# A rank that did not answer is not asked for so long.
_PAUSE_S = 30.0
# How long close() waits for the answering threads, one of which may be reading a slow data set.
_JOIN_S = 5.0

_open: weakref.WeakSet[Exchange] = weakref.WeakSet()

Load = Callable[[int], bytes]


class Exchange(Closeable):
    """This rank's end: asks, and answers with what `load` gives. Any thread may use it, of this process only."""

    def __init__(
        self,
        communicator: Communicator,
        load: Load,
        counts: ReadCounts,
        *,
        threads: int,
        reply_timeout_s: float,
        linger_s: float,
    ) -> None:
        self.communicator = communicator
        self.reply_timeout_s = reply_timeout_s
        self.linger_s = linger_s
        self._load = load
        self._counts = counts
        self._pid = os.getpid()
        self._numbers = itertools.count()
        self._paused_until_s: dict[int, float] = {}
        self._lock = threading.Lock()
        self._closing = False
        # The answering threads are to end: nothing more can be asked or answered.
        self._over = False
        self._left: set[int] = set()
        # All others have said goodbye, or nobody can any more.
        self._alone = threading.Event()
        self._requests: queue.SimpleQueue[tuple[Work, np.ndarray[Any, Any]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._answer_requests, name=f"dlcp-data-{number}", daemon=True)
            for number in range(threads)
        ]
        self._listen()
        for thread in self._threads:
            thread.start()
        _open.add(self)

    # ---- asking ----

    def fetch(self, wanted: Mapping[int, Sequence[int]]) -> _Fetch:
        """Asks owners (by rank) for samples (by index) and returns at once; the result waits for the answers."""
        return _Fetch(self, wanted)

    def may_ask(self, owner: int) -> bool:
        """Whether this rank can be expected to answer."""
        if self._over or self._closing or os.getpid() != self._pid:
            return False
        return self._paused_until_s.get(owner, 0.0) <= time.monotonic()

    def pause(self, owner: int, error: DlcpError) -> None:
        """Leaves a rank that did not answer in peace for a while."""
        if owner not in self._paused_until_s:
            logger.warning(
                "data cache: rank %d does not send its samples, which are read here instead (%s)",
                owner,
                error,
            )
        self._paused_until_s[owner] = time.monotonic() + _PAUSE_S
        if self.communicator.failed is not None:
            self._give_up()

    def ask(self, owner: int, indices: Sequence[int]) -> tuple[Work, np.ndarray[Any, Any], int]:
        """Sends one request; the receive of the lengths, where they go, and the tag of the samples."""
        tag = 2 * (next(self._numbers) % _NUMBERS) + 2
        request = np.zeros(_REQUEST_WORDS, np.uint64)
        request[:3] = _ASK, tag, len(indices)
        request[3 : 3 + len(indices)] = indices
        lengths = np.empty(len(indices), np.uint64)
        # Posted first, so that the answer finds its place.
        work = self.receive(lengths, owner, tag)
        self._send(request, owner, _REQUEST_TAG)
        return work, lengths, tag + 1

    def receive(self, array: np.ndarray[Any, Any], owner: int, tag: int) -> Work:
        """Receives a part of an answer."""
        return self.communicator.receive(Span.of(array), owner, tag, **self._how(self.reply_timeout_s))

    # ---- answering ----

    def _listen(self) -> None:
        """Posts the receive for the next request, which has no time limit; it ends with the group."""
        request = np.empty(_REQUEST_WORDS, np.uint64)
        work = self.communicator.receive(Span.of(request), None, _REQUEST_TAG, **self._how(math.inf))
        work.add_done_callback(lambda over: self._requests.put((over, request)))

    def _answer_requests(self) -> None:
        while (item := self._requests.get()) is not None and not self._over:
            work, request = item
            try:
                source = work.source
                self._listen()
            except DlcpError as error:
                # The group has failed, or another rank has left it without a goodbye.
                if not self._over:
                    logger.info("data cache: no more samples from and for other ranks (%s)", error)
                self._give_up()
                break
            # An answer that cannot leave is one that the other rank stops waiting for.
            with contextlib.suppress(DlcpError):
                self._handle(source, request)
        # The next thread ends with the same word.
        self._requests.put(None)

    def _handle(self, source: int, request: np.ndarray[Any, Any]) -> None:
        kind, tag, count = (int(word) for word in request[:3])
        if kind == _GOODBYE:
            with self._lock:
                self._left.add(source)
                if len(self._left) == self.communicator.size - 1:
                    self._alone.set()
            return
        payloads = [self._try_load(int(index)) for index in request[3 : 3 + min(count, INDICES_MAX)]]
        lengths = np.array([ABSENT if each is None else len(each) for each in payloads], np.uint64)
        there = [each for each in payloads if each is not None]
        self._send(lengths, source, tag)
        if samples := b"".join(there):
            self._send(np.frombuffer(samples, np.uint8), source, tag + 1)
        self._counts.add("served", len(there))

    def _try_load(self, index: int) -> bytes | None:
        try:
            return self._load(index)
        except Exception:
            # The rank that asked reads it itself, and its training gets the exception.
            logger.info(
                "data cache: sample %d, which another rank asked for, cannot be read", index, exc_info=True
            )
            return None

    def _send(self, array: np.ndarray[Any, Any], to: int, tag: int) -> Work:
        span = Span.of(array, writable=False)
        return self.communicator.send(span, to, tag, **self._how(self.reply_timeout_s))

    def _how(self, timeout_s: float) -> MessageKeywords:
        return {"traffic_class": TRAFFIC_CLASS, "timeout_s": timeout_s, "label": "data cache"}

    # ---- ending ----

    def _give_up(self) -> None:
        """Nothing can be asked or answered any more."""
        self._over = True
        self._alone.set()
        self._requests.put(None)

    def close(self, *, linger: bool = True) -> None:
        """Leaves the exchange, see above. Blocks for `linger_s` at most and a moment. Again: nothing."""
        with self._lock:
            if self._closing or os.getpid() != self._pid:
                return
            self._closing = True
        orderly = False
        if linger and not self._over:
            with contextlib.suppress(DlcpError):
                goodbye = np.zeros(_REQUEST_WORDS, np.uint64)
                goodbye[0] = _GOODBYE
                for other in range(self.communicator.size):
                    if other != self.communicator.rank:
                        self._send(goodbye, other, _REQUEST_TAG)
                orderly = self._alone.wait(self.linger_s) and not self._over
        self._give_up()
        if orderly:
            self.communicator.withdraw()
        else:
            self.communicator.abort("the data cache of this rank is closed")
        end_s = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        _open.discard(self)


class _Fetch:
    """Requests under way."""

    def __init__(self, exchange: Exchange, wanted: Mapping[int, Sequence[int]]) -> None:
        self._exchange = exchange
        # Per request: owner, indices, the receive of the lengths, the lengths, the tag of the samples.
        self._asked: list[tuple[int, Sequence[int], Work, np.ndarray[Any, Any], int]] = []
        for owner, indices in wanted.items():
            for at in range(0, len(indices), INDICES_MAX):
                part = indices[at : at + INDICES_MAX]
                if not exchange.may_ask(owner):
                    break
                try:
                    self._asked.append((owner, part, *exchange.ask(owner, part)))
                except DlcpError as error:
                    exchange.pause(owner, error)

    def result(self) -> dict[int, memoryview]:
        """The samples that came. Blocks for the answers, each at most for the reply's time limit."""
        arriving = []
        for owner, indices, work, lengths, tag in self._asked:
            try:
                work.wait()
                nbytes = sum(int(length) for length in lengths if length != ABSENT)
                if nbytes:
                    samples = np.empty(nbytes, np.uint8)
                    arriving.append(
                        (owner, indices, self._exchange.receive(samples, owner, tag), lengths, samples)
                    )
            except DlcpError as error:
                self._exchange.pause(owner, error)
        found: dict[int, memoryview] = {}
        for owner, indices, work, lengths, samples in arriving:
            try:
                work.wait()
            except DlcpError as error:
                self._exchange.pause(owner, error)
                continue
            at = 0
            for index, length in zip(indices, lengths, strict=True):
                if length != ABSENT:
                    found[index] = samples.data[at : at + int(length)]
                    at += int(length)
        return found


@atexit.register
def _at_exit() -> None:
    # Handlers run in reverse, and the jobs' own is older, since a process group exists: this one comes first. A job
    # that closes would wait for the receive that never ends.
    for exchange in list(_open):
        exchange.close(linger=False)
