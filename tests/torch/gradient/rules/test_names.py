"""Names of parameters, whatever wraps the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dlcp.torch.gradient.rules.names import ParameterNames


class Compiled(nn.Module):
    """As torch.compile wraps a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._orig_mod = model


def test_names_are_the_models_own_under_compile() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    assert ParameterNames(Compiled(model)).of(model[0].weight) == "0.weight"


def test_a_tied_parameter_has_its_first_name() -> None:
    model = nn.ModuleDict({"front": nn.Linear(2, 2), "back": nn.Linear(2, 2)})
    model["back"].weight = model["front"].weight
    assert ParameterNames(model).of(model["back"].weight) == "front.weight"


def test_a_replaced_parameter_is_found_again() -> None:
    model = nn.Linear(2, 2)
    names = ParameterNames(model)
    model.weight = nn.Parameter(torch.zeros(2, 2))
    assert names.of(model.weight) == "weight"
    with pytest.raises(ValueError, match="belongs to no parameter of the model"):
        names.of(torch.zeros(3))


def test_without_a_model_parameters_are_numbered() -> None:
    names, first, second = ParameterNames(None), torch.zeros(2), torch.zeros(2)
    assert [names.of(one) for one in (first, second, first)] == ["parameter 0", "parameter 1", "parameter 0"]


def test_a_gradient_is_known_by_its_memory() -> None:
    model = nn.Linear(2, 2)
    names = ParameterNames(model)
    model(torch.ones(2)).sum().backward()
    assert model.weight.grad is not None
    assert names.of_gradient(model.weight.grad) == "weight"
    assert names.of_gradient(model.weight.grad.view(-1)) == "weight"
    assert names.of_gradient(torch.zeros(4)) is None
    assert names.of_gradient(model.weight.grad[:1]) is None


def test_a_module_owns_its_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    assert ParameterNames(model).owned_by(model[0], "weight") == "0.weight"
    with pytest.raises(ValueError, match="belongs to no module"):
        ParameterNames(model).owned_by(nn.Linear(1, 1), "weight")
    with pytest.raises(ValueError, match="was given no model"):
        ParameterNames(None).owned_by(model[0], "weight")
