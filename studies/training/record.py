"""The record of a study of tolerance: its runs and what they came to, as lines of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from studies.training.arm import Arm
from studies.training.lines import Lines
from studies.training.tolerance import Results
from studies.training.training import Result, Run

RUNS_NAME = "runs.csv"
COLUMNS = (
    *("task", "fill", "who", "process", "loss", "rate", "seed", "rounds"),
    *("decay", "critical_share", "pressure", "again", "held_out", "abandoned"),
)


class Record:
    """The runs of a folder; what is added is written at once."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there. Raises StudyError: it is of another version."""
        self._lines = Lines(folder / RUNS_NAME, COLUMNS)
        self.results = Results()
        for row in self._lines.read():
            self.results.add(*_of(row))

    def add(self, runs: Sequence[Run], results: Sequence[Result]) -> None:
        rows = []
        for run, result in zip(runs, results, strict=True):
            found = {"held_out": f"{result.held_out:.6g}", "abandoned": f"{result.abandoned:.5g}"}
            rows.append(asdict(run) | asdict(run.arm) | found)
            self.results.add(run, result)
        self._lines.add(rows)


def _of(row: dict[str, Any]) -> tuple[Run, Result]:
    loss, rate, rounds, decay, critical_share, pressure, held_out, abandoned = (
        float(row[name])
        for name in ("loss", "rate", "rounds", "decay", "critical_share", "pressure", "held_out", "abandoned")
    )
    arm = Arm(row["who"], row["fill"], decay, row["process"], critical_share, pressure)
    run = Run(row["task"], arm, loss, rate, int(row["seed"]), rounds, int(row["again"]))
    return run, Result(held_out, abandoned)
