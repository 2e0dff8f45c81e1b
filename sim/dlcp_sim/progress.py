"""How far a run is, while it runs: simulated time, flows finished, events a second, how long it will still take.

A callback gets a `Moment` a few times a second; `Line` is the one that writes on a terminal. Both cost nothing to a run
that did not ask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from dlcp.units import duration


@dataclass(frozen=True)
class Moment:
    """Where a run is."""

    simulated_s: float
    flows_finished: int
    flows: int
    events: int
    wall_s: float
    """Since the run began."""
    events_per_s: float
    """Of real time, over the last moments."""
    share: float
    """How much of the run is over, 0 to 1, by flows finished and by simulated time; a guess."""

    @property
    def remaining_s(self) -> float | None:
        """How long it will still take if it goes on so; None: too early to say."""
        if self.share < 0.01:
            return None
        return self.wall_s * (1 - self.share) / self.share

    def __str__(self) -> str:
        """The moment as one line."""
        remaining = self.remaining_s
        left = "" if remaining is None else f", {duration(remaining)} left"
        return (
            f"{duration(self.simulated_s)} simulated, {self.flows_finished} of {self.flows} flows finished, "
            f"{self.events_per_s / 1e6:.1f} M events/s{left}"
        )


Progress = Callable[[Moment], None]


class Line:
    """Shows moments, or whatever has words, on one line of a stream that is written over; `clear` removes it."""

    def __init__(self, stream: TextIO | None = None, prefix: str = "") -> None:
        """`stream`: standard error if None. `prefix`: what runs, when there are several."""
        self._stream = sys.stderr if stream is None else stream
        self._prefix = prefix
        self._shown = 0

    def __call__(self, moment: object) -> None:
        """Shows it in place of the last one."""
        text = f"{self._prefix}{moment}"[:118]
        print(f"\r{text:<{self._shown}}", end="", file=self._stream, flush=True)
        self._shown = len(text)

    def clear(self) -> None:
        """Leaves an empty line."""
        if self._shown:
            print(f"\r{'':<{self._shown}}\r", end="", file=self._stream, flush=True)
            self._shown = 0


def terminal_line(wanted: bool | None, prefix: str = "") -> Line | None:
    """A line on standard error: if it is a terminal (None), always (True) or never (False)."""
    if wanted is None:
        wanted = sys.stderr.isatty()
    return Line(prefix=prefix) if wanted else None
