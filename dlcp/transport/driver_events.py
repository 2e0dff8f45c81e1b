"""What befalls a driver while it is open (a link, a neighbour, an address), as lines of the logger `dlcp`.

Drivers below the kernel have such events; the kernel reports its own elsewhere. None of them ends anything by itself:
the engine repairs what is lost meanwhile, or finds the peer silent. A thread looks once per second, so that a line
comes when something happens, and not when somebody asks for the log. It is a thread of its own since the endpoint's
callback thread waits for messages, without a limit, and for whatever callbacks wait for.

A link that goes down is reported one look later: a memif port has none once its peer has closed, and where this
endpoint closes within the second, that is how things end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from dlcp.errors import DlcpError
from dlcp.transport.logger import RankLogger
from dlcp.transport.statistics import LogEntry

MENDED = frozenset({"link_up", "neighbour_found"})
"""Kinds of drivers' events (native/io/runtime_log.hpp) that tell of something mended; all others are warnings."""
OVERSIZED_CAUSE = (
    "as the kernel sends them where no card cuts its large packets (veth, bridge), or with another MTU"
)
OVERSIZED_REMEDY = (
    "export DLCP_SEGMENTATION_OFFLOAD=0 for ranks on the kernel's sockets, or one MTU everywhere"
)
_LOOK_EVERY_S = 1.0
# Reading counters takes the driver from who drives it, and may ask a card: some ms.
_LOOKS_PER_COUNT = 10


def count_oversized(counters: Mapping[str, int]) -> int:
    """How many frames said that they are longer than the MTU, of all ports; `counters`: of Endpoint.driver_statistics.

    They are dropped and counted per port (native/ipstack/counters.hpp).
    """
    return sum(count for name, count in counters.items() if name.endswith("rx_oversized_frames"))


def log_event(logger: RankLogger, entry: LogEntry, *, expected: bool = False) -> None:
    """One line for an event of a driver. `expected`: no warning, whatever it is."""
    log = logger.info if expected or entry.kind in MENDED else logger.warning
    log("%s: %s", entry.kind.replace("_", " "), entry.text)


class Looked(Protocol):
    """What an EventWatch looks at; a PeerLog."""

    def look(self, *, closing: bool = False) -> None:
        """Reads and logs what is new."""


class EventWatch:
    """Looks once per second on a thread of its own, until stop() or an error of dlcp's.

    `count`: the driver's counters; read more rarely, and no more once one of them has been reported.
    """

    def __init__(self, rank: int, looked: Looked, count: Callable[[], dict[str, int]]) -> None:
        self._looked = looked
        self._count = count
        self._logger = RankLogger(rank)
        self._pid = os.getpid()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dlcp-events-{rank}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and waits for it, unless it is the caller. In a forked child, which has none: nothing."""
        if os.getpid() != self._pid:
            return
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        looks = 0
        told = False
        try:
            while not self._stopped.wait(_LOOK_EVERY_S):
                self._looked.look()
                looks += 1
                if not told and looks % _LOOKS_PER_COUNT == 0:
                    told = self._tell_of_oversized()
            if not told:
                self._tell_of_oversized()
            self._looked.look(closing=True)  # what came last says most
        except DlcpError:
            pass  # the endpoint is gone

    def _tell_of_oversized(self) -> bool:
        """One line about frames that were longer than the MTU; False: there were none."""
        frames = count_oversized(self._count())
        if frames:
            self._logger.warning(
                "oversized frames: %d were dropped that are longer than the MTU, %s: %s",
                frames,
                OVERSIZED_CAUSE,
                OVERSIZED_REMEDY,
            )
        return frames > 0
