"""Which values are coded: all of large parameters, none of small ones and of those of one dimension."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from dlcp.study.training.lockstep import ADAM_SQUARES, NORM_MAX, WEIGHT_DECAY, Lockstep  # noqa: E402
from dlcp.study.training.precision.problems import (  # noqa: E402
    EXACT_BELOW,
    LARGE,
    OTHER_KINDS,
    coded_groups,
    open_problem,
)
from dlcp_sim.cosimulation.models import (  # noqa: E402
    Model,
    _batch_norm,
    convolutional,
    perceptron,
    recurrent,
    transformer,
)
from dlcp_sim.cosimulation.tasks import schedule  # noqa: E402

MODELS = {
    "mlp": perceptron(width=256),
    "cnn": convolutional(width=32),
    "tfs": transformer(128, 32, width=64),
    "tfn": transformer(),
    **{name: open_problem(name).model for name in OTHER_KINDS | LARGE},
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


@pytest.mark.parametrize("name", LARGE)
def test_large_models_have_ten_million_parameters(name: str) -> None:
    assert MODELS[name].numel >= 10_000_000


@pytest.mark.parametrize("name", OTHER_KINDS)
def test_steps_are_those_of_torch(name: str) -> None:
    torch.set_num_threads(1)
    task, steps = open_problem(name), 4
    rate = task.learning_rate
    weights = torch.nn.Parameter(task.model.fresh(0)[None])
    make: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "nesterov": lambda: torch.optim.SGD([weights], lr=rate, momentum=0.9, nesterov=True),
        "clipped sgd": lambda: torch.optim.SGD([weights], lr=rate),
        "adamw": lambda: torch.optim.AdamW([weights], betas=(0.9, ADAM_SQUARES), weight_decay=WEIGHT_DECAY),
    }
    optimizer = make[task.optimizer]()
    trainings = Lockstep(task, [0], [1.0], steps)
    for step in range(steps):
        mean = trainings.gradients().mean(1)
        weights.grad = mean.clone()
        if task.optimizer == "clipped sgd":
            assert torch.nn.utils.clip_grad_norm_([weights], NORM_MAX) > NORM_MAX
        optimizer.param_groups[0]["lr"] = rate * schedule(step, steps)
        optimizer.step()
        trainings.update(mean, step)
        torch.testing.assert_close(trainings.weights, weights.detach(), rtol=1e-4, atol=1e-5)


def test_the_recurrent_network_is_torchs() -> None:
    model = recurrent(words=128, width=8)
    flat = torch.stack([model.fresh(seed) for seed in range(2)])
    examples = torch.randint(128, (2, 3, 6), generator=torch.Generator().manual_seed(0))
    losses = model.losses(flat, examples, examples.roll(1, 2))
    for row, tokens, loss in zip(flat, examples, losses, strict=True):
        parts = torch.split(row, [parameter.numel for parameter in model.parameters])
        weights = {p.name: part.view(p.shape) for p, part in zip(model.parameters, parts, strict=True)}
        network = torch.nn.GRU(8, 8, batch_first=True)
        for own, theirs in (("input", "ih"), ("state", "hh")):
            getattr(network, f"weight_{theirs}_l0").data = weights[f"{own}.weight"].T
            getattr(network, f"bias_{theirs}_l0").data = weights[f"{own}.bias"]
        seen, _ = network(weights["words"][tokens])
        scores = seen @ weights["words"].T + weights["words.bias"]
        expected = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens.roll(1, 1).flatten())
        torch.testing.assert_close(loss, expected)


def test_batch_norm_is_of_each_workers_batch() -> None:
    state = torch.randn(2, 3, 4, 4, 5, generator=torch.Generator().manual_seed(0))
    weights = {"norm.weight": torch.full((2, 5), 2.0), "norm.bias": torch.full((2, 5), 0.5)}
    found = _batch_norm(state, weights, "norm")
    for one, normal in zip(state, found, strict=True):
        network = torch.nn.BatchNorm1d(5)
        expected = 2 * network(one.flatten(0, 2)) + 0.5
        torch.testing.assert_close(normal.flatten(0, 2), expected)
