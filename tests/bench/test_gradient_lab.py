"""What the benchmark of gradients on bad links makes of the ranks' accounts."""

from __future__ import annotations

from bench.collectives.world import DLCP, GLOO
from bench.gradient_lab import BACKENDS, BOUNDED, IMPATIENT, TROUBLE, Account, Steps, judge, slowest_s


def world(times_s: list[float], *, digests: str = "aa", abandoned: Account | None = None) -> list[Steps]:
    """Two ranks; the first is the slower one."""
    ranks = zip(digests, (times_s, [time_s / 2 for time_s in times_s]), strict=True)
    return [Steps(1_000_000, mine_s, 0.5, digest, abandoned) for digest, mine_s in ranks]


def test_a_step_takes_as_long_as_its_slowest_rank() -> None:
    ranks = [Steps(1, [1.0, 5.0], 0.0, ""), Steps(1, [2.0, 3.0], 0.0, "")]
    assert slowest_s(ranks) == [2.0, 5.0]


def test_tails_are_of_all_repetitions_and_medians_of_the_same_one() -> None:
    account = Account(sent_bytes=1_000_000, abandoned_bytes=20_000, residual_bytes=3_000)
    found = {
        (TROUBLE, GLOO.label): [world([0.4] * 50), world([0.6] * 48 + [2.0] * 2)],
        (TROUBLE, DLCP.label): [world([0.2] * 50), world([0.2] * 50)],
        (TROUBLE, BOUNDED.label): [
            world([0.1] * 50, abandoned=account),
            world([0.2] * 50, abandoned=account),
        ],
        (TROUBLE, IMPATIENT.label): [world([0.1] * 50), world([0.1] * 50)],
    }
    report = judge(found, {}, {})
    bars = {bar.what: bar.figure for bar in report.bars}
    assert bars[f"{TROUBLE}: p50, Gloo / dlcp"].low == 2.0
    assert round(bars[f"{TROUBLE}: p50, Gloo / dlcp"].high, 9) == 3.0
    assert bars[f"{TROUBLE}: p99, Gloo / dlcp"].median == 10.0
    assert bars[f"{TROUBLE}: p50, dlcp / dlcp bounded"].high == 2.0
    (row,) = (row for row in report.tables[0].rows if row[0] == f"{TROUBLE}, Gloo")
    assert row[1] == "100"
    assert row[-1] == "2 of 2"
    # Four accounts: two ranks in two worlds.
    assert report.notes == [
        f"{TROUBLE}, dlcp bounded: abandoned 0.08 MB of 4 MB, 2.00%; kept at the end by one rank at most 3.0 kB"
    ]


def test_ranks_that_end_apart_are_said_loudly() -> None:
    found = {
        (TROUBLE, backend.label): [world([0.1, 0.1], digests="ab" if backend is BOUNDED else "aa")]
        for backend in BACKENDS
    }
    assert judge(found, {}, {}).notes == [
        f"WRONG: {TROUBLE}, dlcp bounded: ranks ended with different weights"
    ]
