"""The backend with a switch that adds: which all-reduces go through it, and ranks that do not use the same one."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from dlcp.errors import MismatchError
from dlcp.torch import Options, ProcessGroup
from tests.support.aggregation_relay import Relay
from tests.support.aggregation_values import fixed_point_sum
from tests.torch import ranks

RANKS = 3
SIZE = 10_000


def values_of(rank: int) -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(rank))


def open_group(setting: str) -> ProcessGroup:
    dist.init_process_group("dlcp", pg_options=Options(aggregation=setting))
    group = dist.group.WORLD
    assert isinstance(group, ProcessGroup)
    return group


def several_all_reduces(setting: str) -> dict[str, Any]:
    group = open_group(setting)
    found: dict[str, Any] = {}
    tensor = values_of(dist.get_rank())
    work = dist.all_reduce(tensor.clone(), async_op=True)
    found["sum"] = work.get_future().wait()[0].numpy()
    mean = tensor.clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    found["mean"] = mean.numpy()
    # What stays with the ring: too short, another type, another reduction.
    for others, op in (
        (tensor[:100].clone(), dist.ReduceOp.SUM),
        (tensor.double(), dist.ReduceOp.SUM),
        (tensor.clone(), dist.ReduceOp.MAX),
    ):
        dist.all_reduce(others, op)
    # A later group of the same ranks has no place at the switch.
    dist.all_reduce(tensor.clone(), group=dist.new_group())
    found["metrics"] = group.communicator.job.metrics.snapshot()["aggregation"]
    dist.destroy_process_group()
    return found


def test_long_float32_sums_and_averages_go_through_the_switch() -> None:
    with Relay(RANKS, lanes=352, slots=32) as relay:
        found = ranks.run(several_all_reduces, RANKS, backend=None, setting=relay.setting)
    total = fixed_point_sum([values_of(n).numpy() for n in range(RANKS)], 352)
    for one in found:
        assert one["sum"].tobytes() == total.tobytes()
        assert one["mean"].tobytes() == (total / np.float32(RANKS)).tobytes()
        assert (one["metrics"]["by_switch"], one["metrics"]["by_ring"]) == (2, {})


def one_without(setting: str) -> str:
    if int(os.environ["RANK"]) == 0:
        open_group(setting)
    else:
        dist.init_process_group("dlcp")
    try:
        dist.all_reduce(values_of(0))
    except MismatchError as error:
        # Who ends sooner than others have been told is what they hear of.
        store = dist.distributed_c10d._get_default_store()
        store.set(f"told/{dist.get_rank()}", "")
        store.wait([f"told/{rank}" for rank in range(RANKS)])
        return str(error)
    return "no error"


def test_a_rank_that_asks_no_switch_is_named() -> None:
    with Relay(RANKS) as relay:
        found = ranks.run(one_without, RANKS, backend=None, setting=relay.setting)
    assert all("all_reduce" in text for text in found), found


def recipe_step(setting: str) -> tuple[bytes, dict[str, Any], int]:
    """Gradients after one step by a recipe, the switch's account, and what the ledger says was received, bytes."""
    import dlcp.torch

    group = open_group(setting)
    torch.manual_seed(1)
    model = torch.nn.Linear(100, 100)
    state = dlcp.torch.GradientState(model, recipe="exact")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel.register_comm_hook(state, dlcp.torch.gradient_hook)
    parallel(torch.full((4, 100), 1.0 + dist.get_rank())).sum().backward()
    gradients = b"".join(each.grad.numpy().tobytes() for each in model.parameters() if each.grad is not None)
    counted = group.communicator.job.metrics.snapshot()["aggregation"]
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    parallel(torch.ones(4, 100)).sum().backward()  # ends the step in the ledger
    received = state.ledger.snapshot()["total"]["received_bytes"]
    dist.destroy_process_group()
    return gradients, counted, received


def test_a_recipe_reaches_the_switch() -> None:
    with Relay(RANKS) as relay:
        found = ranks.run(recipe_step, RANKS, backend=None, setting=relay.setting)
    for gradients, counted, received in found:
        assert gradients == found[0][0]
        # The bias's gradient counts samples, and the weight's are their inputs: the mean of all ranks'.
        values = np.frombuffer(gradients, np.float32)
        assert (values[:10_000] == 8.0).all()
        assert (values[10_000:] == 4.0).all()
        assert (counted["by_switch"], counted["by_ring"]) == (1, {})
        assert received == 10_100 * 4
