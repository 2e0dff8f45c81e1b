"""Marked calls of hand-written loops, and the option of a group."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.residual.rule import ResidualRule
from tests.torch import ranks
from tests.torch.gradient.test_exchange import LOSSY, OPEN, WHOLE, gradient, kept, same_on_all_ranks, total
from tests.torch.gradient.test_hook import batches, flat, net

NUMEL = 60_000


def loop(asynchronous: bool) -> int:
    """A training loop that reduces gradients itself; what this rank abandoned."""
    import dlcp.torch

    model = net()
    state = dlcp.torch.GradientState(model, verify=True, **(OPEN | {"critical": None}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in batches():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        with dlcp.torch.gradients(state):
            works = [
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=asynchronous)
                for parameter in model.parameters()
            ]
        for work in works:
            if work is not None:
                work.wait()
        optimizer.step()
        same_on_all_ranks(flat(model.parameters()))
    assert state.step == 3
    state.end_step()
    assert set(state.pipeline.marker.state_dict()["mean_squares"]) <= {
        name for name, _ in model.named_parameters()
    }
    return int(state.report()["total"]["abandoned_bytes"])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_loop_of_all_reduces(asynchronous: bool) -> None:
    assert sum(ranks.run(loop, 3, asynchronous=asynchronous, environment=LOSSY)) > 0


def results(case: str) -> None:
    """Where nothing is lost, a marked call gives what a plain one gives, in the same place."""
    import dlcp.torch

    state = dlcp.torch.GradientState(**OPEN)
    size, rank = dist.get_world_size(), dist.get_rank()
    own = gradient(NUMEL, 1)
    match case:
        case "sum":
            with dlcp.torch.gradients(state):
                dist.all_reduce(own)
            expected = total(gradient(NUMEL, 1))
        case "shape":
            own = own.view(300, 200)
            with dlcp.torch.gradients(state):
                dist.all_reduce(own)
            expected = total(gradient(NUMEL, 1)).view(300, 200)
        case "strided":
            own = own.view(300, 200).t()
            with dlcp.torch.gradients(state):
                dist.all_reduce(own)
            expected = total(gradient(NUMEL, 1)).view(300, 200).t()
        case "factor":
            with dlcp.torch.gradients(state):
                dist.all_reduce(own, op=dist._make_nccl_premul_sum(0.25))
            expected = total(gradient(NUMEL, 1)) / 4
        case "reduce_scatter":
            source, own = own, torch.empty(NUMEL // size)
            with dlcp.torch.gradients(state):
                dist.reduce_scatter_tensor(own, source, op=dist.ReduceOp.AVG)
            assert torch.equal(source, gradient(NUMEL, 1))
            expected = total(source).chunk(size)[rank] / size
        case "max":
            with dlcp.torch.gradients(state):
                dist.all_reduce(own, op=dist.ReduceOp.MAX)
            expected = gradient(NUMEL, 1)
            dist.all_reduce(expected, op=dist.ReduceOp.MAX)
            assert state.step == 0
        case "integers":
            own, expected = torch.arange(9), torch.arange(9) * size
            with dlcp.torch.gradients(state):
                dist.all_reduce(own)
        case "future":
            with dlcp.torch.gradients(state):
                (own,) = dist.all_reduce(own, async_op=True).get_future().wait()
            expected = total(gradient(NUMEL, 1))
    torch.testing.assert_close(own, expected, rtol=1e-6, atol=1e-5)
    state.end_step()
    assert state.step == (0 if case in ("max", "integers") else 1)


CASES = ["sum", "shape", "strided", "factor", "reduce_scatter", "max", "integers", "future"]


@pytest.mark.parametrize("case", CASES)
def test_a_marked_call_gives_what_a_plain_one_gives(case: str) -> None:
    ranks.run(results, 2, case=case, environment=WHOLE)


def named() -> None:
    """Residuals wait under the names and layouts that were given; calls outside are exact."""
    import dlcp.torch

    state = dlcp.torch.GradientState(residual=ResidualRule(decay=1.0), **OPEN)
    layout = Layout.of([("first", NUMEL // 2), ("second", NUMEL // 2)])
    inputs = torch.zeros(NUMEL, dtype=torch.float64)
    applied = torch.zeros(NUMEL, dtype=torch.float64)
    for step in range(3):
        buffer = gradient(NUMEL, step)
        inputs += buffer
        if step == 1:
            for name, half in zip(("first", "second"), buffer.chunk(2), strict=True):
                with dlcp.torch.gradients(state, name=name):
                    dist.all_reduce(half)
            state.end_step()
        else:
            with dlcp.torch.gradients(state, layout=layout, ends_step=True):
                dist.all_reduce(buffer)
        same_on_all_ranks(buffer)
        applied += buffer
        plain = gradient(NUMEL, step)
        expected = total(plain)
        dist.all_reduce(plain)
        assert torch.equal(plain, expected)
    state.end_step()
    missing = total(inputs) - applied - total(kept(state, layout))
    assert float(missing.abs().max()) < 1e-4


def test_residuals_wait_under_the_names_given() -> None:
    ranks.run(named, 2, environment=LOSSY)


def numbered() -> list[str]:
    import dlcp.torch

    state = dlcp.torch.GradientState(**OPEN)
    for step in range(2):
        with dlcp.torch.gradients(state):
            for _ in range(3):
                dist.all_reduce(gradient(NUMEL, step))
    state.end_step()
    return sorted(state.pipeline.marker.state_dict()["mean_squares"])


def test_calls_without_names_are_numbered_in_their_step() -> None:
    assert (
        ranks.run(numbered, 2, environment=WHOLE) == [[f"call {index} of {NUMEL}" for index in range(3)]] * 2
    )


def grouped(given: str) -> int:
    """The group's option: its reductions are gradients, those of other groups are not."""
    from dlcp.torch import GradientOptions, GradientState, Options

    options = GradientOptions(**OPEN)
    marked: Any = options if given == "options" else GradientState(options=options)
    group = dist.new_group(pg_options=Options(gradients=marked))
    assert dist.group.WORLD.gradients is None
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    group.gradients.follow(optimizer)
    for step in range(4):
        buffer = gradient(NUMEL, step)
        dist.all_reduce(buffer, group=group)
        same_on_all_ranks(buffer)
        optimizer.step()
    assert group.gradients.step == 4
    return int(group.gradients.report()["total"]["abandoned_bytes"])


@pytest.mark.parametrize("given", ["options", "state"])
def test_a_group_of_gradients(given: str) -> None:
    assert sum(ranks.run(grouped, 2, given=given, environment=LOSSY)) > 0


def refused() -> None:
    import dlcp.torch

    state = dlcp.torch.GradientState(**OPEN)
    layout = Layout.of([("first", 10)])
    with (
        pytest.raises(ValueError, match="name and layout are both given"),
        dlcp.torch.gradients(state, name="first", layout=layout),
    ):
        pass
    with dlcp.torch.gradients(state, name="first"):
        dist.all_reduce(torch.zeros(10))
        with pytest.raises(ValueError, match="a second tensor is reduced as first; accepted: one"):
            dist.all_reduce(torch.zeros(10))
    with (
        pytest.raises(ValueError, match="layout is of 10 elements; accepted: 11"),
        dlcp.torch.gradients(state, layout=layout),
    ):
        dist.all_reduce(torch.zeros(11))
    # The mark is gone whatever happened inside.
    plain = torch.ones(3)
    dist.all_reduce(plain)
    assert torch.equal(plain, torch.full((3,), float(dist.get_world_size())))


def test_what_cannot_be_meant_is_refused() -> None:
    ranks.run(refused, 2, environment=WHOLE)


def of_different_sizes(recipe: str) -> None:
    import dlcp.torch

    state = dlcp.torch.GradientState(recipe=recipe, small_numel=1)
    values = torch.ones(5000 - 7 * dist.get_rank())
    with pytest.raises(dlcp.errors.MismatchError), dlcp.torch.gradients(state):
        dist.all_reduce(values)


@pytest.mark.parametrize("recipe", ["low_bit", "gradientflow", "mstopk"])
def test_ranks_whose_buffers_differ_in_length_all_fail_by_name(recipe: str) -> None:
    """By less than a group of codes, which coded memory does not show."""
    ranks.run(of_different_sizes, 2, recipe=recipe)
