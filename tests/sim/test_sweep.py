"""Sweeps: which points, that they go on, and that a point that dies takes no other along."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp_sim import sweeps
from dlcp_sim.points import Point, SweepOutcome
from dlcp_sim.sweeps import points_of, read_vary, run_in_processes

SCENARIO = ds.Scenario(fabric=ds.Star(4), transport=ds.Ndp(), workload=ds.permutation(bytes=50_000))
LONG = {"workload.bytes": [50_000_000_000]}


def test_points_are_all_combinations_in_order() -> None:
    points = points_of(SCENARIO, {"seed": [1, 2], "transport.window_packets": [5, 10]})
    assert [dict(point.varied) for point in points] == [
        {"seed": 1, "transport.window_packets": 5},
        {"seed": 1, "transport.window_packets": 10},
        {"seed": 2, "transport.window_packets": 5},
        {"seed": 2, "transport.window_packets": 10},
    ]
    assert str(points[0]) == "seed=1, transport.window_packets=5"
    assert points[3].tables["transport"]["window_packets"] == 10
    assert len({point.key for point in points}) == 4


def test_equal_points_are_one() -> None:
    assert len(points_of(SCENARIO, {"seed": [1, 1, 2], "threads": [1, 2]})) == 2


def test_every_point_is_checked_before_the_first_one_runs(tmp_path: Path) -> None:
    store = tmp_path / "sweep.sqlite"
    with pytest.raises(ArgumentError, match="seed=1, transport.paths=3: ndp.paths is 3; accepted"):
        ds.sweep(SCENARIO, {"seed": [1], "transport.paths": [4, 3]}, store)
    assert not store.exists()
    with pytest.raises(ArgumentError, match="seed is varied over 3; accepted: a list of values"):
        points_of(SCENARIO, {"seed": 3})  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="seed is varied over no value"):
        ds.sweep(SCENARIO, {"seed": []}, store)
    with pytest.raises(ArgumentError, match="has 10000000000 points; accepted: up to 1000000"):
        ds.sweep(SCENARIO, {"seed": range(100_000), "transport.paths": range(100_000)}, store)
    with pytest.raises(ArgumentError, match="jobs is 0; accepted: 1 to 1024"):
        ds.sweep(SCENARIO, {"seed": [1]}, store, jobs=0)


def test_a_sweep_keeps_every_result_and_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "sweep.sqlite"
    first = ds.sweep(SCENARIO, {"seed": [1, 2, 3]}, store, jobs=2)
    assert (first.points, first.skipped, first.done, first.missing) == (3, 0, 3, 0)
    seen: list[int] = []
    second = ds.sweep(
        SCENARIO, {"seed": [2, 3, 4, 5]}, store, jobs=2, progress=lambda report: seen.append(report.done)
    )
    assert (second.points, second.skipped, second.done) == (4, 2, 2)
    assert seen == [1, 2]
    with ds.Store(store) as opened:
        results = {result.seed: result for result in opened.results()}
    assert sorted(results) == [1, 2, 3, 4, 5]
    # What a process of its own found is what is found here.
    here = ds.Scenario(
        fabric=SCENARIO.fabric, transport=SCENARIO.transport, workload=SCENARIO.workload, seed=4
    ).run()
    assert (results[4].flows.completion_s == here.flows.completion_s).all()


def test_a_point_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    store = tmp_path / "sweep.sqlite"
    report = ds.sweep(SCENARIO, {"workload.bytes": [1000, -5, 2000]}, store, jobs=1)
    assert (report.done, report.missing) == (2, 1)
    ((point, error),) = report.failures
    assert point.varied == {"workload.bytes": -5}
    assert error == "workload: bytes is -5; accepted: 0 bytes or more"
    again = ds.sweep(SCENARIO, {"workload.bytes": [1000, -5, 2000]}, store, jobs=1)
    assert (again.skipped, again.done, len(again.failures)) == (2, 0, 1)


OWN = """
from dataclasses import dataclass
from dlcp_sim.workloads import Load, Workload

@dataclass(frozen=True, kw_only=True)
class Pair(Workload):
    kind = "pair"
    bytes: int = 1000

    def add_to(self, load: Load, fabric: object, seed: int) -> None:
        load.flows.append(source=0, destination=1, bytes=self.bytes)
"""


def test_a_workload_of_ones_own_is_known_to_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_workloads_of_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    pair = importlib.import_module("own_workloads_of_a_test").Pair
    scenario = ds.Scenario(fabric=ds.Star(4), transport=ds.Ndp(), workload=pair())
    report = ds.sweep(scenario, {"workload.bytes": [1000, 2000]}, tmp_path / "sweep.sqlite", jobs=1)
    assert (report.done, report.failures) == (2, [])
    monkeypatch.setattr(pair, "__module__", "__main__")
    with pytest.raises(ArgumentError, match="Pair is defined in the program itself; put it into a module"):
        ds.sweep(scenario, {"seed": [1]}, tmp_path / "sweep.sqlite")


def worker_of(parent: int) -> list[int]:
    """The processes that `parent` has started to simulate in."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rsplit(")", 1)[1].split()
            command = (stat.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(words[1]) == parent and "dlcp_sim.worker" in command:
            found.append(int(stat.parent.name))
    return found


def outcomes_while(points: Sequence[Point], jobs: int) -> Iterator[SweepOutcome]:
    """Outcomes, with the process of the long point killed as soon as the short ones are done."""
    short = sum(point.varied["workload.bytes"] < 10**9 for point in points)
    for index, outcome in enumerate(run_in_processes(points, jobs), 1):
        yield outcome
        if index == short:
            (pid,) = worker_of(os.getpid())
            os.kill(pid, signal.SIGKILL)


def test_a_killed_worker_costs_its_own_point_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "run_in_processes", outcomes_while)
    store = tmp_path / "sweep.sqlite"
    vary = {"workload.bytes": [*LONG["workload.bytes"], 1000, 2000, 3000]}
    report = ds.sweep(SCENARIO, vary, store, jobs=2)
    assert report.done == 3
    ((point, error),) = report.failures
    assert point.varied == {"workload.bytes": LONG["workload.bytes"][0]}
    assert error == "its process was ended by signal 9; is there enough memory?"
    assert worker_of(os.getpid()) == []


def test_a_worker_that_dies_while_others_wait_is_replaced(tmp_path: Path) -> None:
    """With one process at a time, the death of the first must not end the sweep."""
    points = points_of(SCENARIO, {"workload.bytes": [*LONG["workload.bytes"], 1000, 2000]})
    outcomes = run_in_processes(points, 1)

    def kill() -> None:
        while not (pids := worker_of(os.getpid())):
            time.sleep(0.01)
        os.kill(pids[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    found = list(outcomes)
    thread.join()
    assert [outcome.result is not None for outcome in found] == [False, True, True]
    assert "signal 9" in found[0].error


def test_closing_a_sweep_ends_its_processes() -> None:
    points = points_of(SCENARIO, {"workload.bytes": [1000, *LONG["workload.bytes"]]})
    outcomes = run_in_processes(points, 2)
    next(outcomes)
    assert worker_of(os.getpid())
    outcomes.close()  # type: ignore[attr-defined]
    assert worker_of(os.getpid()) == []


def test_a_worker_ends_with_the_sweep_that_asked() -> None:
    """Also when the sweep is killed and cannot tell it."""
    code = f"""
from dlcp_sim.sweeps import points_of, run_in_processes
from dlcp_sim.scenario import Scenario
import json
scenario = Scenario.from_dict(json.loads({json.dumps(json.dumps(SCENARIO.as_dict()))}))
for outcome in run_in_processes(points_of(scenario, {{"workload.bytes": [1000, {LONG["workload.bytes"][0]}]}}), 2):
    print(flush=True)
"""
    sweep = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert sweep.stdout is not None
    sweep.stdout.readline()
    # The one that works on the long point; the other may still be about to end.
    workers = [os.pidfd_open(pid) for pid in worker_of(sweep.pid)]
    assert workers
    sweep.kill()
    sweep.wait()
    sweep.stdout.close()
    for worker in workers:
        assert select.select([worker], [], [], 100)[0], "the worker goes on without anybody who waits for it"
        os.close(worker)


def test_a_worker_whose_sweep_is_gone_before_it_simulates_ends() -> None:
    """What it is asked takes far longer than a test may."""
    connection, other = Pipe()
    gone = subprocess.Popen(["true"])
    gone.wait()
    command = [sys.executable, "-m", "dlcp_sim.worker", str(other.fileno()), str(gone.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, pass_fds=[other.fileno()]) as worker:
        other.close()
        connection.send((SCENARIO.as_dict() | {"workload": ds.permutation(bytes=10**12).as_dict()}, []))
        _, errors = worker.communicate()
    connection.close()
    assert worker.returncode == 1
    assert errors == "the sweep that asked for this is gone\n"


def test_a_worker_keeps_its_answers_apart_from_what_is_printed() -> None:
    """A scenario that is no scenario is answered with an error; the stream goes on."""
    connection, other = Pipe()
    command = [sys.executable, "-m", "dlcp_sim.worker", str(other.fileno()), str(os.getpid())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[other.fileno()])
    other.close()
    assert process.stdout is not None
    try:
        connection.send(({"seed": 1}, []))
        assert connection.recv() == (
            None,
            "the scenario has no [fabric]; it needs fabric, transport and workload",
        )
        connection.send((SCENARIO.as_dict(), []))
        content, error = connection.recv()
        assert error == ""
        assert ds.Result.from_bytes(content).scenario == SCENARIO.as_dict()
    finally:
        connection.close()
        assert process.stdout.read() == b""
        process.stdout.close()
        assert process.wait(100) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed=1..4", ("seed", [1, 2, 3, 4])),
        ("x=0..100..25", ("x", [0, 25, 50, 75, 100])),
        ("x=-2..0", ("x", [-2, -1, 0])),
        ("seed=3", ("seed", [3])),
        ("transport.kind = ndp, dctcp", ("transport.kind", ["ndp", "dctcp"])),
        ("t.min_rto_s=1e-3,1e-2", ("t.min_rto_s", [1e-3, 1e-2])),
        ("x=true,false", ("x", [True, False])),
    ],
)
def test_varied_settings_in_words(text: str, expected: tuple[str, list[Any]]) -> None:
    assert read_vary(text) == expected


@pytest.mark.parametrize("text", ["", "seed", "seed=", "=3", "seed=4..1", "seed=1..4..0", "seed=0..99999999"])
def test_words_that_vary_nothing(text: str) -> None:
    with pytest.raises(ArgumentError, match="is not accepted"):
        read_vary(text)
