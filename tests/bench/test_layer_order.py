"""What the benchmark of layer orders makes of the ranks' accounts."""

from __future__ import annotations

from bench.layer_order import DDP_VARIANTS, OURS, VARIANTS, Account, Setting, Turn, judge
from bench.report import Report

SETTING = Setting(layers=4, width=10, batch=1)


def account(times_s: dict[str, list[list[float]]], checksum: float = 1.0) -> Account:
    """One rank's: the steps of each turn by way; ways that are not named take a second."""
    turns = len(next(iter(times_s.values())))
    every = {way: times_s.get(way, [[1.0]] * turns) for way in VARIANTS}
    return Account(
        {
            way: [Turn(list(each), sum(each), 2 * sum(each)) for each in of_way]
            for way, of_way in every.items()
        },
        checksum,
    )


def judged(*accounts: Account) -> Report:
    report = Report("layer_order", {})
    judge(report, "processor", SETTING, 0.5, 10**6, list(accounts))
    return report


def test_saving_counts_against_the_faster_ddp_of_the_same_turn_and_the_slower_rank() -> None:
    slow, fast = DDP_VARIANTS
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
