"""Patience: what it learns, whom it asks, and that only what crosses a slow link gives way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dlcp.torch.gradient.loss.patience import PATIENCE_FACTOR, SLACK_S, STEPS, Key, Patience
from dlcp.transport.communicator import DataType, Reduction, Span


class Ranks:
    """A group that answers the least of this rank's numbers and of what the others are told to say."""

    def __init__(self, size: int, others: list[float]) -> None:
        self.size = size
        self.others = others
        self.calls = 0

    def all_reduce(self, memory: Span, dtype: DataType, op: Reduction, *, keep: torch.Tensor) -> Any:
        assert (dtype, op) == (DataType.f32, Reduction.MIN)
        assert memory == (keep.data_ptr(), keep.nbytes)
        self.calls += 1
        keep.copy_(torch.minimum(keep, torch.tensor(self.others[: keep.numel()])))
        return self

    def wait(self) -> None:
        pass


def key(index: int) -> Key:
    return "layer", index, 100


def begin_step(patience: Patience, group: Any) -> None:
    if patience.asks(group.size):
        patience.begin_step(group, group)


def steps(patience: Patience, group: Any, took: list[list[float]]) -> None:
    for each in took:
        begin_step(patience, group)
        for index, fastest_s in enumerate(each):
            patience.note(group, key(index), fastest_s)
    begin_step(patience, group)


def test_a_step_counts_from_the_step_after_the_next() -> None:
    patience, group = Patience("auto"), Ranks(4, [0.01, 0.02])
    steps(patience, group, [[0.05, 0.05]])
    assert patience.of(group, key(0)) is None
    steps(patience, group, [])
    assert patience.of(group, key(0)) == pytest.approx(0.01 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(group, key(1)) == pytest.approx(0.02 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(group, key(2)) is None


def test_the_median_of_late_steps_counts() -> None:
    patience, group = Patience("auto"), Ranks(3, [9.0])
    steps(patience, group, [[5.0]] * STEPS + [[1.0]] * (STEPS + 1))
    assert patience.of(group, key(0)) == pytest.approx(1.0 * PATIENCE_FACTOR + SLACK_S)
    steps(patience, group, [[7.0]])
    assert patience.of(group, key(0)) == pytest.approx(1.0 * PATIENCE_FACTOR + SLACK_S)


def test_other_buckets_begin_anew() -> None:
    patience, group = Patience("auto"), Ranks(3, [9.0] * 3)
    steps(patience, group, [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0, 1.0]])
    steps(patience, group, [[2.0, 2.0, 2.0]])
    assert patience.of(group, key(2)) == pytest.approx(1.0 * PATIENCE_FACTOR + SLACK_S)


def test_the_order_of_buffers_does_not_matter() -> None:
    patience, group = Patience("auto"), Ranks(3, [0.5, 9.0])
    for _ in range(3):
        begin_step(patience, group)
        patience.note(group, key(1), 2.0)
        patience.note(group, key(0), 1.0)
    assert patience.of(group, key(0)) == pytest.approx(0.5 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(group, key(1)) == pytest.approx(2.0 * PATIENCE_FACTOR + SLACK_S)


def test_a_buffer_without_messages_says_nothing() -> None:
    patience, group = Patience("auto"), Ranks(3, [float("inf"), 1.0])
    steps(patience, group, [[0.0, 2.0]] * 3)
    assert patience.of(group, key(0)) is None
    assert patience.of(group, key(1)) is not None


@pytest.mark.parametrize(("rule", "size"), [("auto", 2), (0.5, 4), (None, 4)])
def test_asks_nobody_where_there_is_nothing_to_learn(rule: Any, size: int) -> None:
    patience, group = Patience(rule), Ranks(size, [1.0])
    steps(patience, group, [[1.0]] * 3)
    assert group.calls == 0
    assert patience.of(group, key(0)) == (None if rule == "auto" else rule)


def test_groups_have_each_their_own_account() -> None:
    patience, all_ranks, some = Patience("auto"), Ranks(4, [1.0, 9.0]), Ranks(3, [5.0])
    for _ in range(3):
        begin_step(patience, all_ranks)
        begin_step(patience, some)
        patience.note(all_ranks, key(0), 2.0)
        patience.note(all_ranks, key(1), 2.0)
        patience.note(some, key(0), 6.0)
    assert patience.of(all_ranks, key(0)) == pytest.approx(1.0 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(some, key(0)) == pytest.approx(5.0 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(some, key(1)) is None
