"""Looking again and again at what other processes change: often at first, then rarely, until the time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator

# Between looks, doubling: short for what starts together, rare enough for hundreds that wait long.
_PAUSE_S_MIN = 0.5e-3
_PAUSE_S_MAX = 50e-3


def looks(timeout_s: float) -> Iterator[None]:
    """Once for each look, the last one when `timeout_s` has passed. Sleeps between them."""
    end_s = time.monotonic() + timeout_s
    pause_s = _PAUSE_S_MIN
    while True:
        yield
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
