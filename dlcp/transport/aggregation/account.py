"""What became of the all-reduces that a switch was asked for."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

REASONS = ("resting", "not_finite", "no_switch", "gave_up", "wrong", "stopped", "unequal")
"""Why a collective took the ring. resting: the switch failed lately; no_switch: it does not answer as this job's
should; gave_up: no more results came, at some rank; wrong: a packet of the switch's was not what it has to be; stopped:
the group closes; unequal: ranks got different sums."""


class AggregationAccount:
    """Counts of one rank. Any thread may add and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_switch = 0
        self._bytes = 0
        self._by_ring: Counter[str] = Counter()
        self._packets: dict[str, int] = {}

    def add_by_switch(self, nbytes: int) -> None:
        """One more that the switch summed."""
        with self._lock:
            self._by_switch += 1
            self._bytes += nbytes

    def add_by_ring(self, reason: str) -> None:
        """One more that the ring summed, for one of REASONS."""
        with self._lock:
            self._by_ring[reason] += 1

    def set_packets(self, counters: dict[str, int]) -> None:
        """The worker's counters as they are now."""
        with self._lock:
            self._packets = dict(counters)

    def snapshot(self) -> dict[str, Any]:
        """JSON-able: collectives by switch and (by reason) by ring, payload bytes by switch, packets by kind."""
        with self._lock:
            return {
                "by_switch": self._by_switch,
                "by_switch_bytes": self._bytes,
                "by_ring": dict(self._by_ring),
                "packets": dict(self._packets),
            }
