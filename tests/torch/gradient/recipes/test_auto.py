"""The recipe auto: what ranks measured decides, and all of them decide alike."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dlcp.torch
from dlcp.torch.gradient.recipes.auto import DECIDED, EXACT, LOW_BIT, SAVING, TRIAL, _quicker
from tests.torch import ranks
from tests.torch.gradient.recipes.test_low_bit import whole_numbers
from tests.torch.gradient.test_exchange import same_on_all_ranks, total
from tests.torch.gradient.test_hook import batches, net

NUMEL = 5000


class Run:
    """Steps of one tensor, of which the clock says what each kind takes."""

    def __init__(self, step_s: dict[str, float], **options: Any) -> None:
        self.state = dlcp.torch.GradientState(small_numel=0, **options)
        self.step_s = step_s
        self.now_s = 0.0
        pipeline: Any = self.state.pipeline
        pipeline._clock_s = lambda: self.now_s

    def steps(self, count: int) -> list[bool]:
        """Whether each result was exact."""
        found = []
        for _ in range(count):
            number = self.state.step
            tensor = whole_numbers(NUMEL, number)
            with dlcp.torch.gradients(self.state, name="weight"):
                dist.all_reduce(tensor)
            same_on_all_ranks(tensor)
            found.append(torch.equal(tensor, total(whole_numbers(NUMEL, number))))
            self.state.end_step(applied=True)
            self.now_s += self.step_s[EXACT if found[-1] else LOW_BIT]
        return found


def chosen(times: list[tuple[float, float]]) -> tuple[str, bool]:
    """By what each rank measures, exact and in few bits: the choice, and whether steps are exact afterwards."""
    run = Run(dict(zip((EXACT, LOW_BIT), times[dist.get_rank()], strict=True)))
    trial = run.steps(len(TRIAL))
    assert trial == [kind == EXACT for kind in TRIAL]
    assert run.state.recipe == "auto"
    saved = run.state.state_dict()
    assert run.steps(DECIDED - len(TRIAL)) == [True]
    after = run.steps(3)
    assert len(set(after)) == 1
    kept = bool(run.state.state_dict()["residual"]["sender"]["batches"])
    assert kept == (run.state.recipe == LOW_BIT)
    again = Run(run.step_s)
    again.steps(8)  # what it has measured so far does not count any more
    again.state.load_state_dict(run.state.state_dict())
    assert again.steps(2) == after[:2]
    assert again.state.recipe == run.state.recipe
    again.state.load_state_dict(saved)
    assert again.steps(len(TRIAL)) == trial
    again.steps(2)
    assert again.state.recipe == run.state.recipe
    return run.state.recipe, after[0]


def test_few_bits_are_taken_where_they_save_time_on_the_slowest_rank_and_all_ranks_choose_alike() -> None:
    dice = random.Random(1)
    at_bar = 1 - SAVING
    for exact_s, low_s in ((2.0, 2 * at_bar - 0.01), (2.0, 2 * at_bar + 0.01), (1.0, 2.0)):
        times = [(dice.uniform(0, exact_s), dice.uniform(0, low_s)) for _ in range(3)]
        times[0] = exact_s, times[0][1]
        times[2] = times[2][0], low_s
        expected = LOW_BIT if low_s < at_bar * exact_s else EXACT
        assert ranks.run(chosen, 3, times=times) == [(expected, expected == EXACT)] * 3, times


def test_few_bits_have_to_save_time_in_both_rounds_and_the_log_says_what_was_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of two ranks, a round's time is the slower one's."""
    quick = (1.0, 0.5, 1.0, 0.6)
    with caplog.at_level("INFO", "dlcp"):
        assert _quicker(None, [quick, quick]) == LOW_BIT
    (line,) = caplog.messages
    assert line == (
        "gradients: in the round that favours few bits less, on the slowest of 2 ranks a step takes 1e+03 ms"
        " exact, 600 ms in int8: low_bit"
    )
    for odd in ((1.0, 0.5, 1.0, 0.96), (1.0, 0.99, 1.0, 0.5)):
        assert _quicker(None, [quick, odd]) == EXACT


def of_two_groups() -> list[str]:
    """All ranks, of whom the last finds few bits slow, and two of them who do not."""
    some = dist.new_group([0, 1])
    last = dist.get_rank() == 2
    run = Run({EXACT: 2.0, LOW_BIT: 3.0 if last else 1.0})

    def steps(count: int) -> list[bool]:
        found = []
        for _ in range(count):
            found += run.steps(1)
            if not last:
                tensor = whole_numbers(NUMEL, 0)
                with dlcp.torch.gradients(run.state, name="of some"):
                    dist.all_reduce(tensor, group=some)
                expected = whole_numbers(NUMEL, 0, 0) + whole_numbers(NUMEL, 0, 1)
                found.append(torch.equal(tensor, expected))
        return found

    steps(DECIDED + 2)
    after = steps(2)
    assert after == ([True] * 2 if last else [True, False] * 2)
    saved = run.state.state_dict()
    run = Run(run.step_s)
    run.state.load_state_dict(saved)
    assert steps(2) == after
    return sorted(saved["chosen"].values())


def test_groups_choose_apart_and_go_on_so() -> None:
    assert ranks.run(of_two_groups, 3) == [[EXACT, LOW_BIT], [EXACT, LOW_BIT], [EXACT]]


def trained(way: str, recipe: str | None) -> list[torch.Tensor]:
    """The parameters after a few steps by the choice, of a run in which few bits are quicker."""
    from torch.distributed.fsdp import fully_shard

    from dlcp.torch.layerwise import LayerwiseOptimizer

    model: Any = net()
    state = dlcp.torch.GradientState(model, recipe=recipe)
    if recipe is None:
        pipeline: Any = state.pipeline
        # A step of each kind takes so long.
        cost_s = {EXACT: 2.0, LOW_BIT: 1.0}
        pipeline._clock_s = lambda: sum(cost_s[kind] for kind in TRIAL[: pipeline._step + 1])
    called = model
    if way == "ddp":
        called = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
        called.register_comm_hook(state, dlcp.torch.gradient_hook)
    if way == "fsdp":
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
        dlcp.torch.shard_gradients(model, state)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.05)
    if way == "layers":
        optimizer = LayerwiseOptimizer(optimizer, model, gradients=state)
    for batch in batches(DECIDED + 3):
        optimizer.zero_grad()
        called(batch).square().mean().backward()
        optimizer.step()
    if way == "layers":
        optimizer.synchronize()
    assert state.recipe == (recipe or LOW_BIT)
    return [
        (parameter.full_tensor() if way == "fsdp" else parameter).detach().clone()
        for parameter in model.parameters()
    ]


def near_exact(way: str) -> None:
    for one, other in zip(trained(way, None), trained(way, EXACT), strict=True):
        same_on_all_ranks(one)
        assert not torch.equal(one, other) or one.dim() == 1
        torch.testing.assert_close(one, other, rtol=0.0, atol=5e-3)


@pytest.mark.parametrize("way", ["ddp", "fsdp", "layers"])
def test_each_way_in_tries_and_goes_on_with_few_bits(way: str) -> None:
    ranks.run(near_exact, 2, way=way)


def test_without_a_recipe_options_decide_which_it_is() -> None:
    assert dlcp.torch.GradientState().recipe == "auto"
    assert dlcp.torch.GradientState(small_numel=0).recipe == "auto"
    assert dlcp.torch.GradientState(loss_budget=0.1).recipe == "dlcp"
    assert dlcp.torch.GradientState(patience_s="auto").recipe == "dlcp"
    with pytest.raises(ValueError, match="loss_budget is 0.1 under recipe 'auto', which does not read it"):
        dlcp.torch.GradientState(recipe="auto", loss_budget=0.1)
    for wrong in ("fastest", {"0,1": "fastest"}):
        saved = dlcp.torch.GradientState().state_dict() | {"chosen": wrong}
        with pytest.raises(
            ValueError, match="the state has chosen .*fastest.*; accepted: 'exact' or 'low_bit'"
        ):
            dlcp.torch.GradientState().load_state_dict(saved)
