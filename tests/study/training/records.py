"""What holds for the record of every study that trains. `fill`: add_missing, of the study's own plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlcp.study.training.errors import StudyError
from dlcp.study.training.results import RunRecord


def add_missing(
    record: RunRecord[Any, Any, Any],
    plan: Iterable[Sequence[Any]],
    pretend: Callable[[Any], Any],
    runs_max: int,
) -> int:
    """Adds what the plan says that is missing, until there are `runs_max` more; how many there are."""
    done = 0
    for runs in plan:
        assert len({run.group for run in runs}) == 1
        assert not any(run in record.results for run in runs)
        record.add(runs, [pretend(run) for run in runs])
        done += len(runs)
        if done >= runs_max:
            break
    return done


def check_going_on(
    folder: Path, record: Callable[[Path], RunRecord[Any, Any, Any]], fill: Callable[..., int], runs_max: int
) -> None:
    """A study that was stopped, and whose last line was cut off, goes on."""
    whole = fill(record(folder / "whole"))
    stopped = record(folder / "parts")
    done = fill(stopped, runs_max=runs_max)
    path = folder / "parts" / stopped.name
    path.write_text(path.read_text()[:-5])
    again = record(folder / "parts")
    assert len(again.results) == done - 1
    assert fill(again) == whole - done + 1
    first, second = (record(folder / name).results for name in ("whole", "parts"))
    assert dict(first.items()).keys() == dict(second.items()).keys()


def check_version(folder: Path, record: Callable[[Path], RunRecord[Any, Any, Any]]) -> None:
    """A record of another version is refused."""
    (folder / record(folder).name).write_text("task,other\n")
    with pytest.raises(StudyError, match="other columns"):
        record(folder)
