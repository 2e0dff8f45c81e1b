"""Which parameters lose nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.rules.critical import critical_names
from dlcp.torch.gradient.rules.forward_order import ForwardOrder
from dlcp.torch.gradient.rules.names import ParameterNames, inner


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(100, 100), nn.LayerNorm(100), nn.Linear(100, 10), nn.Linear(10, 1000))


def names(options: GradientOptions) -> frozenset[str]:
    each = model()
    return critical_names(dict(each.named_parameters()), options, ForwardOrder(each).output_layer())


def test_by_default_one_dimension_small_and_the_output_layer() -> None:
    assert names(GradientOptions(recipe="dlcp")) == {
        "0.bias",
        "1.weight",
        "1.bias",
        "2.weight",
        "2.bias",
        "3.weight",
        "3.bias",
    }
    assert "2.weight" not in names(GradientOptions(recipe="dlcp", small_numel=1000))


def test_scalars_are_critical() -> None:
    assert critical_names(
        {"scale": torch.tensor(1.0)}, GradientOptions(recipe="dlcp", small_numel=0), ()
    ) == {"scale"}


def test_names_of_the_user_take_the_place_of_the_default() -> None:
    assert names(GradientOptions(recipe="dlcp", critical=["0.weight"])) == {"0.weight"}
    assert names(GradientOptions(recipe="dlcp", critical=())) == frozenset()


def test_a_rule_is_asked_for_each_parameter() -> None:
    rule = GradientOptions(
        recipe="dlcp", critical=lambda name, parameter: name.startswith("2") and parameter.dim() == 2
    )
    assert names(rule) == {"2.weight"}


def test_a_parameter_without_budget_is_critical() -> None:
    options = GradientOptions(critical=(), loss_budget={"": 0.1, "0.*": 0.0})
    assert names(options) == {"0.weight", "0.bias"}
    assert len(names(GradientOptions(critical=(), loss_budget=0.0))) == 8


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"critical names 'tail'; accepted: parameters of the model, such as '0.weight'"
    ):
        names(GradientOptions(critical=["tail"]))


def test_parameters_keep_their_names_behind_wrappers() -> None:
    each = model()
    wrapped = object.__new__(DistributedDataParallel)
    nn.Module.__init__(wrapped)
    wrapped.module = each
    assert inner(wrapped) is each
    found = ParameterNames(wrapped)
    assert found.of(each[0].weight) == "0.weight"
    each[0].weight = nn.Parameter(torch.zeros(100, 100))
    assert found.of(each[0].weight) == "0.weight"
    with pytest.raises(ValueError, match="belongs to no parameter of the model"):
        found.of(torch.zeros(3))


def test_a_gradient_is_found_by_its_memory() -> None:
    each = model()
    found = ParameterNames(each)
    each(torch.randn(2, 100)).sum().backward()
    assert found.of_gradient(each[2].weight.grad) == "2.weight"
    assert found.of_gradient(each[2].weight.grad.view(-1)) == "2.weight"
    assert found.of_gradient(torch.zeros(3)) is None
    each.zero_grad()
    each(torch.randn(2, 100)).sum().backward()
    assert found.of_gradient(each[0].bias.grad) == "0.bias"


def test_without_a_model_parameters_are_numbered_as_they_come() -> None:
    found = ParameterNames(None)
    first, second = torch.zeros(2), torch.zeros(3)
    assert [found.of(first), found.of(second), found.of(first)] == [
        "parameter 0",
        "parameter 1",
        "parameter 0",
    ]
