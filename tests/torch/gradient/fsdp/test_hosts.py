"""FSDP2 inside hosts with a recipe between them: two hosts of two ranks, beside torch's own HSDP and twins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import dlcp.torch
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.recipes.table import RECIPES
from dlcp.torch.gradient.sparse.density import count_of
from dlcp.torch.selectors import Largest
from tests.support.hosts import on_hosts
from tests.torch import ranks
from tests.torch.gradient.recipes.test_low_bit import kept
from tests.torch.gradient.test_exchange import same_on_all_ranks, total

HOSTS, RANKS = 2, 2
LOW_BIT = {"recipe": "low_bit", "codec": "int4", "small_numel": 0, "warmup_steps": 0}
DENSITY = 0.05


def grid(**more: Any) -> DeviceMesh:
    return dist.init_device_mesh("cpu", (HOSTS, RANKS), mesh_dim_names=("hosts", "ranks"), **more)


def net() -> nn.Sequential:
    """Rows that do not divide evenly; whole numbers, so that sums have no rounding to agree on."""
    model = nn.Sequential(nn.Linear(40, 65), nn.ReLU(), nn.Linear(65, 33), nn.ReLU(), nn.Linear(33, 1))
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
    return model


def sharded(model: nn.Sequential, mesh: DeviceMesh, **how: Any) -> nn.Sequential:
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh, **how)
    return model


def batches(count: int, *, of: int | None = None) -> Iterator[Tensor]:
    """Of this rank, or another one."""
    generator = torch.Generator().manual_seed(100 + (dist.get_rank() if of is None else of))
    for _ in range(count):
        yield torch.randint(-1, 2, (2, 40), generator=generator).float()


def gradient(model: nn.Module) -> Tensor:
    grads = (parameter.grad for parameter in model.parameters())
    return torch.cat([getattr(each, "full_tensor", lambda each=each: each)().reshape(-1) for each in grads])


def exact_is_native(
    accumulation: str, reduce_dtype: torch.dtype | None, reshard: bool, factor: float | None
) -> None:
    """The bits of torch's HSDP, and of one process that has everybody's batches."""
    mesh, policy = grid(), MixedPrecisionPolicy(reduce_dtype=reduce_dtype)
    how = {"mp_policy": policy, "reshard_after_forward": reshard}
    ours, native = sharded(net(), mesh["ranks"], **how), sharded(net(), mesh, **how)
    state = dlcp.torch.GradientState(ours, recipe="exact", verify=True)
    dlcp.torch.shard_gradients(ours, state, mesh=mesh)
    for model in (ours, native):
        for module in (model[0], model[2], model):
            if factor is not None:
                module.set_gradient_divide_factor(factor)
        for step in range(2):
            model.zero_grad()
            for micro, batch in enumerate(batches(3)):
                last = micro == 2
                if accumulation == "no gradient sync":
                    model.set_requires_gradient_sync(last)
                if accumulation == "no all-reduce":
                    model.set_requires_all_reduce(last)
                model(batch + step).sum().backward()
    assert gradient(ours).any()
    assert torch.equal(gradient(ours), gradient(native))
    if reduce_dtype is None:
        reference = net()
        for rank in range(dist.get_world_size()):
            for batch in batches(3, of=rank):
                reference(batch + 1).sum().div(factor or dist.get_world_size()).backward()
        assert torch.equal(gradient(ours), gradient(reference))
    state.end_step()
    assert state.step == (2 * 3 if accumulation == "every backward" else 2)


def exact_is_hsdp_bit_for_bit() -> None:
    exact_is_native("every backward", None, True, None)
    exact_is_native("no gradient sync", torch.bfloat16, False, None)
    exact_is_native("no all-reduce", None, True, 8.0)
    exact_is_native("no all-reduce", torch.float16, False, None)


def low_bit_keeps_the_mass() -> None:
    """Gradients made = applied + kept by senders and owners; the same bits on all ranks."""
    mesh = grid()
    ours, native = sharded(net(), mesh["ranks"]), sharded(net(), mesh)
    state = dlcp.torch.GradientState(ours, verify=True, **LOW_BIT)
    dlcp.torch.shard_gradients(ours, state, mesh=mesh)
    parameters = Layout.of((name, parameter.numel()) for name, parameter in net().named_parameters())
    made, applied = (torch.zeros(parameters.numel, dtype=torch.float64) for _ in range(2))
    for batch in batches(5):
        for model in (ours, native):
            model.zero_grad()
            model(batch).sum().backward()
        same_on_all_ranks(gradient(ours))
        made += gradient(native)
        applied += gradient(ours)
    left = sum(total(kept(state, parameters, side)) for side in ("sender", "owner")) / HOSTS
    assert left.abs().max() > 1e-2
    torch.testing.assert_close(applied + left, made, rtol=1e-5, atol=1e-3)


def top_k_of_the_hosts_mean() -> None:
    """Each rank chooses from its shard of its host's mean, with what that shard has kept."""
    mesh, rows, width = grid(), 64, 32
    model = nn.Linear(width, rows, bias=False)
    fully_shard(model, mesh=mesh["ranks"])
    state = dlcp.torch.GradientState(
        model, recipe="hitopk", selector="largest", density=DENSITY, small_numel=0
    )
    dlcp.torch.shard_gradients(model, state, mesh=mesh)
    numel, kept_here = rows * width // RANKS, torch.zeros(HOSTS, rows * width)
    for step in range(4):
        generators = [torch.Generator().manual_seed(10 * step + rank) for rank in range(HOSTS * RANKS)]
        pairs = [
            [torch.randint(-9, 10, (4, size), generator=each).float() for size in (width, rows)]
            for each in generators
        ]
        expected = torch.zeros(rows * width)
        for host in range(HOSTS):
            for inputs, weights in pairs[host * RANKS : (host + 1) * RANKS]:
                kept_here[host] += (weights.T @ inputs).reshape(-1) / RANKS
            for place in range(RANKS):
                values = kept_here[host][place * numel : (place + 1) * numel]
                chosen = Largest().select(values, count_of(DENSITY, numel))
                expected[place * numel + chosen] += values[chosen] / HOSTS
                values[chosen] = 0.0
        model.zero_grad()
        inputs, weights = pairs[dist.get_rank()]
        (model(inputs) * weights).sum().backward()
        assert torch.equal(gradient(model), expected), step
    state.end_step()
    # Values and indices for the other host, 8 bytes an element: what is sent inside a host is not the recipe's.
    assert state.report()["total"]["contributed_bytes"] == 4 * (HOSTS - 1) * count_of(DENSITY, numel) * 8


def low_bit_converges() -> None:
    mesh, generator = grid(), torch.Generator().manual_seed(1)
    target = torch.randn(24, 8, generator=generator)
    torch.manual_seed(2)
    model = nn.Linear(24, 8, bias=False)
    fully_shard(model, mesh=mesh["ranks"])
    state = dlcp.torch.GradientState(model, **LOW_BIT)
    dlcp.torch.shard_gradients(model, state, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    generator.manual_seed(10 + dist.get_rank())
    losses = []
    for _ in range(60):
        inputs = torch.randn(32, 24, generator=generator)
        loss = (model(inputs) - inputs @ target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    same_on_all_ranks(torch.cat([parameter.full_tensor().detach() for parameter in model.parameters()]))
    assert losses[-1] < 1e-3 * losses[0]


def every_recipe_keeps_replicas_equal() -> None:
    mesh = grid()
    with on_hosts([0, 0, 1, 1]):
        for recipe in RECIPES:
            more: dict[str, Any] = {"small_numel": 0} if recipe != "exact" else {}
            model = sharded(net(), mesh["ranks"])
            state = dlcp.torch.GradientState(model, recipe=recipe, verify=True, **more)
            dlcp.torch.shard_gradients(model, state, mesh=mesh)
            for batch in batches(3):
                model.zero_grad()
                model(batch).sum().backward()
                same_on_all_ranks(gradient(model))
            state.end_step()
            assert state.step == 3, recipe


def without_all_gradients_it_is_exact() -> None:
    mesh, made = grid(), []
    for over in (mesh["ranks"], mesh):
        model = net()
        fully_shard(model, mesh=over)
        if over.ndim == 1:
            state = dlcp.torch.GradientState(model, **LOW_BIT)
            dlcp.torch.shard_gradients(model, state, mesh=mesh)
        # forward of the whole, of which the last layer has no part.
        last = model[4]
        model.forward = lambda batch, model=model: nn.Sequential.forward(model[:4], batch)  # type: ignore[method-assign,misc]
        model(next(batches(1))).sum().backward()
        assert last.weight.grad is None
        made.append(torch.cat([each.grad.full_tensor().reshape(-1) for each in model[:4].parameters()]))
    assert torch.equal(*made)
    assert not state.used


def refusals() -> None:
    mesh = grid()
    ours, native = sharded(net(), mesh["ranks"]), sharded(net(), mesh)
    state = dlcp.torch.GradientState(ours)
    with pytest.raises(ValueError, match="mesh has 1 dimension; accepted: 2, hosts and ranks of one host"):
        dlcp.torch.shard_gradients(ours, state, mesh=mesh["ranks"])
    with pytest.raises(TypeError, match="mesh is a ProcessGroup; accepted: a DeviceMesh, or None"):
        dlcp.torch.shard_gradients(ours, state, mesh=mesh.get_group(0))
    with pytest.raises(TypeError, match="the group's backend is gloo; accepted for gradients: dlcp"):
        dlcp.torch.shard_gradients(ours, state, mesh=grid(backend_override={"hosts": "gloo"}))
    own = [0, 1] if dist.get_rank() < RANKS else [2, 3]
    with pytest.raises(ValueError, match=rf"sharded over ranks \[\[0, 1\], \[2, 3\]\]; accepted: \{own}"):
        dlcp.torch.shard_gradients(native, dlcp.torch.GradientState(native), mesh=mesh)


@pytest.mark.parametrize(
    "case",
    [
        exact_is_hsdp_bit_for_bit,
        low_bit_keeps_the_mass,
        top_k_of_the_hosts_mean,
        low_bit_converges,
        every_recipe_keeps_replicas_equal,
        without_all_gradients_it_is_exact,
        refusals,
    ],
)
def test_fsdp_inside_hosts(case: Any) -> None:
    ranks.run(case, HOSTS * RANKS)
