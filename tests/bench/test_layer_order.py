"""What the benchmark of layer orders makes of the ranks' accounts, and its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.layer_order import judge
from bench.layer_order.timeline import Interval, Timeline
from bench.layer_order.training import DDP_WAYS, OURS, WAYS, Account, Setting, Turn, layers_of
from bench.report import Report

SETTING = Setting(layers=4, width=10, batch=1)


def account(times_s: dict[str, list[list[float]]], checksum: float = 1.0) -> Account:
    """One rank's: the steps of each turn by way; ways that are not named take a second."""
    turns = len(next(iter(times_s.values())))
    every = {way: times_s.get(way, [[1.0]] * turns) for way in WAYS}
    return Account(
        {
            way: [Turn(list(each), sum(each), 2 * sum(each)) for each in of_way]
            for way, of_way in every.items()
        },
        {},
        checksum,
    )


def judged(*accounts: Account) -> Report:
    report = Report("layer_order", {})
    judge(report, "processor", SETTING, 0.5, 10**6, list(accounts))
    return report


def test_saving_counts_against_the_faster_ddp_of_the_same_turn_and_the_slower_rank() -> None:
    slow, fast = DDP_WAYS
    first = account({slow: [[2.0, 2.0], [2.0]], fast: [[1.0, 1.0], [4.0]], OURS: [[0.5, 0.5], [0.5]]})
    other = account({slow: [[2.0, 2.0], [2.0]], fast: [[1.0, 1.0], [4.0]], OURS: [[0.1, 0.8], [1.5]]})
    (bar,) = judged(first, other).bars
    # Steps of 0.5 and 0.8 against 1.0; of 1.5 against 2.0.
    assert (round(bar.figure.high, 9), round(bar.figure.low, 9)) == (0.35, 0.25)
    assert bar.met


def test_a_saving_below_the_bar_is_not_met() -> None:
    (bar,) = judged(account({OURS: [[0.9]]}), account({OURS: [[0.9]]})).bars
    assert not bar.met


def test_ranks_that_end_apart_are_said_so() -> None:
    assert judged(account({OURS: [[1.0]]}), account({OURS: [[1.0]]})).notes == []
    assert judged(account({OURS: [[1.0]]}, 1.0), account({OURS: [[1.0]]}, 2.0)).notes == [
        "WRONG: processor: ranks ended with different parameters"
    ]


def test_layers_of_a_message() -> None:
    assert layers_of(SETTING, "2.linear.weight", 0, 1) == [2]
    assert layers_of(SETTING, "which parameters have a gradient", 0, 1) == []
    layer_bytes = SETTING.gradient_bytes // SETTING.layers
    assert layers_of(SETTING, None, 0, 1) == [3]
    assert layers_of(SETTING, None, layer_bytes, 2 * layer_bytes) == [2, 1]
    assert layers_of(SETTING, None, 3 * layer_bytes - 4, layer_bytes + 4) == [1, 0]


def test_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; the picture needs it")
    from bench.layer_order.figure import draw

    timeline = Timeline(4)
    timeline.steps_s = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    for kind in ("forward", "backward", "gradient"):
        timeline.intervals += [Interval(kind, layer, 2 + layer / 4, 2.2 + layer / 4) for layer in range(4)]
    draw({"processor": {"DDP": timeline, OURS: timeline}}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
