"""`python -m bench`: what its exit status says."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from bench import command
from bench.report import Bar, Figure, Report


@pytest.mark.parametrize(
    ("words", "kept", "status"),
    [([], 0.7, 0), (["--strict"], 0.7, 1), (["--strict"], 0.9, 0)],
    ids=["not met", "not met, strict", "met, strict"],
)
def test_a_missed_bar_is_an_error_only_where_asked_for(
    words: list[str], kept: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report("made up", {}, bars=[Bar("part kept", 0.8, None, Figure.of([kept]))])
    module = SimpleNamespace(SUMMARY="", NEEDS_LAB=False, NEEDS_PROGRAMS=False, run=lambda *, quick: report)
    monkeypatch.setattr(command, "MODULES", {"made_up": "made_up"})
    monkeypatch.setitem(sys.modules, "bench.made_up", module)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["bench", "made_up", *words])
    assert command.main() == status


def test_without_a_name_nothing_is_built_or_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench"])
    monkeypatch.setattr(command, "MODULES", {"engine": "engine"})
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "error: which? all, or some of" in capsys.readouterr().err
