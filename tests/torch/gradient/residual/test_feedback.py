"""What codes leave, and how much of it there is; who gets it, test_low_bit.py and test_conformance.py ask."""

from __future__ import annotations

import pytest

from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.residual.feedback import FROM_OWNER, FROM_SENDER, FeedbackMemory

WHOLE = Layout.of([("a", 60), ("b", 40)])


def filled() -> FeedbackMemory:
    """After a step in which 3 was left of each of 100 values of a sender, and 4 of each of an owner's 40."""
    memory = FeedbackMemory()
    memory.begin_step(2.0)
    memory.open(FROM_SENDER, "buffer", WHOLE).after.fill_(6.0)
    memory.open(FROM_OWNER, "buffer", Layout.of([("b", 40)])).after.fill_(8.0)
    memory.end_step(applied=True)
    return memory


def test_the_report_counts_what_streams_keep_and_what_none_has() -> None:
    memory = filled()
    assert memory.report().elements == 140
    # Another buffer has the parameters now: the old streams' values are the sender's, some of them in no stream.
    memory.begin_step(2.0)
    memory.open(FROM_SENDER, "part", Layout.of([("b", 40)]))
    memory.end_step(applied=False)
    report = memory.report()
    assert report.elements == 40 + 60  # of b, what both sides left is one value; a waits
    assert report.nbytes == 4 * report.elements
    assert report.skipped == 1


def test_what_is_reset_is_written_off() -> None:
    memory = filled()
    memory.reset(["b"])
    total = memory.report().total
    assert total.dropped_elements == 80
    assert total.dropped_norm == pytest.approx((40 * 9 + 40 * 16) ** 0.5)
    memory.reset(None)
    assert memory.report().total.dropped_norm == pytest.approx((100 * 9 + 40 * 16) ** 0.5)
    assert not any(value.any() for value in (each.before for each in memory._streams.values()))


def test_an_owner_of_another_part_keeps_nothing_of_the_old_one() -> None:
    memory = FeedbackMemory()
    parts = [Layout.of([("a", 60)]), Layout((), 0), Layout.of([("b", 40)])]
    # Of a mean of 4 ranks: 2 of it is worth 8 of a contribution.
    for step, part in enumerate(parts):
        memory.begin_step(1.0)
        sender = memory.open(FROM_SENDER, "buffer", WHOLE)
        sender.after.copy_(sender.before)
        memory.open(FROM_OWNER, "buffer", part, 4).after.fill_(2.0 if step == 0 else 0.0)
        memory.end_step(applied=True)
    saved = memory.state_dict()
    assert saved[FROM_OWNER]["batches"] == [] or not saved[FROM_OWNER]["batches"][0]["values"].any()
    assert memory.open(FROM_SENDER, "buffer", WHOLE).before.tolist() == [8.0] * 60 + [0.0] * 40


def test_what_an_owner_kept_is_its_senders_once_a_hub_owns_the_sums() -> None:
    memory = FeedbackMemory()
    memory.begin_step(1.0)
    sender = memory.open(FROM_SENDER, "buffer", WHOLE)
    sender.after.copy_(sender.before + 1.0)
    memory.open(FROM_OWNER, ("buffer", True), Layout.of([("a", 60)]), 4).after.fill_(2.0)
    memory.end_step(applied=True)
    memory.begin_step(1.0)
    memory.close_owner(("buffer", True))
    memory.close_owner(("another", True))
    assert memory.open(FROM_SENDER, "buffer", WHOLE).before.tolist() == [9.0] * 60 + [1.0] * 40
    assert memory.state_dict()[FROM_OWNER]["batches"] == []


def test_loaded_values_are_worth_the_same_whoever_gets_them() -> None:
    memory = FeedbackMemory()
    memory.begin_step(1.0)
    memory.open(FROM_OWNER, "mean", Layout.of([("a", 60)]), 4).after.fill_(2.0)
    memory.open(FROM_OWNER, "sum", Layout.of([("b", 40)])).after.fill_(3.0)
    memory.end_step(applied=True)
    again = FeedbackMemory()
    again.load_state_dict(memory.state_dict())
    again.begin_step(1.0)
    # The first step has one of the buffers alone; what another owner gets becomes the sender's.
    assert again.open(FROM_OWNER, "mean", Layout.of([("a", 60)]), 4).before.tolist() == [2.0] * 60
    again.open(FROM_SENDER, "mean", Layout.of([("a", 60)]))
    again.end_step(applied=False)
    again.begin_step(1.0)
    assert again.open(FROM_SENDER, "sum", Layout.of([("b", 40)])).before.tolist() == [3.0] * 40


def test_what_waits_in_no_stream_is_written_off_too() -> None:
    memory = filled()
    saved = memory.state_dict()
    memory = FeedbackMemory()
    memory.load_state_dict(saved)
    assert memory.report().elements == 140
    memory.reset(["a"])
    assert memory.report().total.dropped_norm == pytest.approx((60 * 9) ** 0.5)
    assert memory.report().elements == 80
