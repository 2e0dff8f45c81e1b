"""Runs of a study and what they came to: in memory, and as lines of a file, so that a study that was stopped goes on.

What a run is, what it comes to and what the numbers mean is each study's own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Generic, TypeVar

from dlcp.study.training.lines import Lines

RunT = TypeVar("RunT")
ResultT = TypeVar("ResultT")


class RunResults(Generic[RunT, ResultT]):
    """Runs and what they came to, by run."""

    def __init__(self, results: Mapping[RunT, ResultT] | None = None) -> None:
        self._results: dict[RunT, ResultT] = {}
        for run, result in (results or {}).items():
            self.add(run, result)

    def add(self, run: RunT, result: ResultT) -> None:
        self._results[run] = result

    def __contains__(self, run: object) -> bool:
        return run in self._results

    def __len__(self) -> int:
        return len(self._results)

    def items(self) -> Iterable[tuple[RunT, ResultT]]:
        """All runs, in the order in which they came."""
        return self._results.items()


ResultsT = TypeVar("ResultsT", bound=RunResults[Any, Any])


class RunRecord(ABC, Generic[RunT, ResultT, ResultsT]):
    """The runs of a folder; what is added is written at once. A study says what a line of the file holds."""

    name: str
    """Of the file."""
    columns: Sequence[str]

    def __init__(self, folder: Path, results: ResultsT) -> None:
        """Reads into `results` what is there. Raises StudyError: it is of another version."""
        self._lines = Lines(folder / self.name, self.columns)
        self.results = results
        for line in self._lines.read():
            results.add(*self.run_of(line))

    def add(self, runs: Sequence[RunT], results: Sequence[ResultT]) -> None:
        pairs = list(zip(runs, results, strict=True))
        for run, result in pairs:
            self.results.add(run, result)
        self._lines.add([self.line_of(run, result) for run, result in pairs])

    @abstractmethod
    def line_of(self, run: RunT, result: ResultT) -> Mapping[str, object]:
        """By column; other keys are left out."""

    @abstractmethod
    def run_of(self, line: Mapping[str, Any]) -> tuple[RunT, ResultT]:
        """What line_of() made a line of."""


def finite_mean(values: Iterable[float]) -> float:
    """The mean; infinite if one is not finite."""
    listed = list(values)
    return mean(listed) if all(map(math.isfinite, listed)) else math.inf
