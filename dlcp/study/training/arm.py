"""A way to lose gradients: whom the network drops, what becomes of it, how losses come."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlcp.study.training.fills import Fill
from dlcp.study.training.network import Process, Who

CRITICAL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to lose gradients."""

    who: Who
    fill: Fill
    decay: float = 1.0
    """Of a residual, each step that it waits."""
    process: Process = "independent"
    critical_share: float = CRITICAL_SHARE
    """Of the blocks, never abandoned by the transport."""
    pressure: float = 1.0
    """Of the transport: the network hits so many times the blocks that would use the budget up."""

    @property
    def name(self) -> str:
        """For people: "transport, residual 0.5"."""
        who = {"random": "at random", "least": "least important", "transport": "transport"}[self.who]
        if self.pressure != 1.0:
            who += f" under {self.pressure:g}x loss"
        if self.who == "transport" and self.critical_share != CRITICAL_SHARE:
            who += f", critical {self.critical_share:.0%}"
        return f"{who}, " + (f"residual {self.decay:g}" if self.fill == "residual" else self.fill)

    def under(self, process: Process) -> Arm:
        """The same when losses come otherwise."""
        return replace(self, process=process)
