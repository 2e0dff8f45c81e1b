"""Fills: the table of names, and what each does around a collective."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlcp.torch.gradient.fills import FILLS, Fill, Rules
from dlcp.torch.gradient.fills.fill import BufferPlan
from dlcp.torch.gradient.fills.hadamard import droppable_ranges
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.options import GradientOptions

LAYOUT = Layout.of([("bias", 4), ("weight", 60), ("tail", 36)])
PARTS = [(0, 50), (50, 100)]
CRITICAL = frozenset({"bias"})


def fill_of(name: str) -> Fill:
    return FILLS[name](GradientOptions(fill=name, seed=7))


@pytest.mark.parametrize("name", FILLS)
def test_what_before_does_after_undoes(name: str) -> None:
    fill, buffer = fill_of(name), torch.arange(100.0) + 1
    fill.begin_step(1.0)
    transformed = fill.before(buffer, BufferPlan(LAYOUT, CRITICAL, PARTS, 3))
    fill.after(buffer, transformed, 0, 3)
    torch.testing.assert_close(buffer, torch.arange(100.0) + 1)


@pytest.mark.parametrize("name", FILLS)
def test_critical_parameters_stay_as_they_are(name: str) -> None:
    buffer = torch.arange(100.0)
    fill_of(name).before(buffer, BufferPlan(LAYOUT, CRITICAL, PARTS, 0))
    assert torch.equal(buffer[:4], torch.arange(4.0))


def test_rescale_asks_for_a_division_by_what_came() -> None:
    assert [name for name in FILLS if fill_of(name).rules((), 0).rescale] == ["rescale"]


def test_hadamard_has_the_ranks_agree_on_step_and_ranges() -> None:
    fill = fill_of("hadamard")
    assert fill.rules((), 0) == Rules()
    texts = {fill.rules(ranges, step).agree for ranges in ([(0, 4)], [(0, 8)]) for step in (0, 1)}
    assert len(texts) == 4
    # Few different texts: plans are kept by them.
    assert fill.rules([(0, 4)], 0) == fill.rules([(0, 4)], 256)


def test_hadamard_undoes_the_ranges_of_one_part_alone() -> None:
    fill, buffer = fill_of("hadamard"), torch.arange(100.0)
    transformed = fill.before(buffer, BufferPlan(LAYOUT, CRITICAL, PARTS, 0))
    part = buffer[50:].clone()
    fill.after(part, transformed, 50, 0)
    torch.testing.assert_close(part, torch.arange(50.0, 100.0))


def test_residual_keeps_what_was_lost_and_adds_it_in_the_next_step() -> None:
    fill, layout = FILLS["residual"](GradientOptions()), Layout.of([("w", 8)])
    fill.begin_step(1.0)
    fill.lost(torch.arange(8.0), layout, np.array([[2, 4]]))
    report = fill.end_step(True)
    assert report is not None
    assert report.elements == 2
    buffer = torch.ones(8)
    fill.begin_step(1.0)
    assert fill.before(buffer, BufferPlan(layout, frozenset(), [(0, 8)], 1)) == ()
    torch.testing.assert_close(buffer, torch.tensor([1, 1, 2.8, 3.7, 1, 1, 1, 1]))


@pytest.mark.parametrize("name", [name for name in FILLS if name != "residual"])
def test_other_fills_keep_nothing(name: str) -> None:
    fill = fill_of(name)
    assert fill.residual is None
    assert fill.end_step(True) is None
    assert fill.state_dict() is None


def test_droppable_ranges_end_at_critical_parameters_and_parts() -> None:
    layout = Layout.of([("a", 10), ("b", 10), ("c", 10), ("d", 10)])
    assert droppable_ranges(layout, frozenset({"c"}), [(0, 15), (15, 40)]) == [(0, 15), (15, 20), (30, 40)]
