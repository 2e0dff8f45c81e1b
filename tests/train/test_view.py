"""What is seen while it trains: on a narrow terminal as well."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dlcp.train.plan import TrainingPlan
from dlcp.train.record import Record
from dlcp.train.view import LiveView

rich_console = pytest.importorskip("rich.console", reason="the living table is drawn by rich")


@pytest.mark.parametrize("width", [80, 130])
def test_nothing_is_cut_off(width: int, tmp_path: Path) -> None:
    record = Record.load(Path(__file__).with_name("record.json"))
    console = rich_console.Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    view = LiveView(console)
    view.begin(record, TrainingPlan(tuple(one.run for one in record.runs), record.world_size, tmp_path))
    for one in record.runs:
        view.run_begins(one)
        view.epoch_over(one)
    console.file = io.StringIO()
    console.print(view._table())
    view.close()
    shown = console.file.getvalue()
    assert "…" not in shown
    for one in record.runs:
        assert one.run.configuration.name in shown
        assert f"{one.last.loss:.4f}" in shown
    assert ("loss so far" in shown) == (width == 130)
