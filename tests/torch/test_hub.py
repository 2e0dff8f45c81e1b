"""DDP and all-reduces of process groups over a hub: exact, the same on all ranks, and chosen by environment alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dlcp.torch
from dlcp.errors import HubError
from dlcp.torch import codec
from tests.torch import ranks
from tests.torch.hub import MIB, environment_of_hub


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with environment_of_hub(tmp_path_factory.mktemp("hub"), memory_bytes=256 * MIB) as found:
        yield found | {"DLCP_HUB_BYTES_MIN": "1"}


def train(steps: int = 3) -> tuple[list[bytes], bool]:
    """Parameters after training on whole numbers' gradients, and whether they came over a hub."""
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 1))
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps):
        batch = torch.randn(16, 40, generator=torch.Generator().manual_seed(10 * step + rank))
        optimizer.zero_grad()
        parallel(batch).square().mean().backward()
        optimizer.step()
    group: Any = dist.group.WORLD
    hub = group.communicator.hub_group
    return [p.detach().numpy().tobytes() for p in model.parameters()], hub is not None and hub.name.endswith(
        ".hub"
    )


def test_ddp_over_a_hub_trains_as_round_a_ring(environment: dict[str, str]) -> None:
    """Two ranks: a sum of two numbers does not depend on the order, so the bits are the same."""
    over_hub = ranks.run(train, 2, environment=environment)
    ring = ranks.run(train, 2)
    assert [found[1] for found in (*over_hub, *ring)] == [True, True, False, False]
    assert over_hub[0][0] == over_hub[1][0] == ring[0][0]


def train_sharded(steps: int = 3) -> tuple[list[bytes], int]:
    """Parameters after training in FSDP2, and how many shapes of reduce-scatters have gone over a hub."""
    from torch.distributed.fsdp import fully_shard

    rank = dist.get_rank()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 1))
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps):
        batch = torch.randn(16, 40, generator=torch.Generator().manual_seed(10 * step + rank))
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    group: Any = mesh.get_group()
    hub = group.communicator.hub_group
    planned = 0 if hub is None else sum(plan.operation == "reduce_scatter" for plan in hub._plans.values())
    whole: list[Any] = [parameter.full_tensor() for parameter in model.parameters()]  # type: ignore[attr-defined]
    return [each.detach().numpy().tobytes() for each in whole], planned


def test_fsdp_over_a_hub_trains_as_round_a_ring(environment: dict[str, str]) -> None:
    over_hub = ranks.run(train_sharded, 2, environment=environment)
    ring = ranks.run(train_sharded, 2)
    assert over_hub[0][0] == over_hub[1][0] == ring[0][0]
    assert [found[1] > 0 for found in (*over_hub, *ring)] == [True, True, False, False]


def losses_sharded(recipe: str) -> tuple[list[float], int]:
    """Losses of FSDP2 with a recipe for its gradients, and how many rows of coded sums a hub keeps then."""
    from torch.distributed.fsdp import fully_shard

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    target = torch.randn(64, 16)
    model = nn.Sequential(nn.Linear(64, 129, bias=False), nn.Linear(129, 16, bias=False))
    mesh = dist.init_device_mesh("cpu", (size,))
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    state = None
    if recipe != "dense":
        state = dlcp.torch.GradientState(model, recipe=recipe, codec="int4", small_numel=0, warmup_steps=5)
        dlcp.torch.shard_gradients(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    draw = torch.Generator().manual_seed(10 + rank)
    losses = []
    for step in range(80):
        inputs = torch.randn(32, 64, generator=draw)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs @ target).square().mean()
        loss.backward()
        if step != 30:  # skipped by all
            optimizer.step()
        losses.append(loss.item())
    group: Any = mesh.get_group()
    hub = group.communicator.hub_group
    return losses, 0 if hub is None else len(hub._residuals)


def losses_over_racks(hubs: list[str]) -> tuple[list[float], int]:
    """Every second rank is in the other rack."""
    os.environ["DLCP_HUB"] = hubs[int(os.environ["RANK"]) % 2]
    dist.init_process_group("dlcp")
    found = losses_sharded("low_bit")
    dist.destroy_process_group()
    return found


def test_fsdp_in_few_bits_over_a_hub_and_over_racks_trains_as_dense(
    environment: dict[str, str], tmp_path: Path
) -> None:
    dense = ranks.run(losses_sharded, 3, recipe="dense")
    over_hub = ranks.run(losses_sharded, 3, recipe="low_bit", environment=environment)
    with environment_of_hub(tmp_path, memory_bytes=256 * MIB) as other:
        hubs = [environment["DLCP_HUB"], other["DLCP_HUB"]]
        over_racks = ranks.run(losses_over_racks, 3, hubs=hubs, backend=None, environment=environment)
    for few_bits in (over_hub, over_racks):
        assert [rows for _, rows in few_bits] == [1] * 3  # of the last layer ranks have uneven parts
        for (losses, _), (dense_losses, _) in zip(few_bits, dense, strict=True):
            assert dense_losses[-1] < 0.01 * dense_losses[0]
            assert abs(losses[-1] - dense_losses[-1]) < 0.05 * dense_losses[-1]


def scattered_in_few_bits() -> None:
    """The sum is coded once more, and what that leaves is lost."""
    rank, size, count = dist.get_rank(), dist.get_world_size(), 1000
    for dtype in (torch.float32, torch.bfloat16):
        values = [
            torch.randn(size * count, generator=torch.Generator().manual_seed(r)).to(dtype)
            for r in range(size)
        ]
        through = [
            codec.decode(codec.encode(each.float().view(size, -1)[rank], "int8"), "int8", count)
            for each in values
        ]
        expected = codec.decode(codec.encode(sum(through), "int8"), "int8", count).to(dtype)
        output = torch.empty(count, dtype=dtype)
        dlcp.torch.reduce_scatter(output, values[rank], precision="int8")
        assert torch.equal(output, expected)


def test_a_reduce_scatter_in_few_bits_over_a_hub(environment: dict[str, str]) -> None:
    ranks.run(scattered_in_few_bits, 2, environment=environment)


def reduce_all() -> list[Any]:
    rank, found = dist.get_rank(), []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
        tensor = torch.arange(100_003, dtype=torch.float64) % 251 + rank
        work = dist.all_reduce(tensor, op, async_op=True)
        work.wait()
        found.append(tensor.numpy().tobytes())
    tensor = (torch.arange(1000) % 7 + rank).to(torch.bfloat16)
    dist.all_reduce(tensor)
    found.append(tensor.float().numpy().tobytes())
    # No core has memory for it, so ranks add it.
    dist.all_reduce(large := torch.ones(32 * MIB))
    assert (large == 2).all()
    return found


def test_reductions_and_types_over_a_hub(environment: dict[str, str]) -> None:
    found = ranks.run(reduce_all, 2, environment=environment)
    assert found[0] == found[1] == ranks_expected()


def ranks_expected() -> list[bytes]:
    base = torch.arange(100_003, dtype=torch.float64) % 251
    half = (torch.arange(1000) % 7 * 2 + 1).float()
    return [each.numpy().tobytes() for each in (2 * base + 1, base + 0.5, base + 1, half)]


def refused() -> str:
    with pytest.raises(HubError, match=r"the hub at 127.0.0.1:9 cannot be reached") as caught:
        dist.init_process_group("dlcp")
    return type(caught.value).__name__


def test_a_hub_that_is_not_there_is_said_on_every_rank(environment: dict[str, str]) -> None:
    found = ranks.run(refused, 2, backend=None, environment=environment | {"DLCP_HUB": "127.0.0.1:9"})
    assert found == ["HubError"] * 2
