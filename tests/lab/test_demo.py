"""The demo's account and picture, from a run made up of round numbers; nothing runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dlcp.lab.demo import CLASSES, DemoRun, Moment, lines, policies


@pytest.fixture
def run() -> DemoRun:
    """Four seconds: for two all of classes 6 and 4 arrives and nothing of the others, then a half of each."""
    moments = []
    for step in range(401):
        time_s = step / 100
        early, late = min(time_s, 2.0), max(0.0, time_s - 2.0)
        sent, dropped, waiting = [0] * 8, [0] * 8, [0] * 8
        for number in CLASSES:
            upper = number >= 4
            sent[number] = round(1000 * (early * upper + late / 2))
            dropped[number] = round(1000 * (early * (not upper) + late / 2))
            waiting[number] = 40_000 if not upper and late == 0 else 1_000
        moments.append(Moment(time_s, waiting, sent, dropped))
    return DemoRun(50_000_000, 100_000_000.0, 4.0, 2.0, moments)


def test_delivery_is_of_what_was_decided_in_the_time(run: DemoRun) -> None:
    assert run.delivered(6, 0.1, 1.9) == 1
    assert run.delivered(0, 0.1, 1.9) == 0
    assert run.delivered(0, 2.1, 3.9) == pytest.approx(0.5, abs=0.01)
    assert math.isnan(run.delivered(1, 0, 4)), "a class without packets"
    assert math.isnan(run.delivered(6, 5, 6))


def test_table_says_what_each_class_got(run: DemoRun) -> None:
    assert lines(run) == [
        "2.00 times the port's rate, four classes",
        "of each class, the part delivered",
        "class  with thresholds  without",
        "6      1.000            0.500",
        "4      1.000            0.500",
        "2      0.000            0.500",
        "0      0.000            0.500",
    ]


def test_scene_survives_its_file(run: DemoRun, tmp_path: Path) -> None:
    run.save(tmp_path / "run.json")
    assert DemoRun.load(tmp_path / "run.json") == run


def test_picture_is_drawn(run: DemoRun, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install '.[demo]'")
    from dlcp.lab.figure import draw

    draw(run, tmp_path / "queue.svg")
    text = (tmp_path / "queue.svg").read_text()
    assert text.count("<path") > 50
    draw(run, tmp_path / "queue.png")
    assert (tmp_path / "queue.png").read_bytes().startswith(b"\x89PNG")


def test_policies_differ_in_their_limits_only() -> None:
    limited, plain = policies()
    assert limited.class_of_dscp() == plain.class_of_dscp()
    assert limited.port_bytes == plain.port_bytes
    assert limited.traffic_class(6).droppable != plain.traffic_class(6).droppable
