"""The study of run lengths: where switches spray the default is as good as the best length, and it leaves its files."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from dlcp.study.network import runs
from dlcp.study.network.runs import LENGTHS, Case, Condition, beside, simulate


def test_long_runs_cost_nothing_where_switches_spray() -> None:
    condition = Condition(400e9, ("rails", 1), "spray")
    found = {Case(condition, length): simulate((Case(condition, length), None, 1)) for length in LENGTHS}
    assert beside(found, condition, None) <= 1.02
    assert beside(found, condition, 1) > 1.5


def test_the_study_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "RATES_BPS", {10e9: 100_000})
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    runs.run(tmp_path, True, 1)
    cases = len(runs.conditions(quick=True)) * len(LENGTHS)
    assert f"\r0 of {cases} runs" in (shown := capsys.readouterr().err)
    assert f"\r{cases} of {cases} runs" in shown
    assert "default / best fixed" in (tmp_path / "runs.md").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(runs.conditions(quick=True))
    assert (tmp_path / "runs.png").stat().st_size > 10_000
