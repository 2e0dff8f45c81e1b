"""A way to lose gradients: whom the network drops, what becomes of it, how losses come."""

from __future__ import annotations

from dataclasses import dataclass, replace

from studies.training.fills import Fill
from studies.training.network import Process, Who
from studies.training.training import Run


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to lose gradients; see training.Run for the fields."""

    who: Who
    fill: Fill
    decay: float = 1.0
    process: Process = "independent"
    critical_share: float = 0.1
    pressure: float = 1.0

    @property
    def name(self) -> str:
        """For people: "transport, residual 0.5, bursty"."""
        who = {"random": "at random", "least": "least important", "transport": "transport"}[self.who]
        if self.pressure != 1.0:
            who += f" under {self.pressure:g}x loss"
        if (
            self.who == "transport"
            and self.critical_share != Arm.__dataclass_fields__["critical_share"].default
        ):
            who += f", critical {self.critical_share:.0%}"
        return ", ".join((who, self.fill_name))

    @classmethod
    def of(cls, run: Run) -> Arm:
        """The arm that a run belongs to."""
        return cls(run.who, run.fill, run.decay, run.process, run.critical_share, run.pressure)

    def under(self, process: Process) -> Arm:
        """The same when losses come otherwise."""
        return replace(self, process=process)

    @property
    def fill_name(self) -> str:
        """For people: "residual 0.5"."""
        return f"residual {self.decay:g}" if self.fill == "residual" else self.fill

    def run(self, task: str, loss: float, rate: float, seed: int) -> Run:
        return Run(
            task,
            self.fill,
            self.who,
            self.process,
            loss,
            rate,
            seed,
            decay=self.decay,
            critical_share=self.critical_share,
            pressure=self.pressure,
        )
