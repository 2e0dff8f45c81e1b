"""What the numbers of the study of precision mean, on results that are made up; and that a stopped study goes on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from dlcp.cli import main  # noqa: E402
from dlcp.study.training.precision import plan, problems, table  # noqa: E402
from dlcp.study.training.precision.arm import Arm, bits_of  # noqa: E402
from dlcp.study.training.precision.capacity import mean_times  # noqa: E402
from dlcp.study.training.precision.plan import (  # noqa: E402
    AS_INT4,
    EXACT,
    FEW,
    FEW_LARGE,
    FEW_MORE,
    ORDER,
    RATES,
    SHOWN,
    Scope,
    missing,
)
from dlcp.study.training.precision.record import Record  # noqa: E402
from dlcp.study.training.precision.training import Result, Run, train  # noqa: E402
from tests.study.training.records import add_missing, check_going_on, check_version  # noqa: E402

PROBLEM = "mlp sgd"
SCOPE = Scope(problems=(PROBLEM,), seeds=2, core_seeds=3)


def pretend(run: Run) -> Result:
    """A training whose end is known: best at rate 1, 0.2 better for each round, worse by 0.4 over the bits.

    Two flat bits are best at half the rate.
    """
    best = 0.5 if run.arm == Arm("int2") else 1.0
    end = 2.0 + 0.01 * run.seed + 0.1 * math.log2(run.rate / best) ** 2 - 0.2 * run.rounds
    return Result(end + (0.4 / run.arm.bits if run.arm != EXACT else 0.0), run.arm.bits)


def fill(record: Record, runs_max: int = 10**9) -> int:
    return add_missing(record, missing(SCOPE, record.results), pretend, runs_max)


def test_excess_and_rounds_are_those_of_the_best_rate(tmp_path: Path) -> None:
    record = Record(tmp_path)
    fill(record)
    results = record.results
    assert results.best_rate(PROBLEM, EXACT) == 1.0
    assert results.excess(PROBLEM, EXACT) == 0.0
    assert results.rounds(PROBLEM, EXACT) == 1.0
    two = Arm("int2")
    # Its excess is above the seeds' spread, so other rates were tried.
    assert results.rates(PROBLEM, two) == list(RATES)
    assert results.best_rate(PROBLEM, two) == 0.5
    assert results.excess(PROBLEM, two) == pytest.approx(0.4 / 2.25)
    assert results.deviation(PROBLEM, two) == pytest.approx(0.0, abs=1e-5)
    # A loss of 0.178 is more than half of the rounds.
    assert results.rounds(PROBLEM, two) == 0.0
    assert results.rounds(PROBLEM, Arm("int4")) == pytest.approx(1 - 0.4 / 4.25 / 0.2, abs=1e-4)
    assert results.rounds(PROBLEM, Arm("fp16")) == pytest.approx(1 - 0.4 / 16 / 0.2, abs=1e-4)


def test_few_bits_are_run_on_all_kinds_and_compared_by_pairs(tmp_path: Path) -> None:
    record = Record(tmp_path)
    large = "tf 10m adamw"
    scope = replace(SCOPE, arms=(), few=("tfn adamw",), large=(large,))

    def pretend_curve(run: Run) -> Result:
        """As good as dense, or 0.1 and every other seed 0.02 behind; twice as late if it is behind."""
        behind = 0.1 + 0.02 * (run.seed % 2) if run.arm == Arm("int4") else 0.0
        slope = 0.2 if behind else 0.4
        return Result(1.0 + behind, run.arm.bits, tuple(5.0 - slope * point for point in range(1, 10)))

    add_missing(record, missing(scope, record.results), pretend_curve, 10**9)
    results = Record(tmp_path).results
    assert len(results.excesses("tfn adamw", FEW[-1])) == len(results.excesses(PROBLEM, FEW[0])) == 16
    assert len(results.excesses("tfn adamw", FEW_MORE[-1])) == 8
    assert FEW_MORE[-1] not in results.arms(PROBLEM)
    assert results.arms(large) == [EXACT, *FEW_LARGE]
    assert {len(results.excesses(large, arm)) for arm in FEW_LARGE} == {8}
    assert results.rates(large, EXACT) == list(RATES)
    four = Arm("int4")
    assert len(results.excesses("tfn adamw", four)) == 16
    assert results.excess("tfn adamw", four) == pytest.approx(0.11)
    assert results.error("tfn adamw", four) == pytest.approx(0.01 * math.sqrt(16 / 15) / math.sqrt(16))
    assert results.halfway("tfn adamw", four) == pytest.approx([1.0] * 16)
    # Dense comes to 3.0 after five points; 1.1 is below it, and 3.2 after nine points is not.
    assert results.later("tfn adamw", four) == pytest.approx(
        [(9 + 0.2 / 2.1) / 5, (9 + 0.2 / 2.08) / 5] * 8, rel=1e-6
    )
    markdown = "\n".join(table.markdown(results, complete=True))
    assert "| tfn adamw | int8 | 8.25 | 16 | +0.0000 ± 0.0000 | yes |" in markdown
    assert (
        "int4: ends within one standard error of dense, or before it, in 0 of 2 trainings, in the mean of them"
        in markdown
    )


def test_a_run_that_diverged_is_worse_than_any(tmp_path: Path) -> None:
    record = Record(tmp_path)
    arm = Arm("int2")
    for rounds in (1.0, 0.5):
        run = Run(PROBLEM, EXACT, 1.0, 0, rounds)
        record.add([run], [pretend(run)])
    record.add([Run(PROBLEM, arm, 1.0, 0)], [Result(math.nan, 2.25)])
    results = Record(tmp_path).results
    assert results.excess(PROBLEM, arm) == math.inf
    assert results.rounds(PROBLEM, arm) == 0.0
    assert "diverged" in table.text(results, complete=False)


def test_a_stopped_study_goes_on(tmp_path: Path) -> None:
    check_going_on(tmp_path, Record, fill, runs_max=40)


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    check_version(tmp_path, Record)


def test_every_arm_is_shown_once() -> None:
    assert len(set(SHOWN)) == len(SHOWN)
    assert set(SHOWN) == {EXACT, *ORDER, *FEW, *FEW_MORE}
    assert len({arm.name for arm in SHOWN}) == len(SHOWN)


def test_as_int4_sends_as_many_bits() -> None:
    assert pytest.approx(bits_of("int4"), abs=1e-3) == AS_INT4.bits


@pytest.mark.parametrize("runs_max", [30, 10**9])
def test_report_of_a_part_and_of_all(tmp_path: Path, runs_max: int) -> None:
    record = Record(tmp_path)
    fill(record, runs_max)
    assert main(["study", "precision", "--draw", "--no-picture", "--output", str(tmp_path)]) == 0
    numbers = json.loads((tmp_path / "precision.json").read_text())
    assert numbers["runs"] == len(record.results)
    assert numbers["problems"][PROBLEM]["arms"][0]["arm"] == "fp32"
    assert "| int4 | 4.25 | 13.3% |" in (tmp_path / "precision.md").read_text()


def test_quick_trains_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems.PerceptronSgd, "steps", 4)
    arms = (Arm("int4"), replace(AS_INT4, capacity="log-normal"))
    monkeypatch.setattr(plan, "QUICK", Scope(problems=(PROBLEM,), seeds=2, core_seeds=2, arms=arms))
    assert main(["study", "precision", "--quick", "--output", str(tmp_path), "--no-picture"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "precision-runs.csv",
        "precision.json",
        "precision.md",
    }
    assert json.loads((tmp_path / "precision.json").read_text())["complete"]


def test_nothing_to_draw_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "precision", "--draw", "--output", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from dlcp.study.training.precision.figure import draw

    record = Record(tmp_path)
    fill(record)
    draw(record.results, tmp_path / "precision.png")
    assert (tmp_path / "precision.png").stat().st_size > 10_000


def test_a_training_is_the_same_alone_and_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(problems.PerceptronSgd, "steps", 5)
    run = Run(PROBLEM, replace(AS_INT4, capacity="log-normal"), 1.0, 1)
    (alone,) = train([run])
    among = train([replace(run, seed=0), run, replace(run, rate=0.5)])[1]
    assert among.held_out == pytest.approx(alone.held_out, rel=1e-4)
    assert among.bits == pytest.approx(alone.bits, rel=1e-3)
    with pytest.raises(ValueError, match="common to a group"):
        train([run, replace(run, arm=EXACT)])


def test_time_where_one_link_is_slow_is_the_base_on_it() -> None:
    own, (four, two) = mean_times(replace(AS_INT4, capacity="slow rank"), ("int4", "int2"), steps=3)
    assert own == pytest.approx(two)
    assert four / two == pytest.approx(bits_of("int4") / bits_of("int2"))
