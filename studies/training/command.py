"""The words of `dlcp study`: what they mean, what is refused, and what is left behind.

Exit status: 0 done, 2 bad words. A study that was stopped has left what it has, and goes on when started again.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.arguments import Parser
from studies.training.errors import StudyError

if TYPE_CHECKING:
    from studies.training.training import Result, Run


def run(arguments: Sequence[str] | None, others: Mapping[str, str]) -> int:
    """Does what the words say. Returns the exit status. `others`: studies made elsewhere, to be listed."""
    parser = _parser(others)
    options = parser.parse_args(arguments)
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out {options.out} is a file; give a folder")
    try:
        import torch
    except ImportError as error:
        raise StudyError(f"the study trains with torch ({error}); pip install torch") from error
    before = torch.get_num_threads()
    # Operations on models this small do not divide; threads take trainings of their own.
    torch.set_num_threads(1)
    try:
        status: int = options.study(options)
        return status
    finally:
        torch.set_num_threads(before)


def _tolerance(options: argparse.Namespace) -> int:
    """`dlcp study tolerance`."""
    from studies.training import table
    from studies.training.plan import QUICK, Scope, missing
    from studies.training.record import Record

    scope = QUICK if options.quick else Scope()
    if options.seeds is not None:
        scope = scope.with_seeds(options.seeds)
    record = Record(options.out)
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    begin = time.monotonic()
    try:
        for batches in () if options.draw else missing(scope, record.results):
            for runs, results in _trained(batches, options.threads, until):
                record.add(runs, results)
                _progress(
                    f"{len(record.results)} runs, {time.monotonic() - begin:.0f} s: {table.doing(runs)}"
                )
            if until is not None and time.monotonic() > until:
                break
    except KeyboardInterrupt:
        _progress("")
        print("stopped; the same command goes on")
    _progress("")
    if not record.results.tasks():
        raise StudyError(f"{options.out} holds no run")
    complete = next(missing(scope, record.results), None) is None
    for line in table.lines(record.results, complete=complete):
        print(line)
    table.write(record.results, options.out, complete=complete)
    _draw(options, lambda: _draw_tolerance(record, options.out))
    return 0


def _trained(
    batches: Sequence[Sequence[Run]], threads: int, until: float | None
) -> Iterator[tuple[Sequence[Run], Sequence[Result]]]:
    """Batches and their results as they end, `threads` at a time; at `until` those under way are the last."""
    from studies.training.training import train

    waiting = list(reversed(batches))
    with ThreadPoolExecutor(threads) as pool:
        under_way: dict[Future[list[Result]], Sequence[Run]] = {}
        while waiting or under_way:
            if until is not None and time.monotonic() > until:
                waiting.clear()
            while waiting and len(under_way) < threads:
                runs = waiting.pop()
                under_way[pool.submit(train, runs)] = runs
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(future), future.result()


def _draw_tolerance(record: object, out: Path) -> Path:
    from studies.training.figure import draw

    return draw(record.results, out / "tolerance.png")  # type: ignore[attr-defined]


def _mse(options: argparse.Namespace) -> int:
    """`dlcp study mse`."""
    from studies.training import mse, mse_report

    found = mse.measure(
        entries=options.entries, ranks=options.ranks, progress=lambda share: _progress(f"{share:.0%}")
    )
    _progress("")
    for line in mse_report.lines(found):
        print(line)
    mse_report.write(found, options.out)

    def picture() -> Path:
        from studies.training.mse_figure import draw

        return draw(found, options.out / "mse.png")

    _draw(options, picture)
    return 0


def _draw(options: argparse.Namespace, draw: Callable[[], Path]) -> None:
    """The picture; without matplotlib a sentence instead."""
    if options.no_picture:
        return
    try:
        path = draw()
    except ImportError as error:
        print(f"\nno picture: {error}; pip install matplotlib")
        return
    print(f"\npicture: {path}")


def _progress(words: str) -> None:
    """One line that is overwritten, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r{words[:100]:<100}\r", end="", file=sys.stderr, flush=True)


# --- words ----------------------------------------------------------------------------------------------------


def _parser(others: Mapping[str, str]) -> Parser:
    parser = Parser(
        prog="dlcp study",
        description="Studies on this machine and without a network: what loss does to training, and how transports do "
        "on simulated networks.",
    )
    studies = parser.add_subparsers(required=True, metavar="STUDY", parser_class=Parser)
    tolerance = studies.add_parser(
        "tolerance",
        help="how much of its gradients a training may lose before it needs more rounds",
        description="The largest loss at which a training needs no extra rounds: by model, by who is dropped, by what "
        "becomes of it. Goes on where it was stopped. In full about an hour of one processor.",
    )
    tolerance.set_defaults(study=_tolerance)
    tolerance.add_argument(
        "--quick", action="store_true", help="one small model, fewer losses: a minute or two"
    )
    tolerance.add_argument(
        "--seeds",
        type=_integer(2, 100),
        metavar="N",
        help="some models take N two or three times; default: 3, with --quick 2",
    )
    tolerance.add_argument(
        "--minutes",
        type=_integer(1, 10_000),
        metavar="M",
        help="stop after M; the report says what is missing",
    )
    tolerance.add_argument(
        "--threads", type=_integer(1, 64), default=1, metavar="N", help="trainings at a time; default: 1"
    )
    tolerance.add_argument(
        "--draw", action="store_true", help="train nothing; report on what is in --out again"
    )
    mse = studies.add_parser(
        "mse",
        help="how far one aggregated tensor is from the truth under equal drops",
        description="Mean squared error of one aggregated tensor, by how it is aggregated, under equal drops.",
    )
    mse.set_defaults(study=_mse)
    mse.add_argument(
        "--entries",
        type=_integer(10_000, 2_000_000_000),
        default=50_000_000,
        metavar="N",
        help="of the tensor; in pieces, so memory does not grow with it; default: 50000000",
    )
    mse.add_argument("--ranks", type=_integer(2, 64), default=8, metavar="N", help="2 to 64; default: 8")
    for name, summary in others.items():
        studies.add_parser(name, help=summary)  # for the list; who makes them reads their words
    for study in (tolerance, mse):
        study.add_argument(
            "--out",
            type=Path,
            default=Path("dlcp-study"),
            metavar="DIR",
            help="folder for results; default: dlcp-study",
        )
        study.add_argument("--no-picture", action="store_true", help="only tables and numbers")
    return parser


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: {low} to {high}")
        return int(text)

    return read
