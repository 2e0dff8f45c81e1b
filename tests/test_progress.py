"""The line that says how far something is: for who looks on, and as wide as a terminal is."""

from __future__ import annotations

import io
import time

import pytest

from dlcp.progress import Line, left, shown


def test_in_a_pipe_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with shown() as show:
        show("half")
    assert capsys.readouterr().err == ""


def test_words_replace_each_other_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()
    line = Line(stream, "a: ")
    line("x" * 50)
    line("y")
    line.clear()
    assert stream.getvalue() == f"\ra: {'x' * 16}\r{'a: y':<19}\r    \r"


def test_time_left_follows_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    assert left(100.0, 0.25) == ", 30.00 s left"
    assert left(100.0, 0.001) == ""
