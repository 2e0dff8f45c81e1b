"""FSDP2 with gradients within a loss budget."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.residual.rule import ResidualRule
from tests.torch import ranks
from tests.torch.gradient.recipes.test_low_bit import kept
from tests.torch.gradient.test_exchange import LOSSY, WHOLE, same_on_all_ranks, total
from tests.torch.gradient.test_hook import OPEN, STEPS, Net, batches, dense, net

# --- the layout of what FSDP sends --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_layout_is_that_of_chunk_cat(seed: int) -> None:
    """Against torch's own operation, on numbers that say where they are from."""
    from dlcp.torch.gradient.fsdp.layout import chunked

    draw = random.Random(seed)
    size = draw.choice([1, 2, 3, 4, 7])
    shapes = [
        tuple(draw.randrange(1, 9) for _ in range(draw.randrange(1, 4))) for _ in range(draw.randrange(1, 5))
    ]
    tensors, at = [], 1.0
    for shape in shapes:
        count = torch.Size(shape).numel()
        tensors.append(torch.arange(at, at + count).view(shape))
        at += count
    layout = chunked([(str(index), shape, 0) for index, shape in enumerate(shapes)], size)
    sent = torch.empty(size, layout.numel // size)
    torch.ops.fsdp.chunk_cat(tensors, dim=0, num_chunks=size, out=sent)
    expected = torch.zeros(layout.numel)
    for segment in layout.segments:
        values = tensors[int(segment.name)].reshape(-1)
        expected[segment.begin : segment.end] = values[segment.offset : segment.offset + segment.count]
    assert torch.equal(sent.view(-1), expected)
    assert sum(segment.count for segment in layout.segments) == int(at - 1)


def test_a_parameter_sharded_elsewhere_has_whole_pieces() -> None:
    from dlcp.torch.gradient.fsdp.layout import chunked

    layout = chunked([("weight", (3, 8), 1)], 4)
    assert [(each.offset, each.begin, each.count) for each in layout.segments] == [
        (0, 0, 6),
        (6, 6, 6),
        (12, 12, 6),
        (18, 18, 6),
    ]


# --- training -----------------------------------------------------------------------------------------------


def sharded(size: int, mixed: bool = False, **options: Any) -> tuple[Net, Any]:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    import dlcp.torch

    model = net()
    policy: dict[str, Any] = {}
    if mixed:
        policy["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh("cpu", (size,))
    for module in (model.first, model.second, model.branch, model.last):
        fully_shard(module, mesh=mesh, **policy)
    fully_shard(model, mesh=mesh, **policy)
    state = dlcp.torch.GradientState(model, **(OPEN | options))
    dlcp.torch.shard_gradients(model, state)
    return model, state


def whole(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.full_tensor().detach().reshape(-1) for parameter in model.parameters()])


def exact(mixed: bool) -> None:
    """Where nothing is lost, training is that of the whole model on everybody's batches."""
    model, state = sharded(dist.get_world_size(), mixed)
    reference = net()
    ours = torch.optim.SGD(model.parameters(), lr=0.1)
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1)
    for batch in batches():
        everybody = [torch.empty_like(batch) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, batch)
        ours.zero_grad()
        model(batch).square().mean().backward()
        ours.step()
        theirs.zero_grad()
        sum(reference(each).square().mean() for each in everybody).div(len(everybody)).backward()
        theirs.step()
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in reference.parameters()])
    tolerance = 2e-2 if mixed else 1e-5
    torch.testing.assert_close(whole(model), expected, rtol=tolerance, atol=tolerance)
    assert state.step == STEPS - 1


@pytest.mark.parametrize("mixed", [False, True])
def test_without_loss_training_is_that_of_the_whole_model(mixed: bool) -> None:
    ranks.run(exact, 2, mixed=mixed, environment=WHOLE)


def mass() -> int:
    """Gradients made = gradients applied + kept; what this rank abandoned."""
    model, state = sharded(dist.get_world_size(), residual=ResidualRule(decay=1.0))
    shadow = net()
    numel = sum(parameter.numel() for parameter in shadow.parameters())
    made, applied = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64)
    for batch in batches():
        model.zero_grad()
        shadow.zero_grad()
        model(batch).square().mean().backward()
        shadow(batch).square().mean().backward()
        made += torch.cat([parameter.grad.reshape(-1) for parameter in shadow.parameters()])
        found = torch.cat([parameter.grad.full_tensor().reshape(-1) for parameter in model.parameters()])
        same_on_all_ranks(found)
        applied += found * dist.get_world_size()
    state.end_step()
    kept = dense(
        state.residual.state_dict(), {name: each.numel() for name, each in shadow.named_parameters()}
    )
    dist.all_reduce(made)
    dist.all_reduce(kept)
    torch.testing.assert_close(applied + kept, made, rtol=1e-5, atol=1e-6)
    return int(state.report()["total"]["abandoned_bytes"])


def test_gradients_are_applied_or_kept() -> None:
    assert sum(ranks.run(mass, 3, environment=LOSSY)) > 0


def accumulated() -> None:
    """Backward passes without reduction are no steps."""
    model, state = sharded(dist.get_world_size())
    first, second = batches(2)
    model.set_requires_gradient_sync(False)
    model(first).square().mean().backward()
    assert state.step == 0
    model.set_requires_gradient_sync(True)
    model(second).square().mean().backward()
    state.end_step()
    assert state.step == 1


def test_accumulated_gradients_are_one_step() -> None:
    ranks.run(accumulated, 2, environment=LOSSY)


def hybrid() -> None:
    from torch.distributed.fsdp import fully_shard

    import dlcp.torch

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model, reference = net(), copy.deepcopy(net())
    fully_shard(model, mesh=mesh)
    state = dlcp.torch.GradientState(model, **OPEN)
    dlcp.torch.shard_gradients(model, state)
    batch = next(batches())
    model(batch).square().mean().backward()
    everybody = [torch.empty_like(batch) for _ in range(4)]
    dist.all_gather(everybody, batch)
    sum(reference(each).square().mean() for each in everybody).div(4).backward()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.full_tensor(), theirs.grad, rtol=1e-5, atol=1e-6)


def test_replicated_shards() -> None:
    ranks.run(hybrid, 4, environment=WHOLE)


def hybrid_by(recipe: str, **options: Any) -> None:
    """Beside the same model without a recipe: the same bits, or what was made is applied or kept, on all replicas."""
    from torch.distributed.fsdp import fully_shard

    import dlcp.torch

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model, plain = net(), net()
    for each in (model, plain):
        for module in (each.first, each.second, each.branch, each.last, each):
            fully_shard(module, mesh=mesh)
    state = dlcp.torch.GradientState(model, recipe=recipe, **options)
    dlcp.torch.shard_gradients(model, state)
    parameters = Layout.of((name, parameter.numel()) for name, parameter in net().named_parameters())
    made, applied, left = (torch.zeros(parameters.numel, dtype=torch.float64) for _ in range(3))
    for batch in batches():
        for each in (model, plain):
            each.zero_grad()
            each(batch).square().mean().backward()
        found, expected = (
            torch.cat([parameter.grad.full_tensor().reshape(-1) for parameter in each.parameters()])
            for each in (model, plain)
        )
        same_on_all_ranks(found)
        if recipe == "exact":
            assert torch.equal(found, expected)
        made += expected
        applied += found
    state.end_step()
    assert state.step == STEPS
    if recipe != "exact":
        left = total(kept(state, parameters, "sender")) / dist.get_world_size()
        # A step's code is off by much more than the sum of all steps is.
        assert left.abs().max() > 1e-4
    torch.testing.assert_close(applied + left, made, rtol=1e-5, atol=1e-6)


def test_replicated_shards_by_recipe() -> None:
    ranks.run(hybrid_by, 4, recipe="exact", environment=LOSSY)
    ranks.run(hybrid_by, 4, recipe="low_bit", codec="int4", small_numel=0, warmup_steps=0, environment=LOSSY)


def unused(along: bool) -> None:
    """A parameter without a gradient: reduced exactly, or as zeros along with the others."""
    from torch.distributed.fsdp import fully_shard

    import dlcp.torch

    model = net()
    model.with_branch = False
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    if along:
        model.set_reduce_scatter_unused_params(True)
    state = dlcp.torch.GradientState(model, **OPEN)
    dlcp.torch.shard_gradients(model, state)
    for batch in batches(2):
        model.zero_grad()
        model(batch).square().mean().backward()
    same_on_all_ranks(model.first.weight.grad.full_tensor())
    state.end_step()
    assert state.step == (2 if along else 0)


@pytest.mark.parametrize("along", [False, True])
def test_parameters_without_gradients(along: bool) -> None:
    ranks.run(unused, 2, along=along, environment=LOSSY)


def test_a_model_without_fsdp_is_refused() -> None:
    import dlcp.torch

    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="a Linear holds no FSDP module; accepted: after fully_shard"):
        dlcp.torch.shard_gradients(model, dlcp.torch.GradientState(model))
