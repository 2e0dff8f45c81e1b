"""Results on disk: a line of text per run, written as runs end, so that a study that was stopped goes on.

A line that was cut off is dropped, and its run is run again.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from studies.training.command import StudyError
from studies.training.tolerance import Results
from studies.training.training import Result, Run

RUNS_NAME = "runs.csv"
_TYPES = {"float": float, "int": int}
_RUN = {field.name: _TYPES.get(str(field.type), str) for field in fields(Run)}
_RESULT = {field.name: _TYPES.get(str(field.type), str) for field in fields(Result)}
_HEAD = [*_RUN, *_RESULT]


class Record:
    """The runs of a folder; what is added is written at once."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there. Raises StudyError: it is of another version."""
        self.path = folder / RUNS_NAME
        self.results = Results()
        folder.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self._write([_HEAD], "w")
            return
        text = self.path.read_text()
        if not text.endswith("\n"):
            # So that the next line does not go on with it.
            text = text[: text.rfind("\n") + 1]
            self.path.write_text(text)
        rows = list(csv.reader(text.splitlines()))
        if not rows or rows[0] != _HEAD:
            raise StudyError(f"{self.path} has other columns than this version; give another folder")
        for row in rows[1:]:
            run = [read(cell) for read, cell in zip(_RUN.values(), row, strict=False)]
            result = [read(cell) for read, cell in zip(_RESULT.values(), row[len(_RUN) :], strict=True)]
            self.results.add(Run(*run), Result(*result))

    def add(self, runs: Sequence[Run], results: Sequence[Result]) -> None:
        self._write(
            [
                [*(getattr(run, name) for name in _RUN), f"{result.held_out:.6g}", f"{result.given_up:.5g}"]
                for run, result in zip(runs, results, strict=True)
            ],
            "a",
        )
        for run, result in zip(runs, results, strict=True):
            self.results.add(run, result)

    def _write(self, rows: Sequence[Sequence[object]], mode: str) -> None:
        with self.path.open(mode, newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
