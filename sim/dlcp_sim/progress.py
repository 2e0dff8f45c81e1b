"""How far a run is, while it runs: simulated time, flows finished, events a second, how long it will still take.

A callback, such as a `dlcp.progress.Line`, gets a `Moment` a few times a second. It costs nothing to a run that did not
ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
