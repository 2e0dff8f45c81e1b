"""What has become of the operations of one kind in one group: how many, how much, how long. Only grows.

The thread that notices the end of an operation counts it, so a reader may miss the last one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

# Upper bounds of the histogram of durations, inclusive: a small all-reduce takes 100 us, a large one may take seconds.
DURATION_BOUNDS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class OperationCounts:
    """Operations of one kind."""

    __slots__ = (
        "completed",
        "duration_counts",
        "duration_s",
        "duration_s_max",
        "failed",
        "received_bytes",
        "sent_bytes",
        "waited_for",
    )

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        """Ended otherwise."""
        self.sent_bytes = 0
        """Payload, without repairs."""
        self.received_bytes = 0
        self.duration_s = 0.0
        """From start to end, of all that were completed."""
        self.duration_s_max = 0.0
        self.duration_counts = [0] * (len(DURATION_BOUNDS_S) + 1)
        """Completed operations by duration: up to each of DURATION_BOUNDS_S but above the one before, and above all."""
        self.waited_for: dict[int, int] = {}
        """Per group rank, how many operations failed while they waited for it."""

    def note_completed(self, duration_s: float, sent_bytes: int = 0, received_bytes: int = 0) -> None:
        """One has succeeded."""
        self.completed += 1
        self.sent_bytes += sent_bytes
        self.received_bytes += received_bytes
        self.duration_s += duration_s
        if duration_s > self.duration_s_max:
            self.duration_s_max = duration_s
        self.duration_counts[bisect_left(DURATION_BOUNDS_S, duration_s)] += 1

    def note_failed(
        self, waited_for: Iterable[int] = (), sent_bytes: int = 0, received_bytes: int = 0
    ) -> None:
        """One has failed, and something of these group ranks was missing."""
        self.failed += 1
        self.sent_bytes += sent_bytes
        self.received_bytes += received_bytes
        for rank in waited_for:
            self.waited_for[rank] = self.waited_for.get(rank, 0) + 1

    def describe(self, under_way: int = 0) -> dict[str, Any]:
        """JSON-able. `under_way`: how many more have been started; these, completed and failed ones are all."""
        return {
            "started": self.completed + self.failed + under_way,
            "completed": self.completed,
            "failed": self.failed,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "duration_s": self.duration_s,
            "duration_s_max": self.duration_s_max,
            "duration_counts": list(self.duration_counts),
        }
