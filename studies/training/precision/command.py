"""`dlcp study precision`: train, print, write. A study that was stopped has left what it has, and goes on."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from studies.training.errors import StudyError
from studies.training.one_thread import one_thread
from studies.training.progress import progress


def precision(options: argparse.Namespace) -> None:
    with one_thread():
        from studies.training import report
        from studies.training.precision import table
        from studies.training.precision.plan import QUICK, Scope, missing
        from studies.training.precision.record import Record
        from studies.training.precision.training import train

        scope = QUICK if options.quick else Scope()
        if options.seeds is not None:
            scope = replace(scope, seeds=options.seeds, core_seeds=max(options.seeds, scope.core_seeds))
        record = Record(options.out)
        results = record.results
        begin = time.monotonic()
        try:
            for runs in () if options.draw else missing(scope, results):
                record.add(runs, train(runs))
                seconds = time.monotonic() - begin
                progress(f"{len(results)} runs, {seconds:.0f} s: {runs[0].problem}, {runs[0].arm.name}")
                if options.minutes is not None and seconds > 60 * options.minutes:
                    break
        except KeyboardInterrupt:
            progress("")
            print("stopped; the same command goes on")
        progress("")
        if not results.problems():
            raise StudyError(f"{options.out} holds no run")
        complete = next(missing(scope, results), None) is None

        def draw(path: Path) -> None:
            from studies.training.precision import figure

            figure.draw(results, path)

        report.leave(
            options.out / "precision",
            table.text(results, complete=complete),
            table.as_dict(results, complete=complete),
            table.markdown(results, complete=complete),
            None if options.no_picture else draw,
        )
