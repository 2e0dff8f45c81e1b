"""Results on disk: a line of text per run, written as runs end, so that a study that was stopped goes on.

A line that was cut off is dropped, and its run is run again.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from studies.training.arm import Arm
from studies.training.errors import StudyError
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
        self.path = folder / RUNS_NAME
        self.results = Results()
        folder.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self._write([COLUMNS], "w")
            return
        text = self.path.read_text()
        if not text.endswith("\n"):
            # So that the next line does not go on with it.
            text = text[: text.rfind("\n") + 1]
            self.path.write_text(text)
        rows = csv.DictReader(text.splitlines())
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise StudyError(f"{self.path} has other columns than this version; give another folder")
        for row in rows:
            self.results.add(*_of(row))

    def add(self, runs: Sequence[Run], results: Sequence[Result]) -> None:
        rows = []
        for run, result in zip(runs, results, strict=True):
            found = {"held_out": f"{result.held_out:.6g}", "abandoned": f"{result.abandoned:.5g}"}
            cells = asdict(run) | asdict(run.arm) | found
            rows.append([cells[name] for name in COLUMNS])
            self.results.add(run, result)
        self._write(rows, "a")

    def _write(self, rows: Sequence[Sequence[object]], mode: str) -> None:
        with self.path.open(mode, newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def _of(row: dict[str, Any]) -> tuple[Run, Result]:
    loss, rate, rounds, decay, critical_share, pressure, held_out, abandoned = (
        float(row[name])
        for name in ("loss", "rate", "rounds", "decay", "critical_share", "pressure", "held_out", "abandoned")
    )
    arm = Arm(row["who"], row["fill"], decay, row["process"], critical_share, pressure)
    run = Run(row["task"], arm, loss, rate, int(row["seed"]), rounds, int(row["again"]))
    return run, Result(held_out, abandoned)
