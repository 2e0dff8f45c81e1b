"""What the numbers of a study mean, on results that are made up; and that a stopped study goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from dlcp.study.training import report, table  # noqa: E402
from dlcp.study.training.arm import Arm  # noqa: E402
from dlcp.study.training.plan import ARMS, BASELINE, FEWER_ROUNDS, Scope, missing  # noqa: E402
from dlcp.study.training.record import Record  # noqa: E402
from dlcp.study.training.tolerance import EXTRA_ROUNDS, Results  # noqa: E402
from dlcp.study.training.training import Result, Run  # noqa: E402
from tests.study.training.records import add_missing, check_going_on, check_version  # noqa: E402

SCOPE = Scope(tasks=("mlp",), seeds=2, arms=ARMS)
DEFAULT = Arm("transport", "residual", 0.9)


def pretend(run: Run) -> Result:
    """A training whose end is known: best at rate 1; zero fill is worse by its loss, all else by a tenth of it."""
    slope = 1.0 if run.arm.fill == "zero" and run.arm.who == "random" else 0.1
    end = 2.0 + 0.001 * run.seed + 0.1 * math.log2(run.rate) ** 2 + slope * run.loss + 2.0 * (1 - run.rounds)
    return Result(end, run.loss)


def fill(record: Record, scope: Scope = SCOPE, runs_max: int = 10**9) -> int:
    plan = (runs for batches in missing(scope, record.results) for runs in batches)
    return add_missing(record, plan, pretend, runs_max)


def test_tolerance_is_where_the_excess_crosses_the_allowance(tmp_path: Path) -> None:
    record = Record(tmp_path)
    fill(record)
    results = record.results
    assert results.best_rate("mlp") == 1.0
    # 2.0 for all rounds.
    assert results.allowance("mlp") == pytest.approx(2.0 * EXTRA_ROUNDS)
    zero = results.tolerance("mlp", BASELINE, tuned=False)
    assert zero is not None
    assert zero.loss == pytest.approx(0.1, abs=1e-3)
    ours = results.tolerance("mlp", DEFAULT, tuned=True)
    assert ours is not None
    assert ours.at_least
    assert ours.loss == 0.9
    assert str(ours) == ">= 90 %"
    assert table.ratio(results, "mlp", DEFAULT, tuned=False) == pytest.approx(9.0, rel=0.02)
    assert table.worse_than_zero(results, DEFAULT)[0] == []


def test_diverged_runs_are_not_borne() -> None:
    results = Results()
    for seed in range(2):
        for rounds in (1.0, FEWER_ROUNDS):
            run = Run("mlp", BASELINE, 0.0, 1.0, seed, rounds=rounds)
            results.add(run, pretend(run))
    for loss, end in ((0.1, 2.0), (0.3, math.nan)):
        results.add(Run("mlp", DEFAULT, loss, 1.0, 0), Result(end, loss))
        results.add(Run("mlp", DEFAULT, loss, 1.0, 1), Result(2.0, loss))
    assert results.excess("mlp", DEFAULT, 0.3, 1.0) == math.inf
    found = results.tolerance("mlp", DEFAULT, tuned=False)
    assert found is not None
    assert found.loss == pytest.approx(0.1)


def test_stopped_study_goes_on(tmp_path: Path) -> None:
    check_going_on(tmp_path, Record, fill, runs_max=100)


def test_record_of_another_version_is_refused(tmp_path: Path) -> None:
    check_version(tmp_path, Record)


@pytest.mark.parametrize("runs_max", [60, 10**9])
def test_report_of_a_part_and_of_all(tmp_path: Path, runs_max: int) -> None:
    record = Record(tmp_path)
    fill(record, Scope(tasks=("mlp",), seeds=2), runs_max)
    complete = runs_max > 60
    assert ("missing" in table.text(record.results, complete=complete)) is not complete
    report.leave(
        tmp_path / "tolerance",
        "",
        table.as_dict(record.results, complete=complete),
        table.markdown(record.results, complete=complete),
        None,
    )
    numbers = json.loads((tmp_path / "tolerance.json").read_text())
    assert numbers["runs"] == len(record.results)
    assert numbers["models"]["mlp"]["arms"][0]["arm"] == "at random, zero"
    assert "| at random | zero |" in (tmp_path / "tolerance.md").read_text()


def test_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from dlcp.study.training.figure import draw

    record = Record(tmp_path)
    fill(record, Scope(tasks=("mlp",), seeds=2))
    draw(record.results, tmp_path / "tolerance.png")
    assert (tmp_path / "tolerance.png").stat().st_size > 10_000
