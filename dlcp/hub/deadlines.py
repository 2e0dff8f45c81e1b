"""Calls functions when their time has come: one thread, made for the first of them.

Functions are quick, and none is called after close() has returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Deadlines:
    """Of one group. Any thread may use it. Holds what is added until it is due or dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, number: int, after_s: float, function: Callable[[], None]) -> None:
        """Has a function called once, `after_s` seconds from now, unless it is dropped. After close(): never."""
        with self._changed:
            if self._closed:
                return
            self._due[number] = time.monotonic() + after_s, function
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dlcp-hub-deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()

    def drop(self, number: int) -> None:
        """Forgets the function of this number, if it has not been called."""
        with self._changed:
            self._due.pop(number, None)

    def close(self) -> None:
        """Forgets what has not been called. Blocks for a function that is being called. Again: nothing."""
        with self._changed:
            self._closed = True
            self._due.clear()
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
                _, function = self._due.pop(self._first())
            function()

    def _first(self) -> int:
        return min(self._due, key=lambda number: self._due[number][0])

    def _left_s(self) -> float | None:
        """Until the next one is due; None: there is none."""
        return max(0.0, self._due[self._first()][0] - time.monotonic()) if self._due else None
