"""What befalls a driver while it is open (a link, a neighbour, an address), as lines of the logger `dlcp`.

Drivers below the kernel have such events; the kernel reports its own elsewhere. None of them ends anything by itself:
the engine repairs what is lost meanwhile, or finds the peer silent. A thread looks once per second, so that a line
comes when something happens, and not when somebody asks for the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dlcp.errors import DlcpError
from dlcp.transport.logger import RankLogger
from dlcp.transport.statistics import LogEntry

MENDED = frozenset({"link_up", "neighbour_found"})
"""Kinds of drivers' events (native/io/host.hpp) that tell of something mended; all others are warnings."""
_LOOK_EVERY_S = 1.0


def log_event(logger: RankLogger, entry: LogEntry) -> None:
    """One line for an event of a driver; nothing for one of the engine."""
    if not entry.text:
        return
    log = logger.info if entry.kind in MENDED else logger.warning
    log("%s: %s", entry.kind.replace("_", " "), entry.text)


class EventWatch:
    """Calls `look` once per second on a thread of its own, until stop() or an error of dlcp's."""

    def __init__(self, rank: int, look: Callable[[], None]) -> None:
        self._look = look
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dlcp-events-{rank}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and waits for it, unless it is the caller."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(_LOOK_EVERY_S):
                self._look()
            self._look()  # what came last says most
        except DlcpError:
            pass  # the endpoint is gone
