"""Which values are coded: all of large parameters, none of small ones and of those of one dimension."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from dlcp_sim.cosimulation.models import Model, convolutional, perceptron, transformer  # noqa: E402
from studies.training.precision.problems import EXACT_BELOW, coded_groups  # noqa: E402

MODELS = {
    "mlp": perceptron(width=256),
    "cnn": convolutional(width=32),
    "tfs": transformer(128, 32, width=64),
    "tfn": transformer(),
}


@pytest.mark.parametrize("name", MODELS)
def test_groups_are_those_of_large_parameters(name: str) -> None:
    model: Model = MODELS[name]
    coded = torch.zeros(model.numel, dtype=torch.bool)
    coded[: model.droppable_numel].view(-1, 64)[coded_groups(model)] = True
    begin = 0
    for parameter in model.parameters:
        large = len(parameter.shape) > 1 and parameter.numel >= EXACT_BELOW
        assert bool(coded[begin : begin + parameter.numel].all()) is large
        assert bool(coded[begin : begin + parameter.numel].any()) is large
        begin += parameter.numel
    assert coded.float().mean() > 0.96
