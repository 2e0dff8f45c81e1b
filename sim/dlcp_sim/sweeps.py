"""Many runs of one scenario with some settings varied: on all cores, or on a Ray cluster; resumable.

A point is a scenario with one value of each varied setting. All points are checked before the first one runs. Each is
known by a hash of its whole scenario (store.py), so that a sweep that is started again runs only what is missing, also
after its list of values has changed. A point that fails, or whose process dies, is recorded as failed and costs the
others nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from dlcp.errors import ArgumentError
from dlcp_sim.points import Point, SweepOutcome
from dlcp_sim.result import Result
from dlcp_sim.scenario import Scenario
from dlcp_sim.store import Store, key_of
from dlcp_sim.toml import read_value, with_setting
from dlcp_sim.workloads import Together, Workload

MAX_POINTS = 1_000_000
MAX_JOBS = 1024


@dataclass
class Report:
    """What a sweep did."""

    points: int
    skipped: int
    """Done before."""
    done: int = 0
    failures: list[tuple[Point, str]] = field(default_factory=list)
    interrupted: bool = False

    @property
    def missing(self) -> int:
        """Points that have no result."""
        return self.points - self.skipped - self.done


Progress = Callable[[Report], None]


def points_of(
    scenario: Scenario | Mapping[str, Any], vary: Mapping[str, Sequence[Any]], folder: Path | None = None
) -> list[Point]:
    """Every combination of the varied values, the last setting changing fastest; ArgumentError for one that cannot be.

    `scenario`: an object, or the tables of a file in `folder`. `threads` may be varied too, but gives equal points.
    """
    tables = scenario if isinstance(scenario, Mapping) else scenario.as_dict()
    count = 1
    for name, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ArgumentError(f"{name} is varied over {values!r}; accepted: a list of values")
        count *= len(values)
        if not values:
            raise ArgumentError(f"{name} is varied over no value; give at least one")
    if count > MAX_POINTS:
        raise ArgumentError(f"the sweep has {count} points; accepted: up to {MAX_POINTS}")
    points: dict[str, Point] = {}
    for values in itertools.product(*vary.values()):
        varied = dict(zip(vary, values, strict=True))
        changed = tables
        for name, value in varied.items():
            changed = with_setting(changed, name, value)
        try:
            made = Scenario.from_dict(changed, folder)
            complete, modules = made.as_dict(), modules_of(made.workload)
        except ArgumentError as error:
            where = ", ".join(f"{name}={value}" for name, value in varied.items())
            raise ArgumentError(f"{where}: {error}" if where else str(error)) from None
        key = key_of(complete)
        points.setdefault(key, Point(varied, complete, key, modules))
    return list(points.values())


def modules_of(workload: Workload) -> tuple[str, ...]:
    """Modules of workloads that are not the simulator's own; ArgumentError for one that no other process can import."""
    found: dict[str, None] = {}
    parts = list(workload.workloads) if isinstance(workload, Together) else [workload]
    for part in parts:
        module = type(part).__module__
        if module == "__main__":
            raise ArgumentError(
                f"{type(part).__name__} is defined in the program itself; put it into a module of its own, which the "
                "processes of a sweep can import"
            )
        if not module.startswith("dlcp_sim."):
            found[module] = None
    return tuple(found)


def sweep(
    scenario: Scenario | Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    store: Store | Path | str,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Runs what is missing in `store`, and keeps every result there as soon as it is in.

    `jobs`: processes at a time, default one per core that this process may use, shared out by the scenario's threads.
    `ray`: address of a cluster, "local" to start one here. `progress`: called after every point. Ctrl-C ends it with
    what is there; a Report says so, and starting again goes on.
    """
    points = points_of(scenario, vary, folder)
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise ArgumentError(f"jobs is {jobs!r}; accepted: 1 to {MAX_JOBS}")
    if not isinstance(store, Store):
        with Store(store) as opened:
            return _run(points, opened, jobs, ray, progress)
    return _run(points, store, jobs, ray, progress)


def _run(
    points: Sequence[Point], store: Store, jobs: int | None, ray: str | None, progress: Progress | None
) -> Report:
    done = store.done()
    missing = [point for point in points if point.key not in done]
    report = Report(points=len(points), skipped=len(points) - len(missing))
    if not missing:
        return report
    outcomes: Iterator[SweepOutcome]
    if ray is not None:
        from dlcp_sim.ray_runner import run_on_ray

        outcomes = run_on_ray(missing, ray, jobs)
    else:
        outcomes = run_in_processes(missing, jobs or _jobs(missing))
    try:
        for outcome in outcomes:
            _keep(outcome, store, report)
            if progress is not None:
                progress(report)
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        outcomes.close()  # type: ignore[attr-defined]  # generators, whose processes end with them
    return report


def _keep(outcome: SweepOutcome, store: Store, report: Report) -> None:
    point, error = outcome.point, outcome.error
    if outcome.result is not None:
        store.add(point.key, point.varied, Result.from_bytes(outcome.result), outcome.seconds)
        report.done += 1
    else:
        store.add_failure(point.key, point.varied, point.tables, error, outcome.seconds)
        report.failures.append((point, error))


def _jobs(points: Sequence[Point]) -> int:
    threads = max(int(point.tables.get("threads", 1)) for point in points)
    return max(1, len(os.sched_getaffinity(0)) // threads)


# ---- processes ----


@dataclass
class _Worker:
    """A process and the point that it simulates."""

    process: subprocess.Popen[bytes]
    connection: Connection
    point: Point
    since: float

    @classmethod
    def start(cls, point: Point) -> _Worker:
        """A new one that simulates a point."""
        connection, other = Pipe()
        with other:
            command = [sys.executable, "-m", "dlcp_sim.worker", str(other.fileno()), str(os.getpid())]
            # What can be imported here can be imported there.
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
            process = subprocess.Popen(command, pass_fds=[other.fileno()], env=environment)
        worker = cls(process, connection, point, 0.0)
        worker.give(point)
        return worker

    def give(self, point: Point) -> None:
        """Sends it a point. A dead worker's answer is None."""
        self.point, self.since = point, time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send((point.tables, point.modules))

    def answer(self) -> tuple[bytes | None, str] | None:
        """A result as a block or what went wrong; None: it died."""
        try:
            answer: tuple[bytes | None, str] = self.connection.recv()
        except (EOFError, OSError):
            return None
        return answer

    def end(self) -> int:
        """Ends it, at once. Returns its status, negative for a signal."""
        self.process.kill()
        self.connection.close()
        return self.process.wait()


def run_in_processes(points: Sequence[Point], jobs: int) -> Iterator[SweepOutcome]:
    """Runs points in `jobs` processes of this host; yields what became of each as it ends. Closing it ends all."""
    waiting = list(reversed(points))
    workers: dict[object, _Worker] = {}

    def start() -> None:
        worker = _Worker.start(waiting.pop())
        workers[worker.connection] = worker

    try:
        while len(workers) < jobs and waiting:
            start()
        while workers:
            for ready in wait([worker.connection for worker in workers.values()]):
                worker = workers[ready]
                answer, point, seconds = worker.answer(), worker.point, time.monotonic() - worker.since
                if answer is not None and waiting:
                    worker.give(waiting.pop())
                else:
                    del workers[ready]
                    answer = answer or (None, _died(_ended(worker)))
                    worker.end()
                    if waiting:
                        start()
                yield SweepOutcome(point, *answer, seconds)
    finally:
        for worker in workers.values():
            worker.end()


def _ended(worker: _Worker) -> int:
    """The status of a worker that has closed its connection: how it died, if it did so by itself."""
    try:
        return worker.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return 0


def _died(status: int) -> str:
    if status < 0:
        hint = "; is there enough memory?" if status == -9 else ""
        return f"its process was ended by signal {-status}{hint}"
    return f"its process ended with status {status} and no answer"


# ---- as the command line says it ----

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(\d+))?")


def read_vary(text: str) -> tuple[str, list[Any]]:
    """A varied setting as the command line says it.

    `seed=1..20`, `x=0..100..25` (first, last, step), `transport.kind=ndp,dctcp`, `transport.min_rto_s=1e-3,1e-2`.
    """
    name, separator, words = text.partition("=")
    if not separator or not name.strip() or not words.strip():
        raise ArgumentError(
            f"{text!r} is not accepted; accepted: SETTING=VALUE,VALUE,… or SETTING=FIRST..LAST"
        )
    if found := _RANGE.fullmatch(words.strip()):
        first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if step < 1 or last < first:
            raise ArgumentError(f"{text!r} is not accepted; accepted: a range upwards, such as seed=1..20")
        if (last - first) // step >= MAX_POINTS:
            raise ArgumentError(f"{text!r} is not accepted; accepted: up to {MAX_POINTS} values")
        return name.strip(), list(range(first, last + 1, step))
    return name.strip(), [read_value(word) for word in words.split(",")]
