"""Results on disk: a line of text per run, written as runs end, so that a study that was stopped goes on.

A line that was cut off is dropped, and its run is run again.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dlcp.study.training.errors import StudyError


class Lines:
    """A file of comma-separated values; what is added is written at once."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Makes the file and its folder where there is none."""
        self._path = path
        self._columns = tuple(columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            self._write([self._columns], "w")

    def read(self) -> list[dict[str, str]]:
        """Every line, by column. Raises StudyError: the file is of another version."""
        text = self._path.read_text()
        if not text.endswith("\n"):
            # So that the next line does not go on with it.
            text = text[: text.rfind("\n") + 1]
            self._path.write_text(text)
        rows = csv.DictReader(text.splitlines())
        if tuple(rows.fieldnames or ()) != self._columns:
            raise StudyError(f"{self._path} has other columns than this version; give another folder")
        return list(rows)

    def add(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Appends lines; of each mapping, what is in the columns."""
        self._write([[row[name] for name in self._columns] for row in rows], "a")

    def _write(self, rows: Sequence[Sequence[object]], mode: str) -> None:
        with self._path.open(mode, newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
