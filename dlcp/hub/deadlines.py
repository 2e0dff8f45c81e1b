"""Calls functions when their time has come: one thread, made for the first of them.

Functions are quick, and none is called after close() has returned.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Deadlines:
    """Of one group. Any thread may use it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, after_s: float, function: Callable[[], None]) -> None:
        """Has a function called once, `after_s` seconds from now. After close(): never."""
        with self._changed:
            heapq.heappush(self._heap, (time.monotonic() + after_s, next(self._numbers), function))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="dlcp-hub-deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Forgets what has not been called. Blocks for a function that is being called. Again: nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (left_s := self._left_s()) != 0.0:
                    self._changed.wait(left_s)
                if self._closed:
                    return
                _, _, function = heapq.heappop(self._heap)
            function()

    def _left_s(self) -> float | None:
        """Until the next one is due; None: there is none."""
        return max(0.0, self._heap[0][0] - time.monotonic()) if self._heap else None
