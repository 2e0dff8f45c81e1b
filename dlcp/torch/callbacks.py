"""The threads that complete futures, and run the callbacks that users added to them.

A callback may wait for another collective, whose own completion needs a thread (PowerSGD's does): so a task never
waits for a thread to become free. One that finds no idle thread gets a new one; idle ones leave after a while. What
bounds their number is the number of callbacks that block at the same time: a DDP hook has at most one per bucket.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("dlcp")

IDLE_S = 10.0
# How long the interpreter's end waits for callbacks that still run.
CLOSE_WAIT_S = 5.0


class CallbackPool:
    """Runs each task at once on some thread of its own."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        # Threads that wait for a task, less the tasks that wait for a thread; never negative.
        self._idle = 0
        self._made = 0
        self._closed = False

    def submit(self, task: Callable[[], None]) -> None:
        """Runs `task` at once on another thread; after `close`, on this one. Its exceptions are logged."""
        with self._lock:
            if closed := self._closed:
                pass
            elif self._idle > 0:
                self._idle -= 1
            else:
                self._made += 1
                # Daemons: a callback that never returns must not keep the interpreter from its end.
                thread = threading.Thread(target=self._run, name=f"dlcp-callback-{self._made}", daemon=True)
                self._threads.add(thread)
                thread.start()
            if not closed:
                self._tasks.put(task)
        if closed:
            run_logged(task)

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=self._idle_s)
            except queue.Empty:
                with self._lock:
                    # No thread is idle: then a task is there for each one that waits, this one too.
                    if self._idle == 0 and not self._closed:
                        continue
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                return
            if task is None:
                return
            run_logged(task)
            # Drop the last task while this thread idles: it may keep tensors alive.
            del task
            with self._lock:
                self._idle += 1

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """Ends the threads after what is queued; waits for them up to `wait_s` together."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._tasks.put(None)
        end_s = time.monotonic() + wait_s
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end_s - time.monotonic()))


def run_logged(task: Callable[[], None]) -> None:
    """Runs it; its exceptions are logged."""
    try:
        task()
    except Exception:
        logger.exception("a callback of a collective failed")


pool = CallbackPool()
