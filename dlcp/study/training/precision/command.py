"""`dlcp study precision`: train, print, write. A study that was stopped has left what it has, and goes on."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dlcp.study.training.command import go_on
from dlcp.study.training.errors import StudyError
from dlcp.study.training.one_thread import one_thread


def precision(options: argparse.Namespace) -> None:
    with one_thread():
        from dlcp.study.training import report
        from dlcp.study.training.precision import table
        from dlcp.study.training.precision.plan import FULL, QUICK, missing
        from dlcp.study.training.precision.record import Record
        from dlcp.study.training.precision.training import train

        scope = QUICK if options.quick else FULL
        if options.seeds is not None:
            scope = replace(scope, seeds=options.seeds, core_seeds=max(options.seeds, scope.core_seeds))
        record = Record(options.output)
        results = record.results

        def train_missing(until: float) -> Iterator[str]:
            for runs in missing(scope, results):
                record.add(runs, train(runs))
                yield f"{runs[0].problem}, {runs[0].arm.name}"
                if time.monotonic() > until:
                    return

        go_on(options, results, train_missing)
        if not results.problems():
            raise StudyError(f"{options.output} holds no run")
        complete = next(missing(scope, results), None) is None

        def draw(path: Path) -> None:
            from dlcp.study.training.precision import figure

            figure.draw(results, path)

        report.leave(
            options.output / "precision",
            table.text(results, complete=complete),
            table.as_dict(results, complete=complete),
            table.markdown(results, complete=complete),
            None if options.no_picture else draw,
            as_json=options.json,
        )
