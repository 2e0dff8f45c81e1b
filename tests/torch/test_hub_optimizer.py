"""Steps that a hub makes: the bits of torch's optimizers, the same on all ranks, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dlcp.torch
from dlcp.errors import ArgumentError
from dlcp.torch.vml import vml_square_root
from tests.torch import ranks
from tests.torch.hub import MIB, environment_of_hub

STEPS = 100
Parameters = list[nn.Parameter]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with environment_of_hub(
        tmp_path_factory.mktemp("hub"), memory_bytes=64 * MIB, root=vml_square_root()
    ) as found:
        yield found


def comparable() -> list[str]:
    """The optimizers whose bits can be torch's here: of Adam where its square root rounds to nearest or is found."""
    sample = torch.linspace(1, 4, 999)
    nearest = torch.equal(sample.sqrt(), sample.double().sqrt().float())
    return [name for name in MAKERS if nearest or vml_square_root() is not None or "adam" not in name]


def halves(parameters: Parameters) -> list[dict[str, Any]]:
    return [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.05, "weight_decay": 0.0}]


MAKERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "sgd": lambda each: torch.optim.SGD(each, lr=0.1, foreach=False),
    "nesterov": lambda each: torch.optim.SGD(
        halves(each), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False
    ),
    "adam": lambda each: torch.optim.Adam(each, lr=0.01, amsgrad=True, weight_decay=0.1, foreach=False),
    "adamw": lambda each: torch.optim.AdamW(halves(each), lr=0.01, foreach=False),
}


def model(seed: int) -> Parameters:
    torch.manual_seed(seed)
    return list(nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 7)).parameters())


def step_both(names: list[str]) -> list[tuple[int, list[bytes]]]:
    """Per optimizer: elements that differ from torch's after many steps, and the weights."""
    rank, world = dist.get_rank(), dist.get_world_size()
    found = []
    for name in names:
        ours, theirs = model(5 + rank), model(5)  # ranks begin with rank 0's
        optimizer = dlcp.torch.HubOptimizer(MAKERS[name](ours), buffer_bytes=30000)
        wanted = MAKERS[name](theirs)
        rates = [torch.optim.lr_scheduler.StepLR(each, 30, 0.5) for each in (optimizer, wanted)]
        draw = torch.Generator().manual_seed(3)
        for _ in range(STEPS):
            for mine, other in zip(ours, theirs, strict=True):
                # Whole numbers: the mean is exact in any order.
                mean = torch.randint(-8, 8, mine.shape, generator=draw).float()
                mine.grad, other.grad = mean + 2 * rank - (world - 1), mean
            for each in (optimizer, wanted, *rates):
                each.step()
        wrong = sum(int((mine != other).sum()) for mine, other in zip(ours, theirs, strict=True))
        found.append((wrong, [each.detach().numpy().tobytes() for each in ours]))
    return found


def test_steps_at_the_hub_have_torchs_bits(environment: dict[str, str]) -> None:
    """Over 100 steps, with parameter groups and a learning-rate schedule."""
    names = comparable()
    found = ranks.run(step_both, 2, environment=environment, names=names)
    for name, mine, other in zip(names, *found, strict=True):
        assert mine[0] == 0, f"{name}: elements that differ from torch's"
        assert mine[1] == other[1], name


def overlapped() -> bool:
    """Whether weights after real backward passes are those without overlap."""
    ends = []
    for overlap in (False, True):
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 1))
        optimizer = dlcp.torch.HubOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), buffer_bytes=8000, overlap=overlap
        )
        for step in range(4):
            batch = torch.randn(16, 40, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()
            dist.all_reduce(torch.ones(1))  # between steps ranks may do what they like, in the same order
        ends.append([each.detach().clone() for each in net.parameters()])
    net(batch).square().mean().backward()
    with pytest.raises(RuntimeError, match="one backward per step"):
        net(batch).square().mean().backward()
    for halfway in (optimizer.state_dict, lambda: optimizer.load_state_dict({})):
        with pytest.raises(ArgumentError, match="gradients have left in backward"):
            halfway()
    optimizer.step()
    # A backward that reaches some of a buffer, and again: the buffer stays until all of it is there.
    (last,) = (buffer for buffer in optimizer._buffers if net[2].bias in set(buffer.parameters))
    for _ in last.parameters:
        net[2].bias.square().sum().backward()
    assert last.work is None
    optimizer.zero_grad()
    assert not last.ready
    return all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


def test_gradients_that_leave_in_backward_give_the_same_weights(environment: dict[str, str]) -> None:
    assert ranks.run(overlapped, 2, environment=environment) == [True] * 2


def go_on(names: list[str]) -> list[tuple[int, bool]]:
    """Per optimizer: elements that differ from torch's which went on from the same state; and whether states agree."""
    found = []
    for name in names:
        draw = torch.Generator().manual_seed(3)

        def step(optimizers: list[torch.optim.Optimizer], count: int, draw: torch.Generator = draw) -> None:
            for _ in range(count):
                gradients = [torch.randint(-8, 8, each.shape, generator=draw).float() for each in model(1)]
                for optimizer in optimizers:
                    parameters = [each for group in optimizer.param_groups for each in group["params"]]
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.grad = gradient.clone()
                    optimizer.step()

        first = dlcp.torch.HubOptimizer(MAKERS[name](begun := model(5)), buffer_bytes=8000)
        plain = MAKERS[name](model(5))
        step([first, plain], 7)
        saved, wanted = first.state_dict(), plain.state_dict()
        agree = saved["param_groups"] == wanted["param_groups"] and all(
            (value is None and other.get(key) is None) or torch.equal(value, other[key])
            for place, other in wanted["state"].items()
            for key, value in saved["state"].get(place, {}).items()
        )
        agree = agree and (not saved["state"] or len(saved["state"]) == len(wanted["state"]))
        ours, theirs = model(9), model(8)
        for mine, other, now in zip(ours, theirs, begun, strict=True):
            with torch.no_grad():
                mine.copy_(now)
                other.copy_(now)
        again, after = dlcp.torch.HubOptimizer(MAKERS[name](ours)), MAKERS[name](theirs)
        with torch.no_grad():
            ours[0] += dist.get_rank()  # only rank 0 has what was saved
        again.load_state_dict(saved)
        after.load_state_dict(saved)
        step([again, after], 5)
        wrong = sum(int((mine != other).sum()) for mine, other in zip(ours, theirs, strict=True))
        found.append((wrong, agree))
    return found


def test_training_goes_on_from_a_saved_state(environment: dict[str, str]) -> None:
    """At the hub or without one; and the state is what torch's optimizer has."""
    names = comparable()
    assert ranks.run(go_on, 2, environment=environment, names=names) == [[(0, True)] * len(names)] * 2


def refuse() -> None:
    parameters = model(1)
    make = dlcp.torch.HubOptimizer
    for optimizer, said in (
        (
            torch.optim.RMSprop(parameters),
            "RMSprop, which a hub cannot step; accepted: torch.optim.SGD, Adam",
        ),
        (dlcp.torch.LARS(parameters, lr=0.1), "LARS, which a hub cannot step"),
        (
            torch.optim.SGD([nn.Parameter(torch.zeros(3, dtype=torch.float64))], lr=0.1),
            "accepted: dense float32",
        ),
    ):
        with pytest.raises(ArgumentError, match=said):
            make(optimizer)
    with pytest.raises(dist.DistBackendError, match="load of weights .* bytes at a core of the hub"):
        make(torch.optim.Adam([nn.Parameter(torch.zeros(MIB))]))
    optimizer = make(torch.optim.SGD(parameters, lr=0.1))
    with pytest.raises(ArgumentError, match=r"of shape \(300, 40\), has no gradient"):
        optimizer.step()
    with pytest.raises(ArgumentError, match="a parameter group was added"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    used = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for each in parameters:
        each.grad = torch.ones_like(each)
    for name, value, said in (
        ("lr", -1.0, "learning_rate is -1"),
        ("momentum", 0.9, "accepted: 0, as loaded"),
    ):
        before, optimizer.param_groups[0][name] = optimizer.param_groups[0][name], value
        with pytest.raises(ArgumentError, match=said):
            optimizer.step()
        optimizer.param_groups[0][name] = before
    parameters[0].grad = torch.ones_like(parameters[0]).to_sparse()
    with pytest.raises(ArgumentError, match="accepted: dense gradients"):
        optimizer.step()
    parameters[0].grad = torch.ones_like(parameters[0])
    used.step()
    with pytest.raises(ArgumentError, match="has been stepped already"):
        make(used)
    optimizer.step()


def test_what_a_hub_cannot_do_is_refused_and_the_group_goes_on(environment: dict[str, str]) -> None:
    ranks.run(refuse, 2, environment=environment)


def other_rates() -> str:
    parameters = model(1)
    optimizer = dlcp.torch.HubOptimizer(torch.optim.SGD(parameters, lr=0.1))
    optimizer.param_groups[0]["lr"] += dist.get_rank()
    for each in parameters:
        each.grad = torch.ones_like(each)
    with pytest.raises(
        dist.DistBackendError, match=r"hub step 1\(14407 weights, number 0, SGD: rate"
    ) as caught:
        optimizer.step()
    return type(caught.value).__name__


def test_ranks_with_different_hyperparameters_are_found(environment: dict[str, str]) -> None:
    assert ranks.run(other_rates, 2, environment=environment) == ["MismatchError"] * 2


def without_a_hub() -> None:
    with pytest.raises(ArgumentError, match="the group has no hub; set hub"):
        dlcp.torch.HubOptimizer(torch.optim.SGD(model(1), lr=0.1))


def test_a_group_without_a_hub_is_refused() -> None:
    ranks.run(without_a_hub, 1)
