"""What the benchmark of links that vary makes of its runs, and when the neighbour's TCP is on."""

from __future__ import annotations

import pytest

from bench.neighbour import TRACE, Moved, Trace
from bench.report import Report
from bench.transformer import EVALUATE_EVERY, Trained, marks, reach
from bench.varying_links import ALL, BASE, CHOICE, FIXED, SETTLE_STEPS, Found, Run, judge

STEPS = 4 * EVALUATE_EVERY
FIRST = SETTLE_STEPS[True]
INT8, INT4, INT2 = (way.label for way in FIXED)


def test_a_trace_is_on_first_and_begins_again_at_its_end() -> None:
    trace = Trace(((2.0, 1.0), (0.5, 4.5)))
    assert trace.at(0.0) == (True, 2.0)
    assert trace.at(2.25) == (False, 0.75)
    assert trace.at(3.25) == (True, 0.25)
    assert trace.at(8.0) == (True, 2.0)
    assert [trace.on_s(until_s) for until_s in (0.0, 1.0, 2.5, 3.25, 8.0, 17.0)] == [
        0.0,
        1.0,
        2.0,
        2.25,
        2.5,
        6.0,
    ]


def test_seconds_on_are_the_phases_that_were_on() -> None:
    """The sum along the trace, phase by phase, over more than a period."""
    trace = Trace.load(TRACE)
    time_s = on_s = 0.0
    while time_s < 1.3 * trace.period_s:
        is_on, left_s = trace.at(time_s)
        # Past the change, not at it: there rounding decides.
        left_s += 1e-9
        on_s, time_s = on_s + left_s * is_on, time_s + left_s
        assert trace.on_s(time_s) == pytest.approx(on_s, abs=1e-5)


def test_the_recorded_trace_is_on_about_half_of_the_time() -> None:
    trace = Trace.load(TRACE)
    assert len(trace.phases) == 40
    assert 0.4 < trace.on_s_per_period / trace.period_s < 0.6


@pytest.mark.parametrize("phases", [(), ((1.0, 0.0),), ((-1.0, 1.0),)])
def test_a_trace_that_is_no_trace_is_refused(phases: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="phases is"):
        Trace(phases)


def test_what_moved_is_divided_by_the_time_on() -> None:
    assert Moved(nbytes=10_000_000, on_s=4.0).rate_bps == 20e6


def test_a_mark_is_reached_along_the_line_between_two_evaluations() -> None:
    times_s = [1.0] * 3 * EVALUATE_EVERY
    assert reach(times_s, [4.0, 3.0, 2.0], 3.0) == (2 * EVALUATE_EVERY, 2.0 * EVALUATE_EVERY)
    steps = 3 * EVALUATE_EVERY - int(EVALUATE_EVERY * 0.5)
    assert reach(times_s, [4.0, 3.0, 2.0], 2.5) == (steps, float(steps))
    assert reach(times_s, [4.0, 3.0, 2.0], 1.0) is None
    assert marks([2.0, 2.0]) == [2.01, 2.01]


def ranks(times_s: list[float], losses: list[float], *, digests: str = "aa") -> list[Trained]:
    """Two ranks; the first is the slower one."""
    each = zip(digests, (times_s, [time_s / 2 for time_s in times_s]), strict=True)
    return [Trained(1_000_000, mine_s, 0.01, losses, digest) for digest, mine_s in each]


def judged(found: Found) -> Report:
    dense = [ranks([0.1] * STEPS, [3.5, 3.2, 3.0, 2.0])[0]]
    return judge(found, dense, {"steps": STEPS}, {})


def world(step_s: float, neighbour_bps: float, *, digests: str = "aa") -> list[Run]:
    """One that is at the mark in as many steps as the dense run; its first steps take far longer."""
    times_s = [9.0] * FIRST + [step_s] * (STEPS - FIRST)
    return [Run(ranks(times_s, [3.5, 3.2, 3.0, 2.0], digests=digests), neighbour_bps)]


def found_worlds() -> Found:
    few = Run(ranks([9.0] * SETTLE_STEPS[False] + [0.8] * 5, []), 200e6, is_whole=False)
    return {
        (ALL, BASE.label): [few],
        (ALL, INT8): world(0.4, 200e6),
        (ALL, INT4): world(0.2, 220e6),
        (ALL, INT2): [Run(ranks([0.1] * STEPS, [3.5, 3.2, 3.0, 2.9]), 240e6)],
        (ALL, CHOICE.label): world(0.1, 150e6),
    }


def test_the_choice_is_judged_beside_the_best_precision_that_reached_the_mark() -> None:
    report = judged(found_worlds())
    gain, tail, kept = report.bars
    assert f"best fixed precision ({INT4})" in gain.what
    steps = STEPS - FIRST
    assert gain.figure.median == pytest.approx(
        (9.0 * FIRST + 0.2 * steps) / (9.0 * FIRST + 0.1 * steps), rel=0.01
    )
    # The first steps are in no percentile.
    assert tail.figure.median == 1.0
    assert kept.figure.median == 0.75
    assert (tail.met, kept.met) == (True, False)
    steps_rows, mark_rows = ({row[0]: row for row in table.rows} for table in report.tables)
    assert mark_rows[f"{ALL}, {INT2}"][2:4] == ["never", "0 of 1"]
    assert steps_rows[f"{ALL}, {CHOICE.label}"][-1] == "0.75"


def test_who_took_only_some_steps_takes_them_over_and_over_along_the_dense_losses() -> None:
    table = judged(found_worlds()).tables[1]
    (row,) = (row for row in table.rows if row[0] == f"{ALL}, {BASE.label}")
    _, loss, steps, seconds, _ = row
    assert loss == "2.000"
    assert float(seconds) == pytest.approx(0.8 * int(steps), abs=0.01)


def test_ranks_that_end_apart_are_said() -> None:
    found = found_worlds()
    found[ALL, INT8] = world(0.4, 200e6, digests="ab")
    notes = judged(found).notes
    assert f"WRONG: {ALL}, {INT8}: ranks ended with different weights" in notes


def test_without_the_choice_nothing_is_required() -> None:
    found = found_worlds()
    del found[ALL, CHOICE.label]
    assert judged(found).bars == []
