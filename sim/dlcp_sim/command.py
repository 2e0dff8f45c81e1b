"""The command `dlcp sim`: run one scenario, compare transports on it, vary its settings, make a page of results.

Exit status: 0 done; 1 some points of a sweep failed; 2 bad input; 130 after Ctrl-C, with what was found until then
printed and saved.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from dlcp.arguments import Parser, add_json, add_output
from dlcp.checks import option
from dlcp.errors import ArgumentError
from dlcp.progress import Line, terminal_line
from dlcp.units import aligned, duration

if TYPE_CHECKING:
    from dlcp_sim.result import Result
    from dlcp_sim.sweeps import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.action(options)
    except sqlite3.Error as error:  # damaged, locked by somebody for long, or no room
        paths = [options.store] if "store" in options else options.source
        raise ArgumentError(f"the store {', '.join(map(str, paths))}: {error}") from None
    return status


# --- run ------------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    """`dlcp sim run`."""
    result, stopped = _simulated(_tables(options), options)
    _print_results([result], options)
    if options.output is not None:
        _save(result, options, "result")
    return 130 if stopped else 0


def _compare(options: argparse.Namespace) -> int:
    """`dlcp sim compare`."""
    from dlcp_sim.scenario import Scenario
    from dlcp_sim.toml import with_setting

    tables = _tables(options)
    kinds = list(dict.fromkeys(options.transport))
    each = {kind: with_setting(tables, "transport.kind", kind) for kind in kinds}
    for changed in each.values():  # all of them are sound before the first one runs
        Scenario.from_dict(changed, options.file.parent)
    results, stopped = [], False
    for place, (kind, changed) in enumerate(each.items()):
        result, stopped = _simulated(changed, options, prefix=f"{kind}: ")
        result.metadata.update(place=place)  # type: ignore[attr-defined] # for `report`: what others are compared with
        results.append(result)
        if options.output is not None:
            _save(result, options, kind)
        if stopped:
            break
    _print_results(results, options)
    return 130 if stopped else 0


def _print_results(results: Sequence[Result], options: argparse.Namespace) -> None:
    """One result, or several beside each other, under what differs between them."""
    from dlcp_sim.report.tables import comparison, names, unlike

    if options.json:
        named = zip(names(results), results, strict=True)
        _print_json(
            {"name": name, "ended_by": one.metadata["ended_by"], **one.figures()} for name, one in named
        )
    elif len(results) == 1 and options.action is not _compare:
        print(results[0].summary())
    else:
        print("\n".join([*unlike(results), comparison(results).text()]))


def _print_json(rows: Iterable[Mapping[str, object]]) -> None:
    """A list of rows by column, whose names end with their units."""
    from dlcp_sim.report.tables import finite

    print(
        json.dumps([{name: finite(value) for name, value in row.items()} for row in rows], ensure_ascii=False)
    )


def _say(options: argparse.Namespace, line: str) -> None:
    """What has been done, beside what was asked for."""
    print(line, file=sys.stderr if options.json else sys.stdout)


def _tables(options: argparse.Namespace) -> Mapping[str, Any]:
    """The scenario's tables, with what the command line changes."""
    from dlcp_sim.toml import read_file, with_setting

    if options.modules and "" not in sys.path:
        sys.path.insert(0, "")  # what lies here is found, as by python -m
    for module in options.modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ArgumentError(f"--import {module}: {error}") from None
    tables = read_file(options.file)
    for name, value in options.set:
        tables = with_setting(tables, name, value)
    for name in ("seed", "threads"):
        if (value := getattr(options, name, None)) is not None:
            tables = with_setting(tables, name, value)
    return tables


def _simulated(
    tables: Mapping[str, Any], options: argparse.Namespace, prefix: str = ""
) -> tuple[Result, bool]:
    """The result of a scenario, and whether Ctrl-C ended it early."""
    from dlcp_sim.run import Interrupted
    from dlcp_sim.scenario import Scenario

    scenario = Scenario.from_dict(tables, options.file.parent)
    if options.output is not None:  # before a run that would be lost without it
        with _naming(f"--output {options.output}"):
            options.output.mkdir(parents=True, exist_ok=True)
    line = terminal_line(options.progress, prefix)
    try:
        return scenario.run(line), False
    except Interrupted as stop:
        return stop.result, True
    finally:
        if line is not None:
            line.clear()


@contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """A file that cannot be read or written is a wrong argument, which the error names."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror or error}") from None


def _save(result: Result, options: argparse.Namespace, name: str) -> None:
    """The result and its scenario as files in the folder, and a line that says so."""
    from dlcp_sim.toml import to_text

    with _naming(f"--output {options.output}"):
        path = result.save(options.output / f"{name}.npz")
        path.with_suffix(".toml").write_text(to_text(result.scenario), encoding="utf-8")
    _say(options, f"saved: {path}, {path.with_suffix('.toml').name}")


# --- sweep ----------------------------------------------------------------------------------------------------


def _sweep(options: argparse.Namespace) -> int:
    """`dlcp sim sweep`."""
    from dlcp_sim.store import Store
    from dlcp_sim.sweeps import sweep

    vary: dict[str, list[Any]] = {}
    for name, values in options.vary:
        if name in vary:
            raise ArgumentError(f"--vary {name} is given twice")
        vary[name] = values
    line = terminal_line(options.progress)
    with Store(options.store) as store:
        report = sweep(
            _tables(options),
            vary,
            store,
            jobs=options.jobs,
            ray=options.ray,
            folder=options.file.parent,
            progress=_shown_by(line),
        )
        if line is not None:
            line.clear()
        _say(options, "\n".join(_sweep_lines(report, store.path)))
        if options.json:
            _print_json(_points(store))
        else:
            print("\n".join(["", *store_table(store)]))
    if report.interrupted:
        _say(options, "stopped; the same command goes on")
        return 130
    return 1 if report.failures else 0


def _shown_by(line: Line | None) -> Callable[[Report], None] | None:
    """Shows how far a sweep is."""
    if line is None:
        return None
    begin = time.monotonic()

    def show(report: Report) -> None:
        tried = report.done + len(report.failures)
        failed = f", {len(report.failures)} failed" if report.failures else ""
        left_s = (time.monotonic() - begin) / tried * (report.points - report.skipped - tried)
        line(f"{report.skipped + report.done} of {report.points} points{failed}, {duration(left_s)} left")

    return show


def _sweep_lines(report: Report, path: Path) -> list[str]:
    """What a sweep did, and where."""
    before = f", {report.skipped} were done before" if report.skipped else ""
    lines = [f"{report.points} points: {report.done} run{before}, {len(report.failures)} failed; in {path}"]
    for point, error in report.failures[:10]:
        lines.append(f"failed: {point}: {error.splitlines()[-1]}")
    if len(report.failures) > 10:
        lines.append(f"and {len(report.failures) - 10} more, with their reasons in the table points")
    return lines


def _points(store: Any) -> list[dict[str, Any]]:
    """The points of a store by column: what was varied, then every figure."""
    columns, body = store.table()
    return [dict(zip(columns, row, strict=True)) for row in body]


def store_table(store: Any) -> list[str]:
    """The points of a store as lines of text: a line per combination of what was varied, the mean over seeds."""
    rows = _points(store)
    if not rows:
        return ["no point is done"]
    columns = list(rows[0])
    varied = [name for name in columns[: columns.index("flows")] if name != "seed"]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[name]) for name in varied), []).append(row)
    figures = ("completion_mean_s", "completion_p50_s", "completion_p99_s", "completion_max_s")
    lines = [
        ["scenario" if not varied else ", ".join(varied), "runs", "finished", "mean", "p50", "p99", "max"]
    ]
    for group, members in groups.items():
        finished = sum(row["finished"] for row in members) / max(1, sum(row["flows"] for row in members))
        lines.append(
            [
                ", ".join(group) or "as it is",
                str(len(members)),
                f"{100 * finished:.4g} %",
                *(duration(_mean(row[name] for row in members)) for name in figures),
            ]
        )
    return list(aligned(lines))


def _mean(values: Any) -> float:
    known = [value for value in values if value is not None]
    return mean(known) if known else math.nan


# --- report ---------------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    """`dlcp sim report`."""
    results: list[Result] = []
    for path in options.source:
        results += _results(path, options)
    if not results:
        raise ArgumentError(f"{', '.join(map(str, options.source))}: no result; run a scenario first")
    if options.chrome_trace or options.pcap:
        _export(results, options)
    if options.output is not None:
        from dlcp_sim.report.page import write_report

        try:
            with _naming(f"--output {options.output}"):
                write_report(results, options.output)
        except ImportError as error:
            raise ArgumentError(
                f"the page has pictures ({error}); pip install '.[sim]' in a checkout of dlcp"
            ) from None
        _say(options, f"report: {options.output}")
    if options.json or not (options.output or options.chrome_trace or options.pcap):
        _print_results(results, options)
    return 0


def _export(results: list[Result], options: argparse.Namespace) -> None:
    """`dlcp sim report --chrome-trace FILE --pcap FILE`."""
    from dlcp_sim.report.chrome_trace import write_chrome_trace
    from dlcp_sim.report.pcap import write_pcap

    if len(results) > 1:
        raise ArgumentError(f"there are {len(results)} results; --chrome-trace and --pcap are for one")
    for name, write in (("chrome_trace", write_chrome_trace), ("pcap", write_pcap)):
        if path := getattr(options, name):
            with _naming(path):
                write(results[0], path)
            _say(options, f"written: {path}")


def _results(path: Path, options: argparse.Namespace) -> list[Result]:
    """What a file or a folder holds: one result, or a store of many; of a folder, all its results."""
    from dlcp_sim.result import Result
    from dlcp_sim.store import Store

    if not path.exists():
        raise ArgumentError(
            f"{path}: No such file or directory; give what `dlcp sim run --output` or a sweep left"
        )
    if path.is_dir():
        _refuse_tables(path, options)
        results = [Result.load(file) for file in sorted(path.glob("*.npz"))]
        return sorted(results, key=lambda result: int(result.metadata.get("place", 0)))
    with path.open("rb") as file:
        is_store = file.read(16) == b"SQLite format 3\0"
    if not is_store:
        _refuse_tables(path, options)
        return [Result.load(path)]
    with Store(path, create=False) as store:
        try:
            if options.csv:
                store.write_csv(options.csv)
            if options.parquet:
                store.write_parquet(options.parquet)
        except OSError as error:
            raise ArgumentError(f"{error.filename}: {error.strerror or error}") from None
        return list(store.results())


def _refuse_tables(path: Path, options: argparse.Namespace) -> None:
    if options.csv or options.parquet:
        raise ArgumentError(f"{path}: --csv and --parquet are for the store of a sweep")


# --- options --------------------------------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(
        prog="dlcp sim",
        description="The packet-level simulator. A scenario is a TOML file; docs/simulator.md says what it may hold.",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION", parser_class=Parser)
    run = actions.add_parser("run", help="simulate a scenario and say how it went")
    compare = actions.add_parser("compare", help="the same load over several transports")
    sweep = actions.add_parser(
        "sweep", help="simulate a scenario with settings varied, on all cores or on a Ray cluster; goes on"
    )
    report = actions.add_parser("report", help="a page, a table or a Parquet file of results")
    for action, function in ((run, _run), (compare, _compare), (sweep, _sweep), (report, _report)):
        action.set_defaults(action=function)
        add_json(action)
    for action in (run, compare, sweep):
        _add_scenario(action)
    for action in (run, compare):
        action.add_argument(
            "--seed", type=option(0, 2**63 - 1), metavar="N", help="another seed than the file's"
        )
        add_output(action, "DIR", "save results and scenarios there")
    compare.add_argument(
        "--transport",
        type=_words,
        required=True,
        metavar="KIND,KIND",
        help="the first one is what others are compared with; the file's own keeps its settings, others have defaults",
    )
    sweep.add_argument(
        "--vary",
        type=_vary,
        action="append",
        required=True,
        metavar="SETTING=VALUES",
        help="seed=1..20, transport.min_rto_s=1e-3,1e-2, transport.kind=ndp,dctcp; may be repeated: all combinations",
    )
    sweep.add_argument(
        "--store", type=Path, required=True, metavar="FILE.sqlite", help="where results are kept"
    )
    sweep.add_argument(
        "--jobs", type=option(1, 1024), metavar="N", help="runs at a time; default: as many as cores"
    )
    sweep.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run on this Ray cluster: host:port, ray://host:port, auto; local starts one",
    )
    _add_report(report)
    return parser


def _add_scenario(action: argparse.ArgumentParser) -> None:
    """The words of every action that simulates."""
    action.add_argument("file", type=Path, metavar="FILE.toml", help="the scenario")
    action.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="change a setting: transport.window_packets=30, faults.0.ratio=0.01; may be repeated",
    )
    action.add_argument("--threads", type=option(1, 1024), metavar="N", help="of each run; changes no result")
    action.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="a Python module with workloads of your own, so that the scenario can name them; may be repeated",
    )
    action.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show how far it is; default: on a terminal",
    )


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "source", type=Path, nargs="+", metavar="STORE|RESULT", help="stores, results, or folders of results"
    )
    add_output(report, "FILE.html", "one page with pictures; else a table is printed")
    report.add_argument(
        "--chrome-trace",
        type=Path,
        metavar="FILE.json",
        help="one result for ui.perfetto.dev: flows, tasks, queues",
    )
    report.add_argument(
        "--pcap", type=Path, metavar="FILE.pcap", help="one result's traced packets, for Wireshark"
    )
    report.add_argument("--csv", type=Path, metavar="FILE", help="a store's points, a row each")
    report.add_argument("--parquet", type=Path, metavar="FILE", help="the same as Parquet (needs pyarrow)")


def _setting(text: str) -> tuple[str, Any]:
    from dlcp_sim.toml import read_value

    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not value.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: SETTING=VALUE")
    return name.strip(), read_value(value)


def _vary(text: str) -> tuple[str, list[Any]]:
    from dlcp_sim.sweeps import read_vary

    try:
        return read_vary(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted; accepted: names of transports, with commas"
        )
    return words
