"""`dlcp study tolerance` and `dlcp study mse`: measure, print, write.

A study of tolerance that was stopped has left what it has, and goes on when started again.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.progress import left, shown
from dlcp.study.training.errors import StudyError
from dlcp.study.training.one_thread import one_thread

if TYPE_CHECKING:
    from dlcp.study.training.training import Result, Run


def tolerance(options: argparse.Namespace) -> None:
    with one_thread():
        from dlcp.study.training import report, table
        from dlcp.study.training.plan import QUICK, Scope, missing
        from dlcp.study.training.record import Record

        scope = QUICK if options.quick else Scope()
        if options.seeds is not None:
            scope = replace(scope, seeds=options.seeds)
        record = Record(options.output)
        results = record.results

        def train(until: float) -> Iterator[str]:
            for batches in missing(scope, results):
                for runs, found in _trained(batches, options.threads, until):
                    record.add(runs, found)
                    yield table.doing(runs)
                if time.monotonic() > until:
                    return

        go_on(options, results, train)
        if not results.tasks():
            raise StudyError(f"{options.output} holds no run")
        complete = next(missing(scope, results), None) is None

        def draw(path: Path) -> None:
            from dlcp.study.training import figure

            figure.draw(results, path)

        report.leave(
            options.output / "tolerance",
            table.text(results, complete=complete),
            table.as_dict(results, complete=complete),
            table.markdown(results, complete=complete),
            None if options.no_picture else draw,
            as_json=options.json,
        )


def go_on(options: argparse.Namespace, results: Sized, train: Callable[[float], Iterator[str]]) -> None:
    """Trains what is missing, unless only to draw. `train`: adds to results until a time, and says what it added.

    Ctrl-C passes through: the runs that are done are kept.
    """
    begin = time.monotonic()
    until = math.inf if options.minutes is None else begin + 60 * options.minutes
    try:
        with shown() as show:
            show("the first run")
            for added in () if options.draw else train(until):
                show(f"{len(results)} runs, {time.monotonic() - begin:.0f} s: {added}")
    except KeyboardInterrupt:
        print("stopped; the same command goes on, and --draw reports what is done", file=sys.stderr)
        raise


def _trained(
    batches: Sequence[Sequence[Run]], threads: int, until: float
) -> Iterator[tuple[Sequence[Run], Sequence[Result]]]:
    """Batches and their results as they end, `threads` at a time; at `until` those under way are the last."""
    from dlcp.study.training.training import train

    waiting = list(reversed(batches))
    with ThreadPoolExecutor(threads) as pool:
        under_way: dict[Future[list[Result]], Sequence[Run]] = {}
        while waiting or under_way:
            if time.monotonic() > until:
                waiting.clear()
            while waiting and len(under_way) < threads:
                runs = waiting.pop()
                under_way[pool.submit(train, runs)] = runs
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(future), future.result()


def mse(options: argparse.Namespace) -> None:
    with one_thread():
        from dlcp.study.training import mse, mse_report, report

        begin = time.monotonic()
        with shown() as show:
            found = mse.measure(
                entries=options.entries,
                ranks=options.ranks,
                progress=lambda share: show(f"{share:.0%}{left(begin, share)}"),
            )

        def draw(path: Path) -> None:
            from dlcp.study.training import mse_figure

            mse_figure.draw(found, path)

        report.leave(
            options.output / "mse",
            mse_report.text(found),
            asdict(found),
            mse_report.markdown(found),
            None if options.no_picture else draw,
            as_json=options.json,
        )
