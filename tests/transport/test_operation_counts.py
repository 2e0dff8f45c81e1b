"""Counts of operations: what a success and a failure add, and into which duration a success falls."""

from __future__ import annotations

import pytest

from dlcp.transport.operation_counts import DURATION_BOUNDS_S, OperationCounts


def test_success_adds_bytes_and_time() -> None:
    counts = OperationCounts()
    counts.note_completed(0.5, 10, 20)
    counts.note_completed(0.25, 1, 2)
    assert (counts.completed, counts.failed) == (2, 0)
    assert (counts.sent_bytes, counts.received_bytes) == (11, 22)
    assert (counts.duration_s, counts.duration_s_max) == (0.75, 0.5)


@pytest.mark.parametrize("place", range(len(DURATION_BOUNDS_S)))
def test_duration_at_a_bound_counts_up_to_it(place: int) -> None:
    counts = OperationCounts()
    counts.note_completed(DURATION_BOUNDS_S[place])
    assert counts.duration_counts.index(1) == place


def test_duration_above_all_bounds_has_the_last_place() -> None:
    counts = OperationCounts()
    counts.note_completed(1e6)
    assert counts.duration_counts[-1] == 1


def test_failure_names_whom_it_waited_for() -> None:
    counts = OperationCounts()
    counts.note_failed([1, 3], 5, 6)
    counts.note_failed([3])
    assert (counts.completed, counts.failed, counts.waited_for) == (0, 2, {1: 1, 3: 2})
    assert counts.describe()["sent_bytes"] == 5
