"""The order in which forward uses parameters, as traced, and the classes made of it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dlcp.torch.gradient.rules.forward_order import ForwardOrder


class Crooked(nn.Module):
    """Registered in another order than used; one module is used twice, one never, one weight without its module."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.twice = nn.Linear(8, 8)
        self.never = nn.Linear(8, 8)
        self.front = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.twice(torch.relu(self.front(batch)))
        hidden = self.twice(hidden)
        hidden, _ = self.attention(hidden, hidden, hidden)
        return self.head(hidden)


def modules_of(names: list[str]) -> list[str]:
    return list(dict.fromkeys(name.rsplit(".", 1)[0] for name in names))


def test_the_order_is_that_of_first_use() -> None:
    model = Crooked()
    order = ForwardOrder(model)
    model(torch.randn(2, 8))
    assert order.traced
    # The one that is never used, and the one whose weights its parent uses, come behind those registered before them.
    expected = ["front", "twice", "never", "attention", "attention.out_proj", "head"]
    assert modules_of(list(order.names())) == expected
    assert sorted(order.names()) == sorted(name for name, _ in model.named_parameters())


def test_the_hooks_go_away_after_the_first_forward_with_gradients() -> None:
    model = Crooked()
    order = ForwardOrder(model)
    with torch.no_grad():
        model(torch.randn(2, 8))
    assert not order.traced
    model(torch.randn(2, 8))
    assert order.traced
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_without_a_trace_the_order_is_that_of_registration() -> None:
    model = Crooked()
    order = ForwardOrder(model)
    order.finish()
    assert not order.traced
    assert list(order.names()) == [name for name, _ in model.named_parameters()]
    assert "attention.out_proj.weight" in order.output_layer()


def test_the_output_layer_is_the_module_used_last() -> None:
    model = Crooked()
    order = ForwardOrder(model)
    model(torch.randn(2, 8))
    assert order.output_layer() == {"head.weight", "head.bias"}


def test_the_output_layer_comes_before_a_norm_behind_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    order = ForwardOrder(model)
    model(torch.randn(2, 4))
    assert order.output_layer() == {"1.weight", "1.bias"}


def test_a_tied_output_layer_has_the_embeddings_name() -> None:
    model = nn.Sequential(nn.Embedding(16, 4), nn.Linear(4, 4), nn.Linear(4, 16, bias=False))
    model[2].weight = model[0].weight
    order = ForwardOrder(model)
    model(torch.tensor([1, 2]))
    assert order.output_layer() == {"0.weight"}


def test_recomputation_in_backward_does_not_count() -> None:
    class Recomputed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.body, batch, use_reentrant=False))

    model = Recomputed()
    order = ForwardOrder(model)
    model(torch.randn(2, 4)).sum().backward()
    assert order.output_layer() == {"head.weight", "head.bias"}


def test_a_copy_made_before_the_first_forward_works_alone() -> None:
    model = Crooked()
    order = ForwardOrder(model)
    copied = copy.deepcopy(model)
    copied(torch.randn(2, 8))
    assert not order.traced
    model(torch.randn(2, 8))
    assert order.traced
    assert order.output_layer() == {"head.weight", "head.bias"}


def test_classes_fall_from_front_to_back_and_share_the_bytes() -> None:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(70)))
    order = ForwardOrder(model)
    model(torch.randn(2, 16))
    classes = order.classes()
    in_order = [classes[name] for name in order.names()]
    assert in_order == sorted(in_order, reverse=True)
    assert in_order[0] == 6
    assert in_order[-1] == 0
    sizes = dict.fromkeys(range(7), 0)
    for name, parameter in model.named_parameters():
        sizes[classes[name]] += parameter.numel()
    assert max(sizes.values()) / min(sizes.values()) < 1.3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_parameters_have_classes_too(count: int) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(count)))
    assert all(0 <= each <= 6 for each in ForwardOrder(model).classes().values())


def test_without_a_model_there_is_no_order() -> None:
    order = ForwardOrder(None)
    assert (list(order.names()), dict(order.classes()), order.output_layer()) == ([], {}, frozenset())
