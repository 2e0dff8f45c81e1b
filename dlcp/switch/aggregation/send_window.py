"""How many blocks a worker has in flight, and how long it waits for one before it sends it again.

A window that doubles per round trip until the first block has to be sent again, then grows by one per round trip, and
is halved, once per wait, when that happens (AIMD: RFC 5681, without its byte counts; ATP's hosts do the like on marks).
The wait follows RFC 6298 from the time that blocks took that were sent once; a result waits for the slowest worker, so
the wait covers stragglers as well. Three workers through BMv2: 1250 repeated blocks of 1750 without it, 7 with it.
"""

from __future__ import annotations

FIRST_WINDOW = 8
LEAST_WINDOW = 2
MOST_WAIT_NS = 1_000_000_000


class SendWindow:
    """The blocks of one worker that may be in flight, and the wait before one is sent again."""

    def __init__(self, most_blocks: int, first_wait_ns: int) -> None:
        self._most = most_blocks
        self._least_wait_ns = first_wait_ns
        self._blocks = float(min(FIRST_WINDOW, most_blocks))
        self._threshold = float(most_blocks)
        self._mean_ns: int | None = None
        self._deviation_ns = 0
        self._halved_ns = -MOST_WAIT_NS
        self.in_flight = 0
        """Blocks that are sent and neither done nor promised to the hub; kept by the worker."""

    @property
    def has_room(self) -> bool:
        """Whether one more block may be sent."""
        return self.in_flight < int(self._blocks)

    @property
    def wait_ns(self) -> int:
        """From a block's first transmission to its second."""
        if self._mean_ns is None:
            return self._least_wait_ns
        return min(max(self._mean_ns + 4 * self._deviation_ns, self._least_wait_ns), MOST_WAIT_NS)

    def handle_result(self, took_ns: int) -> None:
        """A block that was sent once is done."""
        if self._mean_ns is None:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
        else:
            self._deviation_ns += (abs(took_ns - self._mean_ns) - self._deviation_ns) // 4
            self._mean_ns += (took_ns - self._mean_ns) // 8
        self._blocks = min(
            self._blocks + (1.0 if self._blocks < self._threshold else 1.0 / self._blocks), self._most
        )

    def handle_wait_over(self, now_ns: int) -> None:
        """A block has to be sent again."""
        if now_ns - self._halved_ns >= self.wait_ns:
            self._halved_ns = now_ns
            self._blocks = max(self._blocks / 2, min(LEAST_WINDOW, self._most))
            self._threshold = self._blocks
