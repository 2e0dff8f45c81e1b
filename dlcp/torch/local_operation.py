"""Operations that this package carries out itself, in the form in which the transport gives its own to a work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dlcp.errors import CollectiveTimeoutError, DlcpError, WaitTimeoutError


class LocalOperation:
    """Something that is over when `finish` has been called. As dlcp.transport.communicator.Work, to CollectiveWork.

    `operation`: "send", "receive" or "all_reduce". `description`: for errors. `timeout_s`: after which a wait() without
    a timeout of its own fails the operation; None: never.
    """

    def __init__(self, operation: str, description: str, timeout_s: float | None = None) -> None:
        self.operation = operation
        """As Work.operation has it."""
        self.source: int | None = None
        """Group rank of the sender, where there is one."""
        self._description = description
        self._timeout_s = timeout_s
        self._started_s = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._error: DlcpError | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def finish(self, error: DlcpError | None = None) -> None:
        """Ends the operation. The second time: nothing."""
        with self._lock:
            if self._over.is_set():
                return
            self._error = error
            self._over.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def wait(self, timeout_s: float | None = None) -> None:
        """Blocks until it is over. Raises its error, WaitTimeoutError, CollectiveTimeoutError."""
        if not self._over.wait(self._timeout_s if timeout_s is None else timeout_s):
            text = (
                f"{self._description} is not over after {time.monotonic() - self._started_s:.1f} s (timeout)"
            )
            if timeout_s is not None:
                raise WaitTimeoutError(f"{text}; it goes on")
            self.finish(CollectiveTimeoutError(text))
        if self._error is not None:
            raise self._error

    def done(self) -> bool:
        return self._over.is_set()

    def exception(self) -> DlcpError | None:
        return self._error

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        with self._lock:
            if not self._over.is_set():
                self._callbacks.append(callback)
                return
        callback(self)
