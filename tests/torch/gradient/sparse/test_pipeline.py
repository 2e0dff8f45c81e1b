"""The recipes that send chosen elements: what they choose, momentum correction, warm-up, the other ways in."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import dlcp.torch
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.sparse import network_costs
from dlcp.torch.gradient.sparse.density import Density, count_of
from dlcp.torch.gradient.sparse.frame import Choice, Section, add_frame, counts_of, encode, frame_numel
from dlcp.torch.selectors import Largest
from dlcp.transport.communicator import Communicator
from tests.torch import ranks
from tests.torch.gradient.test_exchange import WHOLE, same_on_all_ranks
from tests.torch.gradient.test_hook import batches, net

SPARSE: dict[str, Any] = {"small_numel": 0, "density": 0.05}
NUMEL = 2000


def gradients(step: int) -> list[Tensor]:
    """Of all ranks."""
    size = dist.get_world_size()
    generators = [torch.Generator().manual_seed(100 * step + rank) for rank in range(size)]
    return [torch.randn(NUMEL, generator=generator) for generator in generators]


def mean(state: Any, values: Tensor) -> Tensor:
    layout = Layout.of([("weight", len(values))])
    return exchange_of(state).all_reduce(values.clone(), layout, BufferCall(average=True)).wait().clone()


def kept(state: Any, side: str) -> Tensor:
    dense = torch.zeros(NUMEL)
    for batch in state.state_dict()["residual"][side]["batches"]:
        at = 0
        for offset, count in zip(batch["offset"].tolist(), batch["count"].tolist(), strict=True):
            dense[offset : offset + count] += batch["values"][at : at + count] * batch["factor"]
            at += count
    return dense


# --- what is chosen ---------------------------------------------------------------------------------------------


def as_the_twin() -> None:
    """Each rank's choice, computed for all of them on each, gives the bits that the ranks get."""
    # A half, so that a product has no rounding to agree on.
    size, count, momentum = dist.get_world_size(), count_of(0.05, NUMEL), 0.5
    state = dlcp.torch.GradientState(
        recipe="redsync",
        codec="fp32",
        selector="largest",
        momentum=momentum,
        dense_if_cheaper=False,
        **SPARSE,
    )
    velocities, waiting = ([torch.zeros(NUMEL) for _ in range(size)] for _ in range(2))
    for step in range(5):
        given = gradients(step)
        expected = torch.zeros(NUMEL)
        for rank in range(size):
            velocities[rank] = given[rank] + momentum * velocities[rank]
            waiting[rank] = velocities[rank] + waiting[rank]
            chosen = Largest().select(waiting[rank], count)
            expected[chosen] += waiting[rank][chosen]
            velocities[rank][chosen] = 0.0
            waiting[rank][chosen] = 0.0
        assert torch.equal(mean(state, given[dist.get_rank()]), expected / size), step
    assert torch.equal(kept(state, "velocity"), velocities[dist.get_rank()])
    assert torch.equal(kept(state, "sender"), waiting[dist.get_rank()])


def of_one_sign() -> None:
    """What a rank sends of a parameter is one value, of one sign in turn."""
    state = dlcp.torch.GradientState(recipe="redsync", dense_if_cheaper=False, **SPARSE)
    for step in range(4):
        given = torch.zeros(NUMEL) if dist.get_rank() else gradients(step)[0]
        result = mean(state, given)
        found = result[result != 0].unique()
        assert len(found) == 1
        assert (float(found) > 0) == (step % 2 == 0)
        assert int((result != 0).sum()) == (count_of(0.05, NUMEL))


def clipped() -> None:
    state = dlcp.torch.GradientState(recipe="redsync", codec="fp32", clip=5.0, **(SPARSE | {"density": 1.0}))
    given = gradients(0)
    limit = 5.0 / dist.get_world_size() ** 0.5
    expected = sum(each * min(1.0, limit / float(each.norm())) for each in given) / dist.get_world_size()
    torch.testing.assert_close(mean(state, given[dist.get_rank()]), expected)


def cheaper(steps: int = 6) -> list[bool]:
    """Ranks that decide by what they measured decide alike; the first steps are dense."""
    state = dlcp.torch.GradientState(recipe="redsync", codec="fp32", **SPARSE)
    dense = []
    for step in range(steps):
        result = mean(state, gradients(step)[dist.get_rank()])
        same_on_all_ranks(result)
        dense.append(bool((result != 0).all()))
    return dense


def flipped(slow_steps: range) -> list[bool]:
    """By step, whether all values travel where the estimators of the last rank alone see a slow link in some steps."""
    steps = itertools.count()

    def measured(communicator: Communicator) -> tuple[float, float]:
        # A millisecond a byte, or nothing at all: between these the time that a choice takes does not matter.
        slow = next(steps) in slow_steps and communicator.rank == communicator.size - 1
        return 50e-6, 1e-3 if slow else 0.0

    with mock.patch.object(network_costs, "_measured", measured):
        return cheaper(8)


def sampled() -> None:
    """A threshold that serves several steps is saved with the state."""
    options = dict(recipe="redsync", selector="sampled_threshold", dense_if_cheaper=False, **SPARSE)
    state, again = (dlcp.torch.GradientState(**options) for _ in range(2))
    for step in range(3):
        mean(state, gradients(step)[dist.get_rank()])
    saved = state.state_dict()
    assert len(saved["thresholds"]) == 2
    again.load_state_dict(saved)
    for step in range(3, 7):
        given = gradients(step)[dist.get_rank()]
        assert torch.equal(mean(state, given), mean(again, given))
    # A skipped step never was.
    before = state.state_dict()["thresholds"]
    mean(state, 10 * gradients(7)[dist.get_rank()])
    state.end_step(applied=False)
    assert state.state_dict()["thresholds"] == before


def heads_in_another_order() -> None:
    """Forward runs two heads in another order on each rank, so that each takes another for the output layer."""

    class Heads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = torch.nn.ModuleList([torch.nn.Linear(80, 60), torch.nn.Linear(80, 70)])

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            order = self.heads if dist.get_rank() % 2 else reversed(self.heads)
            return sum((head(batch).square().sum() for head in order), torch.zeros(()))

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Heads())
    options = {"recipe": "redsync", "dense_if_cheaper": False, "density": 0.05, "small_numel": 1}
    state = dlcp.torch.GradientState(model, **options)
    model.register_comm_hook(state, dlcp.torch.gradient_hook)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(4, 80)).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            same_on_all_ranks(parameter.grad)


def in_one_world() -> list[bool]:
    as_the_twin()
    of_one_sign()
    clipped()
    sampled()
    heads_in_another_order()
    return cheaper()


def test_ranks_send_what_was_published() -> None:
    answers = ranks.run(in_one_world, 3, environment=WHOLE)
    assert answers[0][0]
    assert answers[0] == answers[1] == answers[2]


def test_what_travels_follows_the_slowest_link_a_step_later_on_all_ranks() -> None:
    answers = ranks.run(flipped, 3, slow_steps=range(2, 5), environment=WHOLE)
    assert answers == [[True] * 4 + [False] * 3 + [True]] * 3


# --- the other ways in ------------------------------------------------------------------------------------------


def marked_layered_and_sharded(recipe: str) -> None:
    from torch.distributed.fsdp import fully_shard

    from dlcp.torch.layerwise import LayerwiseOptimizer

    options: dict[str, Any] = {"recipe": recipe, "small_numel": 0, "density": 0.2}
    if recipe == "redsync":
        options["dense_if_cheaper"] = False
    tensor = gradients(0)[dist.get_rank()]
    with dlcp.torch.gradients(dlcp.torch.GradientState(**options), name="weight"):
        dist.all_reduce(tensor)
    same_on_all_ranks(tensor)
    model = net()
    layered = LayerwiseOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.02),
        model,
        gradients=dlcp.torch.GradientState(model, **options),
    )
    for batch in batches(4):
        layered.zero_grad()
        model(batch).square().mean().backward()
        layered.step()
    layered.synchronize()
    for parameter in model.parameters():
        same_on_all_ranks(parameter.detach())

    model = net()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (model.first, model.second, model.branch, model.last):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = dlcp.torch.GradientState(model, **options)
    dlcp.torch.shard_gradients(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    for batch in [next(iter(batches(1)))] * 8:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert state.step >= 7
    assert losses[-1] < losses[0]


def every_door() -> None:
    for recipe in ("mstopk", "redsync", "gradientflow"):
        try:
            marked_layered_and_sharded(recipe)
        except BaseException as error:
            error.add_note(f"recipe {recipe}")
            raise


def test_the_other_ways_in_are_the_same_pipelines() -> None:
    ranks.run(every_door, 2, environment=WHOLE)


# --- frames and densities ---------------------------------------------------------------------------------------


def test_a_frame_is_indices_and_values_or_one_value() -> None:
    sections = [Section(10, 20, False, ("a", 0, 10)), Section(20, 30, True, ("b", 0, 10))]
    choices = [
        Choice(torch.tensor([1, 9]), torch.tensor([0.5, -2.0])),
        Choice(torch.tensor([0, 3, 4]), torch.tensor([1.5])),
    ]
    frame = encode(sections, choices)
    counts = counts_of(sections, choices).tolist()
    assert frame.numel() == frame_numel(counts) == 8
    total = torch.ones(20)
    # The reader may hold another view of which share a value.
    add_frame(total, frame, [section._replace(shared=not section.shared) for section in sections], counts)
    expected = torch.ones(20)
    expected[[1, 9]] += torch.tensor([0.5, -2.0])
    expected[[10, 13, 14]] += 1.5
    assert torch.equal(total, expected)


def test_a_warm_up_is_dense_or_falls_by_quarters() -> None:
    dense = Density(GradientOptions(density=0.001, warmup_steps=2), 0.5)
    assert [dense.of(step) for step in range(4)] == [1.0, 1.0, 0.001, 0.001]
    falling = Density(GradientOptions(warmup_steps=8, warmup="density"), 0.01)
    assert [falling.of(step) for step in range(9)] == [0.25] * 2 + [0.0625] * 2 + [0.015625] * 2 + [0.01] * 3


@pytest.mark.parametrize(
    ("density", "numel", "count"), [(0.1, 30, 3), (0.1, 31, 4), (0.001, 5, 1), (1.0, 7, 7)]
)
def test_a_density_is_rounded_up(density: float, numel: int, count: int) -> None:
    assert count_of(density, numel) == count
