"""Options of gradients: each wrong value is refused at once, in a sentence that names what is accepted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from dlcp.torch.gradient.context import gradients
from dlcp.torch.gradient.loss.phase import PhaseRule
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.residual.rule import ResidualRule
from dlcp.torch.gradient.state import GradientState

NUMBERS = ("loss_budget", "loss_cap", "critical_share", "small_numel", "seed")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in NUMBERS
        for value in ("x", None, True, float("nan"))
        if (name, value) != ("loss_budget", None)  # the recipe's own
    ],
)
def test_a_number_is_a_number(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*; accepted: a"):
        GradientOptions(**{name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"residual": 5},
        {"phase": 5},
        {"layer_classes": "x"},
        {"critical": 5},
        {"critical": "weight"},
        {"critical": [5]},
        {"deadline_s": "x"},
        {"patience_s": []},
        {"patience_s": "later"},
        {"fill": "hadamrad"},
        {"fill": None},
        {"importance": 5},
        {"budget_scope": None},
        {"loss_budget": {5: 0.1}},
        {"loss_budget": {"w": "x"}},
    ],
)
def test_a_wrong_value_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="accepted"):
        GradientOptions(**wrong)


@pytest.mark.parametrize("value", ["x", -1])
@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (ResidualRule, "decay"),
        (ResidualRule, "age_max"),
        (ResidualRule, "momentum"),
        (PhaseRule, "interval_steps"),
        (PhaseRule, "change"),
        (PhaseRule, "critical_scale"),
    ],
)
def test_rules_check_their_numbers(rule: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*; accepted: a"):
        rule(**{name: value})


def test_a_misspelt_option_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown option 'loss_budgett'; did you mean loss_budget\?"):
        GradientState(loss_budgett=0.1)


@pytest.mark.parametrize("name", ["haed.weight", "haed.*"])
def test_a_budget_for_a_parameter_that_the_model_does_not_have_is_refused(name: str) -> None:
    model = nn.ModuleDict({"head": nn.Linear(4, 4), "body": nn.Linear(4, 4)})
    with pytest.raises(ValueError, match="loss_budget names 'haed.*accepted: parameters of the model"):
        GradientState(model, loss_budget={name: 0.0, "": 0.05})
    GradientState(model, loss_budget={"head.weight": 0.0, "body.*": 0.1, "": 0.05})


@pytest.mark.parametrize(
    "wrong", [{"model": 5}, {"group": 5}, {"options": 5}, {"scaler": 5}, {"verify": "x"}]
)
def test_a_state_refuses_what_it_cannot_use(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(wrong))} is .*; accepted"):
        GradientState(**wrong)


def test_a_recipe_that_options_choose_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "dlcp"):
        GradientState(small_numel=0)
        assert not caplog.messages
        assert GradientState(loss_budget=0.1, seed=3).recipe == "dlcp"
    (line,) = caplog.messages
    assert line == "gradients: recipe dlcp, since loss_budget, seed is given, which auto does not read"


def test_only_a_state_marks_gradients() -> None:
    with pytest.raises(TypeError, match="state is a NoneType"), gradients(None):  # type: ignore[arg-type]
        pass


def test_a_state_that_is_none_or_another_models_is_not_loaded() -> None:
    state = GradientState(nn.Linear(4, 4), recipe="dlcp")
    with pytest.raises(ValueError, match="state is 5; accepted"):
        state.load_state_dict(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the state has no 'step'"):
        state.load_state_dict({"version": 1})
    saved = state.state_dict() | {"marker": {"mean_squares": {"other.weight": 1.0}, "threshold": 255}}
    with pytest.raises(ValueError, match="another model's: it knows 'other.weight'"):
        state.load_state_dict(saved)


def test_a_state_whose_hook_is_not_registered_says_so_after_the_first_step(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dlcp"), "propagate", True)
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)
    state = GradientState(model)
    for module in (other, model, model):
        module(torch.ones(4)).sum().backward()
        torch.optim.SGD(module.parameters(), lr=0.1).step()
        if module is other:
            # As torch's distributed checkpoints fill an optimizer's state.
            torch.optim.SGD(model.parameters(), lr=0.0).step()
            assert not caplog.records
    assert [record.getMessage()[:41] for record in caplog.records] == [
        "a GradientState has seen no gradient in t"
    ]
    assert not state.used
