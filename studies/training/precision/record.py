"""The record of a study of precision: its runs and what they came to, as lines of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from studies.training.lines import Lines
from studies.training.precision.arm import Arm
from studies.training.precision.quality import Results
from studies.training.precision.training import Result, Run

RUNS_NAME = "precision-runs.csv"
COLUMNS = (
    *(
        "problem",
        "codec",
        "feedback",
        "refinement",
        "layers",
        "share",
        "wider",
        "wider_bits",
        "order",
        "capacity",
        "block_groups",
    ),
    *("rate", "seed", "rounds", "again", "held_out", "bits"),
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
            found = {"held_out": f"{result.held_out:.6g}", "bits": f"{result.bits:.5g}"}
            rows.append(asdict(run) | asdict(run.arm) | {"wider": " ".join(run.arm.wider)} | found)
            self.results.add(run, result)
        self._lines.add(rows)


def _of(row: dict[str, Any]) -> tuple[Run, Result]:
    arm = Arm(
        row["codec"],
        row["feedback"],
        row["refinement"],
        int(row["layers"]),
        float(row["share"]),
        tuple(row["wider"].split()),
        float(row["wider_bits"]),
        row["order"],
        row["capacity"],
        int(row["block_groups"]),
    )
    rate, rounds = float(row["rate"]), float(row["rounds"])
    run = Run(row["problem"], arm, rate, int(row["seed"]), rounds, int(row["again"]))
    return run, Result(float(row["held_out"]), float(row["bits"]))
