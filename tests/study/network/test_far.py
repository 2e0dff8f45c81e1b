"""The study of two far sites: its bar is met nearest and farthest, and it leaves its files."""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from pathlib import Path

import pytest

from dlcp.study import network
from dlcp.study.network import far
from dlcp.study.network.far import ACROSS, BAR, DLCP, UET, Case, Condition, simulate


@pytest.mark.parametrize("delay_s", [far.DELAYS_S[0], far.DELAYS_S[-1]])
@pytest.mark.parametrize("cable_bps", far.CABLES_BPS)
def test_dlcp_takes_no_longer_than_uet_between_sites(delay_s: float, cable_bps: float) -> None:
    condition = Condition(ACROSS, cable_bps, delay_s)
    found = {case: simulate((case, None, 2)) for case in (Case(condition, UET), Case(condition, DLCP))}
    assert far.beside(found, condition, "last_s") <= BAR


def test_the_study_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(far, "NBYTES", 1_000_000)
    network.run(far, Namespace(output=tmp_path, quick=True, seeds=1, json=True))
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert len(table["rows"]) == len(far.conditions(quick=True))
    assert 0 < table["rows"][0]["UET, mean"] < 1  # seconds
    assert "dlcp / UET, last" in (tmp_path / "far.md").read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "far.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(far.conditions(quick=True))
    assert (tmp_path / "far.png").stat().st_size > 10_000
