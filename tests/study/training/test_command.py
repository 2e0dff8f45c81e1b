"""The words of `dlcp study`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dlcp.cli import main
from dlcp.study.training import plan
from dlcp.study.training.command import go_on
from dlcp.study.training.plan import Scope


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "STUDY"),
        (["tolerance", "--seeds", "1"], "accepted: 2 to 100"),
        (["mse", "--entries", "many"], "accepted: 10000 to"),
        (["mse", "--ranks", "1"], "accepted: 2 to 64"),
    ],
)
def test_bad_words_are_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["study", *words])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_nothing_to_draw_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "tolerance", "--draw", "--output", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_tolerance_leaves_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan, "LOSSES_FIRST", (0.5,))
    monkeypatch.setattr(plan, "LOSSES_ABOVE", ())
    monkeypatch.setattr(plan, "LOSSES_BELOW", ())
    monkeypatch.setattr(plan, "QUICK", Scope(tasks=("mlp",), seeds=2, refine=False, arms=plan.ARMS[:2]))
    assert main(["study", "tolerance", "--quick", "--output", str(tmp_path), "--no-picture"]) == 0
    assert "Losses independent:" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"runs.csv", "tolerance.json", "tolerance.md"}


def test_mse_leaves_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "mse", "--entries", "300000", "--output", str(tmp_path), "--no-picture"]) == 0
    assert "ring, zero" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"mse.json", "mse.md"}
    words = ["--entries", "300000", "--output", str(tmp_path), "--no-picture", "--json"]
    assert main(["study", "mse", *words]) == 0
    assert capsys.readouterr().out == (tmp_path / "mse.json").read_text()


def test_ctrl_c_passes_through(capsys: pytest.CaptureFixture[str]) -> None:
    def train(_: float) -> Iterator[str]:
        yield "a run"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go_on(argparse.Namespace(minutes=None, draw=False), [], train)
    assert "the same command goes on" in capsys.readouterr().err
