"""What every recipe has to keep, between real ranks: one property a test, all recipes in one world.

Gradients are whole numbers, of which every sum is exact, so that conservation is an equality. A failure names the
recipe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dlcp.torch
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.recipes.table import RECIPES
from dlcp.torch.gradient.reshard import reshard
from dlcp.torch.gradient.residual.rule import ResidualRule
from dlcp.transport.coded import group_parts
from tests.support.hosts import on_hosts
from tests.torch import ranks
from tests.torch.gradient.test_exchange import LOSSY, WHOLE, same_on_all_ranks, total
from tests.torch.gradient.test_hook import batches, flat, net

RANKS = 4
NUMEL = 4000
# A tenth of the values, so that most of them wait.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "auto": {},
    "exact": {},
    "dlcp": {"residual": ResidualRule(decay=1.0)},
    "low_bit": {"warmup_steps": 1},
    "mstopk": {"density": 0.1},
    "hitopk": {"density": 0.1},
    "redsync": {"density": 0.1, "dense_if_cheaper": False},
    "gradientflow": {"density": 0.1, "chunk_numel": 64},
}
FULL: Mapping[str, Mapping[str, Any]] = {"low_bit": {"codec": "fp16"}}
"""With these, or density 1, nothing is left out of small whole numbers."""
"""What one kept value is worth of a sum, by side."""


def test_every_recipe_is_here() -> None:
    assert set(OPTIONS) == set(RECIPES)


def state_of(recipe: str, *, scaler: Any = None, model: nn.Module | None = None, **changes: Any) -> Any:
    options = dict(OPTIONS[recipe]) | changes
    if recipe != "exact":  # which reads no such option
        options = {"small_numel": 0} | options
    return dlcp.torch.GradientState(model, recipe=recipe, scaler=scaler, **options)


def for_each_recipe(check: Callable[[str], Any], *recipes: str) -> None:
    """Runs a check of every recipe, or of some, in the world that is there."""
    for recipe in recipes or OPTIONS:
        try:
            with on_hosts([rank % 2 for rank in range(RANKS)]) if recipe == "hitopk" else nullcontext():
                check(recipe)
        except BaseException as error:
            error.add_note(f"recipe {recipe}")
            raise


def gradient(numel: int, step: int, rank: int | None = None, most: int = 400) -> torch.Tensor:
    """Whole numbers."""
    rank = dist.get_rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(-most, most, (numel,), generator=generator).float()


def layout_of(numel: int) -> Layout:
    """Two parameters of different sizes, and padding."""
    first = numel // 3
    return Layout((Segment("first", 0, 0, first), Segment("second", 0, first + 5, numel - first - 12)), numel)


def mean(state: Any, values: torch.Tensor, layout: Layout | None = None, **call: Any) -> torch.Tensor:
    """The state's mean of values over the ranks, as its caller sees it."""
    layout = layout or Layout.of([("weight", len(values))])
    return (
        exchange_of(state).all_reduce(values.clone(), layout, BufferCall(average=True, **call)).wait().clone()
    )


def kept(state: Any, layout: Layout) -> torch.Tensor:
    """What this rank keeps of each element, as parts of a sum."""
    dense = torch.zeros(layout.numel, dtype=torch.float64)
    residual = state.state_dict().get("residual")
    if residual is None:
        return dense
    where = {segment.name: segment for segment in layout.segments}
    sides = {"sender": residual} if "batches" in residual else residual
    for side in ("sender", "owner"):
        for batch in sides.get(side, {"batches": ()})["batches"]:
            values, at = batch["values"].double() * batch["factor"], 0
            runs = zip(*(batch[key].tolist() for key in ("parameter", "offset", "count")), strict=True)
            for parameter, offset, count in runs:
                begin = where[batch["names"][parameter]].begin + offset
                dense[begin : begin + count] += values[at : at + count]
                at += count
    return dense


# --- identity ---------------------------------------------------------------------------------------------------


def identical(recipe: str) -> None:
    """Where nothing is left out, the bits are those of a plain all-reduce."""
    changes = dict(FULL.get(recipe, {}))
    if "density" in OPTIONS[recipe]:
        changes["density"] = 1.0
    state = state_of(recipe, **changes)
    for step in range(3):
        values = gradient(NUMEL, step, most=50)
        expected = values.clone()
        dist.all_reduce(expected, op=dist.ReduceOp.AVG)
        assert torch.equal(mean(state, values, layout_of(NUMEL)), expected)


def test_with_nothing_left_out_it_is_the_plain_mean() -> None:
    ranks.run(for_each_recipe, RANKS, check=identical, environment=WHOLE)


def alone_or_small(recipe: str) -> None:
    """One rank, or small parameters alone: there is nothing that could be left out."""
    small = {} if dist.get_world_size() == 1 or recipe == "exact" else {"small_numel": 4096}
    state = state_of(recipe, **small)
    for step in range(2):
        values = gradient(100, step)
        assert torch.equal(mean(state, values) * dist.get_world_size(), total(values))


def test_one_rank_and_small_parameters_lose_nothing() -> None:
    for size in (1, 2):
        ranks.run(for_each_recipe, size, check=alone_or_small)


# --- conservation and agreement ---------------------------------------------------------------------------------


def conserving(recipe: str) -> None:
    # auto begins with six steps that are exact.
    layout, steps = layout_of(NUMEL), 10 if recipe == "auto" else 6
    for scattered in (False, True):
        state = state_of(recipe)
        given, applied = (torch.zeros(NUMEL, dtype=torch.float64) for _ in range(2))
        for step in range(steps):
            values = gradient(NUMEL, step)
            given += total(values.double())
            if scattered:
                pending = exchange_of(state).start_reduce_scatter(values, layout, BufferCall(average=True))
                pending.wait()
                part = NUMEL // RANKS
                own = torch.zeros(NUMEL, dtype=torch.float64)
                own[dist.get_rank() * part :][:part] = pending.result.double()
                applied += total(own) * RANKS
            else:
                result = mean(state, values, layout)
                same_on_all_ranks(result)
                applied += result.double() * RANKS
        left = total(kept(state, layout))
        assert torch.equal(given, applied + left), f"scattered: {scattered}"
        if recipe != "dlcp":  # of which the network loses something, or not
            assert bool(left.any()) == (recipe != "exact")


def test_what_goes_in_is_applied_or_kept_and_all_ranks_agree() -> None:
    ranks.run(for_each_recipe, RANKS, check=conserving, environment=LOSSY)


# --- bytes ------------------------------------------------------------------------------------------------------


def formula(recipe: str, group_bytes: int = 34) -> int:
    """Bytes that this rank sends of one float32 parameter of 64 * 60 elements. `group_bytes`: of 64 coded values."""
    numel, others = 64 * 60, RANKS - 1
    begin, end = group_parts(60, RANKS)[dist.get_rank()]
    match recipe:
        case "low_bit":
            return (60 - end + begin + (end - begin) * others) * group_bytes
        case "mstopk":
            return others * numel // 10 * 8
        case "hitopk":  # a shard to the other of two hosts
            return numel // 2 // 10 * 8
        case "redsync":
            # One count; then the mean and the indices.
            return others * (4 + 4 + numel // 10 * 4)
        case "gradientflow":
            begin, end = group_parts(6, RANKS)[dist.get_rank()]
            # The importance of 60 chunks, and a fingerprint, go to all ranks at once.
            return (6 - end + begin) * 128 + (end - begin) * 128 * others + others * (60 + 8)
        case "exact" | "auto":
            return others * numel * 4
    return 2 * others * numel * 4 // RANKS


def counted(recipe: str) -> None:
    state = state_of(recipe)
    mean(state, gradient(64 * 60, 0))
    state.end_step()
    if recipe == "low_bit":  # whose first step has 8 bits a value
        assert state.report()["last"]["total"]["value_bytes"] == formula(recipe, 66)
    if recipe in (
        "low_bit",
        "gradientflow",
    ):  # of which all chunks travel, until the ranks know which ones matter
        mean(state, gradient(64 * 60, 1))
        state.end_step()
    traffic, expected = state.report()["last"]["total"], formula(recipe)
    assert traffic["value_bytes"] == expected, (traffic, expected)
    if recipe == "low_bit":
        begin, end = group_parts(60, RANKS)[dist.get_rank()]
        assert traffic["contributed_bytes"] == (60 - end + begin) * 34


def test_bytes_are_those_of_the_formula() -> None:
    # What is chosen depends on this machine's processors.
    ranks.run(for_each_recipe, RANKS, check=counted, environment={"DLCP_ALGORITHM": "all_reduce=one_shot"})


# --- poison -----------------------------------------------------------------------------------------------------


def poisoned(recipe: str) -> None:
    """What is not finite is seen by all and not kept; zeros, ties and a single element are ordinary."""
    state = state_of(recipe)
    assert mean(state, gradient(NUMEL, 0)).isfinite().all()
    # One, and more than can travel.
    for bad, end in ((math.inf, 8), (-math.inf, 8), (math.nan, 8), (math.inf, 2000), (math.nan, 2000)):
        values = gradient(NUMEL, 1)
        if dist.get_rank() == 1:
            values[7:end] = bad
        result = mean(state, values)
        same_on_all_ranks(result)
        assert not result.isfinite().all(), bad
        for step in range(2):
            assert mean(state, gradient(NUMEL, step)).isfinite().all()
    for ordinary in (torch.zeros(NUMEL), torch.ones(NUMEL)):
        state = state_of(recipe)
        for _ in range(3):
            result = mean(state, ordinary)
            same_on_all_ranks(result)
            assert result.isfinite().all()
    single = mean(state_of(recipe), torch.full((1,), 8.0))
    same_on_all_ranks(single)
    torch.testing.assert_close(single, torch.full((1,), 8.0), rtol=0.1, atol=0.0)


def test_what_is_not_finite_is_seen_by_all_and_zeros_and_ties_are_ordinary() -> None:
    ranks.run(for_each_recipe, RANKS, check=poisoned, environment=WHOLE)


# --- what outlives a step ---------------------------------------------------------------------------------------


class Scale:
    """As much of a GradScaler as is asked."""

    value = 1024.0

    def get_scale(self) -> float:
        return self.value


def skipped(recipe: str) -> None:
    """A skipped step never was, and the scale of the loss may change."""
    # MSTopK draws among ties by the step's number.
    changes = {"selector": "largest"} if recipe in ("mstopk", "hitopk") else {}
    scaler = Scale()
    state, other = state_of(recipe, scaler=scaler, **changes), state_of(recipe, **changes)

    def step(number: int, *, overflow: bool = False) -> torch.Tensor:
        values = gradient(NUMEL, number, most=10) * scaler.value
        if overflow:
            values[3] = math.inf
        return mean(state, values, last_of_step=True) / scaler.value

    def plain(number: int) -> torch.Tensor:
        return mean(other, gradient(NUMEL, number, most=10), last_of_step=True)

    assert torch.equal(step(0), plain(0))
    assert torch.equal(step(1), plain(1))
    # Two, so that "redsync" chooses the sign that the other run chooses.
    for _ in range(2):
        step(2, overflow=True)
        scaler.value /= 2
    assert torch.equal(step(3), plain(3))
    assert torch.equal(step(4), plain(4))


def test_a_skipped_step_never_was() -> None:
    ranks.run(for_each_recipe, RANKS, check=skipped, environment=WHOLE)


def resumed(recipe: str) -> None:
    """A state that is saved and loaded goes on with the same bits; other numbers of ranks take over what was kept."""
    layout = layout_of(NUMEL)
    state = state_of(recipe)
    for step in range(3):
        mean(state, gradient(NUMEL, step), layout)
    saved, again = state.state_dict(), state_of(recipe)
    again.load_state_dict(saved)
    for step in range(3, 6):
        values = gradient(NUMEL, step)
        assert torch.equal(mean(state, values, layout), mean(again, values, layout))
    states: list[Any] = [None] * RANKS
    dist.all_gather_object(states, saved)
    mass = total(kept_of(recipe, saved, layout))
    if recipe == "hitopk":
        with pytest.raises(ValueError, match="accepted for states by hosts: 4"):
            reshard(states, 2)
    for size in (RANKS,) if recipe == "hitopk" else (1, 2, 8):
        after = sum(kept_of(recipe, each, layout) for each in reshard(states, size))
        torch.testing.assert_close(after / size, mass / RANKS)
    with pytest.raises(ValueError, match="the states' recipe is 'none'; accepted: auto"):
        reshard([saved | {"recipe": "none"}], 1)
    renamed = reshard(states, RANKS, rename={"first": "new"}.get)
    assert "'second'" not in str(renamed)
    assert "'first'" not in str(renamed)


def kept_of(recipe: str, saved: Any, layout: Layout) -> torch.Tensor:
    state = state_of(recipe)
    state.load_state_dict(saved)
    return kept(state, layout)


def test_a_saved_state_goes_on_with_the_same_bits() -> None:
    ranks.run(for_each_recipe, RANKS, check=resumed, environment=WHOLE)


# --- training ---------------------------------------------------------------------------------------------------


def losses(recipe: str) -> tuple[float, float]:
    """Of a tiny model before and after training on one batch."""
    torch.manual_seed(7)
    model = net()
    state = state_of(recipe, model=model, verify=True)
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
    wrapped.register_comm_hook(state, dlcp.torch.gradient_hook)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    found = []
    for batch in list(batches(1)) * 25:
        optimizer.zero_grad()
        loss = wrapped(batch).square().mean()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    same_on_all_ranks(flat(wrapped.parameters()))
    return found[0], found[-1]


def trained() -> None:
    before, exact = losses("exact")

    def check(recipe: str) -> None:
        first, last = losses(recipe)
        assert first == before
        assert last < 0.5 * before
        assert last < 3 * exact + 0.05 * before, (before, exact, last)

    for_each_recipe(check, *(recipe for recipe in OPTIONS if recipe != "exact"))


def test_a_model_learns_as_with_exact_gradients() -> None:
    ranks.run(trained, 2, environment=WHOLE)


# --- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recipe": "mstopkk"}, "recipe is 'mstopkk'; did you mean mstopk"),
        ({"recipe": "exact", "density": 0.1}, "density is 0.1 under recipe 'exact', which does not read it"),
        (
            {"recipe": "mstopk", "momentum": 0.9},
            "momentum is 0.9 under recipe 'mstopk', which does not read it",
        ),
        ({"recipe": "mstopk", "density": 0.0}, "density is 0.0; accepted: a number above 0"),
        ({"recipe": "mstopk", "selector": "binary"}, "selector is 'binary', which selects more or fewer"),
        ({"recipe": "redsync", "selector": "bisect"}, "selector is 'bisect'; "),
        ({"recipe": "redsync", "codec": "int4"}, "codec is 'int4'; accepted: same_sign, fp32"),
        ({"recipe": "low_bit", "codec": "same_sign"}, "codec is 'same_sign'; accepted: bf16"),
        ({"recipe": "low_bit", "selector": "largest"}, "selector is 'largest' under recipe 'low_bit'"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dlcp.torch.GradientState(**options)
