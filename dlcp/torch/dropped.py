"""Groups that a program drops without closing them. Gloo's close with their last reference; so do created ones.

The last reference may go anywhere, in the garbage collector too, where no lock may be taken and nothing may block. So
the finalizer only puts a task in a queue that is safe there, and a thread of this module closes the group.
"""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Callable

from dlcp.torch.callbacks import CLOSE_WAIT_S, run_logged

# put() of a SimpleQueue is documented as safe in finalizers.
_tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def when_dropped(group: object, close: Callable[[], None]) -> weakref.finalize[..., object]:
    """Has `close` called on another thread when the last reference to the group is gone; its exceptions are logged.

    `close` must not refer to the group. `detach()` of the result calls it off.
    """
    global _thread
    with _lock:
        # Not alive in a forked child either.
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="dlcp-dropped", daemon=True)
            _thread.start()
    finalizer = weakref.finalize(group, _tasks.put, close)
    # At the interpreter's end jobs.py closes what is left.
    finalizer.atexit = False
    return finalizer


def _run() -> None:
    while (task := _tasks.get()) is not None:
        run_logged(task)
        # What it keeps alive should not outlive it.
        del task


@atexit.register
def _at_exit() -> None:
    if _thread is not None and _thread.is_alive():
        _tasks.put(None)
        _thread.join(CLOSE_WAIT_S)
