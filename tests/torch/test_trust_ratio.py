"""LARS and LAMB: the papers' algorithms step by step, and the same bits when ranks share the norms."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dlcp.torch
from dlcp.errors import ArgumentError
from dlcp.torch.layer_norms import LayerNorms
from tests.torch import ranks

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "lars": lambda params: dlcp.torch.LARS(params, 0.5, weight_decay=1e-2, trust=0.1),
    "lamb": lambda params: dlcp.torch.LAMB(params, 0.05, weight_decay=1e-2),
}


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 30), nn.LayerNorm(30), nn.ReLU(), nn.Linear(30, 17), nn.Linear(17, 5))


def trained(name: str, steps: int = 12) -> list[torch.Tensor]:
    """Weights after a few steps with gradients that are drawn, the same on all ranks."""
    model = net()
    optimizer = OPTIMIZERS[name](model.parameters())
    draw = torch.Generator().manual_seed(3)
    for _ in range(steps):
        for weights in model.parameters():
            weights.grad = torch.randn(weights.shape, generator=draw)
        optimizer.step()
    return [weights.detach().clone() for weights in model.parameters()]


# --- against the algorithms ------------------------------------------------------------------------------------------


def lars_twin(weights: torch.Tensor, state: dict[str, Any], gradient: torch.Tensor) -> torch.Tensor:
    rate, of_weights, of_gradient = 0.5, weights.norm(), gradient.norm()
    if weights.dim() > 1:
        rate *= float(0.1 * of_weights / (of_gradient + 1e-2 * of_weights))
    state["v"] = 0.9 * state.get("v", 0.0) + rate * (gradient + 1e-2 * weights)
    return weights - state["v"]


def lamb_twin(weights: torch.Tensor, state: dict[str, Any], gradient: torch.Tensor) -> torch.Tensor:
    t = state["t"] = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * gradient
    state["s"] = 0.999 * state.get("s", 0.0) + 0.001 * gradient**2
    update = (state["m"] / (1 - 0.9**t)) / ((state["s"] / (1 - 0.999**t)).sqrt() + 1e-6) + 1e-2 * weights
    ratio = float(weights.norm() / update.norm()) if weights.dim() > 1 else 1.0
    return weights - 0.05 * ratio * update


@pytest.mark.parametrize(("name", "twin"), [("lars", lars_twin), ("lamb", lamb_twin)])
def test_it_is_the_papers_algorithm(name: str, twin: Callable[..., torch.Tensor]) -> None:
    expected = [weights.detach().double() for weights in net().parameters()]
    states: list[dict[str, Any]] = [{} for _ in expected]
    draw = torch.Generator().manual_seed(3)
    for _ in range(12):
        for index, weights in enumerate(expected):
            gradient = torch.randn(weights.shape, generator=draw).double()
            expected[index] = twin(weights, states[index], gradient)
    for found, wanted in zip(trained(name), expected, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-6)


def test_a_layer_of_zeros_has_the_global_rate() -> None:
    weights = nn.Parameter(torch.zeros(3, 4))
    weights.grad = torch.ones(3, 4)
    dlcp.torch.LARS([weights], 0.5).step()
    assert torch.equal(weights.detach(), torch.full((3, 4), -0.5))


def test_a_state_goes_on() -> None:
    model, other = net(), net()
    first, second = (OPTIMIZERS["lamb"](one.parameters()) for one in (model, other))
    for step in range(6):
        if step == 3:
            other.load_state_dict(model.state_dict())
            second.load_state_dict(copy.deepcopy(first.state_dict()))
        draw = torch.Generator().manual_seed(step)
        for weights, twin in zip(model.parameters(), other.parameters(), strict=True):
            weights.grad = torch.randn(weights.shape, generator=draw)
            twin.grad = weights.grad.clone()
        first.step()
        if step >= 3:
            second.step()
    for weights, twin in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(weights, twin)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda params: dlcp.torch.LARS(params, -1.0), "lr"),
        (lambda params: dlcp.torch.LARS(params, 1.0, momentum=1.0), "momentum"),
        (lambda params: dlcp.torch.LARS(params, 1.0, trust=0.0), "trust"),
        (lambda params: dlcp.torch.LAMB(params, betas=(0.9, 1.0)), r"betas\[1\]"),
        (lambda params: dlcp.torch.LAMB(params, eps=math.nan), "eps"),
    ],
)
def test_options_out_of_range_are_refused(make: Callable[..., Any], name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is"):
        make([nn.Parameter(torch.ones(2, 2))])


# --- by owners -------------------------------------------------------------------------------------------------------


def by_owners(alone: dict[str, list[torch.Tensor]]) -> None:
    for name, expected in alone.items():
        for found, wanted in zip(trained(name), expected, strict=True):
            assert torch.equal(found, wanted), name
    owned = LayerNorms([5, 100, 20, 80, 30]).owned
    assert sorted(index for each in owned for index in each) == [0, 1, 2, 3, 4]
    assert len(owned) == dist.get_world_size()
    assert 1 in owned[0]


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_that_share_the_norms_have_the_bits_of_one_alone_also_under_loss(world_size: int) -> None:
    alone = {name: trained(name) for name in OPTIMIZERS}
    environment = {"DLCP_SHM": "0", "DLCP_INJECT_LOSS_RATIO": "0.1"}
    ranks.run(by_owners, world_size, environment=environment, alone=alone)
