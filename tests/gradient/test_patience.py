"""Patience: what it learns, whom it asks, and that only what crosses a slow link gives way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from dlcp.torch.gradient.patience import PATIENCE_FACTOR, SLACK_S, STEPS, Key, Patience


class Ranks:
    """A group that answers the least of this rank's numbers and of what the others are told to say."""

    def __init__(self, size: int, others: list[float]) -> None:
        self._size = size
        self.others = others
        self.calls = 0

    def size(self) -> int:
        return self._size

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        assert options.reduceOp == dist.ReduceOp(dist.ReduceOp.MIN)
        self.calls += 1
        for tensor in tensors:
            tensor.copy_(torch.minimum(tensor, torch.tensor(self.others[: tensor.numel()])))
        return self

    def wait(self) -> bool:
        return True


def key(index: int) -> Key:
    return "layer", index, 100


def steps(patience: Patience, group: Any, took: list[list[float]]) -> None:
    for each in took:
        patience.begin_step(group)
        for index, fastest_s in enumerate(each):
            patience.note(key(index), fastest_s)
    patience.begin_step(group)


def test_a_step_counts_from_the_step_after_the_next() -> None:
    patience, group = Patience("auto"), Ranks(4, [0.01, 0.02])
    steps(patience, group, [[0.05, 0.05]])
    assert patience.of(key(0)) is None
    steps(patience, group, [])
    assert patience.of(key(0)) == pytest.approx(0.01 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(key(1)) == pytest.approx(0.02 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(key(2)) is None


def test_the_median_of_late_steps_counts() -> None:
    patience = Patience("auto")
    steps(patience, Ranks(3, [9.0]), [[5.0]] * STEPS + [[1.0]] * (STEPS + 1))
    assert patience.of(key(0)) == pytest.approx(1.0 * PATIENCE_FACTOR + SLACK_S)
    steps(patience, Ranks(3, [9.0]), [[7.0]])
    assert patience.of(key(0)) == pytest.approx(1.0 * PATIENCE_FACTOR + SLACK_S)


def test_other_buckets_begin_anew() -> None:
    patience = Patience("auto")
    steps(patience, Ranks(3, [9.0] * 3), [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0, 1.0]])
    steps(patience, Ranks(3, [9.0] * 3), [[2.0, 2.0, 2.0]])
    assert patience.of(key(2)) == pytest.approx(1.0 * PATIENCE_FACTOR + SLACK_S)


def test_the_order_of_buffers_does_not_matter() -> None:
    patience = Patience("auto")
    group = Ranks(3, [0.5, 9.0])
    for _ in range(3):
        patience.begin_step(group)
        patience.note(key(1), 2.0)
        patience.note(key(0), 1.0)
    assert patience.of(key(0)) == pytest.approx(0.5 * PATIENCE_FACTOR + SLACK_S)
    assert patience.of(key(1)) == pytest.approx(2.0 * PATIENCE_FACTOR + SLACK_S)


def test_a_buffer_without_messages_says_nothing() -> None:
    patience = Patience("auto")
    steps(patience, Ranks(3, [float("inf"), 1.0]), [[0.0, 2.0]] * 3)
    assert patience.of(key(0)) is None
    assert patience.of(key(1)) is not None


@pytest.mark.parametrize(("rule", "size"), [("auto", 2), (0.5, 4), (None, 4)])
def test_asks_nobody_where_there_is_nothing_to_learn(rule: Any, size: int) -> None:
    patience, group = Patience(rule), Ranks(size, [1.0])
    steps(patience, group, [[1.0]] * 3)
    assert group.calls == 0
    assert patience.of(key(0)) == (None if rule == "auto" else rule)
