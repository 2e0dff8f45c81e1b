"""The rules for a buffer: its critical parameters, its budget, its traffic class."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.state import GradientState


def model() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(7)))


def test_a_buffer_has_the_class_of_its_first_layer() -> None:
    each = model()
    state = GradientState(each, layer_classes=True)
    each(torch.randn(2, 64))
    front = Layout.of([("0.weight", 4096), ("0.bias", 64)])
    back = Layout.of([("6.weight", 4096), ("5.weight", 4096)])
    both = Layout.of([("6.weight", 4096), ("0.weight", 4096)])
    classes = [state.rules.of(layout).traffic_class for layout in (front, back, both)]
    assert classes == [6, 1, 6]
    assert state.rules.of(Layout.of([("call 0", 10)])).traffic_class is None
    assert GradientState(model()).rules.of(front).traffic_class is None


def test_the_budget_of_a_buffer_is_that_of_its_parameters_by_size() -> None:
    state = GradientState(model(), small_numel=0, loss_budget={"0.*": 0.3, "": 0.1})
    layout = Layout.of([("0.weight", 4096), ("1.weight", 4096), ("0.bias", 64)])
    rules = state.rules.of(layout)
    assert rules.critical == {"0.bias"}
    assert rules.loss_ratio == pytest.approx((0.3 + 0.1) * 4096 / layout.numel)


def test_buffers_of_no_parameter_are_critical_when_small() -> None:
    state = GradientState(model(), recipe="dlcp", small_numel=100)
    assert state.rules.of(Layout.of([("call 0", 99)])).critical == {"call 0"}
    assert state.rules.of(Layout.of([("call 0", 100)])).critical == frozenset()
    assert GradientState(loss_budget=0.0).rules.of(Layout.of([("call 0", 9999)])).critical == {"call 0"}


def test_critical_names_without_a_model_are_those_of_buffers() -> None:
    state = GradientState(recipe="dlcp", critical=["first"], small_numel=0)
    assert state.rules.of(Layout.of([("first", 10), ("second", 10)])).critical == {"first"}
