"""Whatever a model does under DistributedDataParallel: gradients made = applied + kept, per element, for every recipe.

    python -m tests.torch.gradient.test_mass_worlds --seeds 1000 --first 0 --case low_bit-int2

A seed draws a world: parameters that some ranks or all leave unused, or that are frozen on the way, shared or sparse;
several backward passes in a step, with exchange and without; steps that a scaler skips; ranks that end early (join);
DDP's options. Gradients are whole numbers, of which sums are exact.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dlcp.torch
from dlcp.torch.gradient.layout import Layout
from tests.support.hosts import on_hosts
from tests.torch import ranks
from tests.torch.gradient.test_conformance import OPTIONS, Scale, kept
from tests.torch.gradient.test_exchange import LOSSY, same_on_all_ranks, total

SEEDS = 12
CASES: Mapping[str, Mapping[str, Any]] = {
    **{name: {"recipe": name} | options for name, options in OPTIONS.items() if name != "low_bit"},
    **{
        f"low_bit-{codec}": {"recipe": "low_bit", "codec": codec, "warmup_steps": 1}
        for codec in ("int8", "int4", "int2")
    },
    "low_bit-by_hosts": {"recipe": "low_bit", "warmup_steps": 0, "by_hosts": True},
}
SHAPES = {"a": (40, 60), "b": (7, 11), "c": (30, 50), "d": (64, 64), "bias": (50,), "table": (20, 8)}


class Branches(nn.Module):
    """Its gradients are the factors that forward is given. `c` has two names, the table's gradient is sparse."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            if name != "table":
                self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.tied = self.c
        if sparse:
            self.embedding = nn.Embedding(*SHAPES["table"], sparse=True)
            self.embedding.weight.data.zero_()

    def forward(self, factors: Mapping[str, torch.Tensor], scale: float) -> torch.Tensor:
        terms = []
        for name, factor in factors.items():
            if name == "table":
                terms.append(self.embedding(torch.arange(len(factor))) * factor)
            else:
                terms.append(getattr(self, name) * factor)
            if name == "c":
                terms.append(self.tied * factor)
        return sum(term.sum() for term in terms) * scale


@dataclass
class Step:
    """Of the optimizer. `passes`: those with exchange; of each all backward passes, and of each what a rank uses."""

    passes: list[list[list[list[str]]]]
    skipped: bool = False


@dataclass
class World:
    """What a seed decides."""

    ddp: dict[str, Any]
    to_none: bool
    sparse: bool
    steps: list[Step] = field(default_factory=list)
    ends: list[int] | None = None
    """By rank, the step before which it ends early; None: none does."""
    frozen: tuple[str, int] = ("", 0)
    """A parameter, and the step from which on it is."""
    resumed: int = -1
    """The step before which the state is saved and loaded."""


def drawn(seed: int, size: int) -> World:
    rng = random.Random(seed)
    finds, joined = rng.random() < 0.75, rng.random() < 0.25
    static = not finds and rng.random() < 0.5
    world = World(
        {
            "find_unused_parameters": finds,
            "static_graph": static,
            "gradient_as_bucket_view": rng.random() < 0.4,
            "bucket_cap_mb": rng.choice([0.001, 0.02, 1.0]),
        },
        # Torch tells ranks that have ended nothing of gradients that others discard: see docs/gradients.md.
        to_none=(joined and finds) or rng.random() < 0.6,
        sparse=not joined and rng.random() < 0.3,
    )
    names = [name for name in SHAPES if name != "table"]
    rare = rng.sample(names, 3)
    for _ in range(rng.randint(4, 9)):
        several = not static and not joined and rng.random() < 0.25
        passes = []
        for _ in range(rng.randint(2, 3) if several else 1):
            backwards = []
            for _ in range(1 if static or rng.random() < 0.7 else 2):
                chance = {name: rng.choice([0.0, 0.0, 0.5, 1.0]) if name in rare else 0.9 for name in names}
                used = [
                    [n for n in names if not finds or rng.random() < chance[n]] or names for _ in range(size)
                ]
                backwards.append([each + ["table"] * world.sparse for each in used])
            passes.append(backwards)
        skipped = not several and not joined and rng.random() < 0.15
        world.steps.append(Step(passes, skipped))
    last = len(world.steps)
    if finds and rng.random() < 0.3:
        world.frozen = rng.choice(names), rng.randrange(last)
    if rng.random() < 0.2:
        world.resumed = rng.randrange(last)
    if joined:
        world.ends = [rng.randint(0, last) for _ in range(size)]
        world.ends[rng.randrange(size)] = last
    return world


def made(seed: int, place: tuple[int, ...], name: str) -> torch.Tensor:
    """A gradient of whole numbers; `place`: step, passes, rank."""
    generator = torch.Generator().manual_seed(random.Random(f"{seed} {place} {name}").getrandbits(40))
    return torch.randint(-200, 200, SHAPES[name], generator=generator).float()


def run(seed: int, options: Mapping[str, Any]) -> None:
    """One world, in the group that is there. Raises AssertionError."""
    rank, size = dist.get_rank(), dist.get_world_size()
    world, model, scaler = drawn(seed, size), Branches(drawn(seed, size).sparse), Scale()
    more = {} if options["recipe"] == "exact" else {"small_numel": 64}
    state = dlcp.torch.GradientState(model, scaler=scaler, verify=world.ends is None, **more, **options)
    wrapped = DistributedDataParallel(model, **world.ddp)
    wrapped.register_comm_hook(state, dlcp.torch.gradient_hook)
    names = {"embedding.weight" if name == "table" else name: name for name in SHAPES}
    layout = Layout.of((name, each.numel()) for name, each in model.named_parameters())
    where = {names[one.name]: slice(one.begin, one.end) for one in layout.segments}
    given, applied = (torch.zeros(layout.numel, dtype=torch.float64) for _ in range(2))
    ends = world.ends or [len(world.steps)] * size

    def step(number: int) -> None:
        this = world.steps[number]
        if number == world.resumed and world.ends is None:
            state.load_state_dict(state.state_dict())
        if number == world.frozen[1] and world.frozen[0]:
            getattr(model, world.frozen[0]).requires_grad_(False)
        wrapped.zero_grad(set_to_none=world.to_none)
        for at, backwards in enumerate(this.passes):
            for inner, used in enumerate(backwards):
                with wrapped.no_sync() if inner + 1 < len(backwards) else nullcontext():
                    mine = {name: made(seed, (number, at, inner, rank), name) for name in used[rank]}
                    loss = wrapped(mine, scaler.value)
                    if loss.requires_grad:
                        loss.backward()
        if this.skipped:
            scaler.value /= 2
            return
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                applied[where[names[name]]] += gradient.double().view(-1) / scaler.value * size
        for at, backwards in enumerate(this.passes):
            for inner, used in enumerate(backwards):
                for other in range(size):
                    for name in used[other] if number < ends[other] else ():
                        if name != world.frozen[0] or number < world.frozen[1]:
                            gradient = made(seed, (number, at, inner, other), name).double().view(-1)
                            given[where[name]] += gradient * (2 if name == "c" else 1)

    with wrapped.join() if world.ends else nullcontext():
        for number in range(ends[rank]):
            step(number)
    everybody = [torch.empty_like(applied) for _ in range(size)]
    dist.all_gather(everybody, applied)
    if not world.ends:
        same_on_all_ranks(applied)
    longest = ends.index(len(world.steps))
    givens = [torch.empty_like(given) for _ in range(size)]
    dist.all_gather(givens, given)
    missing = givens[longest] - everybody[longest] - total(kept(state, layout))
    wrong = {name: missing[place].abs().max().item() for name, place in where.items()}
    # Sums of a gradient and what was kept are rounded once, to 2^-24 of some hundreds.
    assert max(wrong.values()) < 1e-3, f"missing of {wrong}"


def run_all(case: str, first: int, seeds: int) -> int:
    """Worlds one after the other; how many held. Raises AssertionError, with the line that replays a world."""
    for seed in range(first, first + seeds):
        try:
            with on_hosts([0, 0, 1, 1]) if "hosts" in case or case == "hitopk" else nullcontext():
                run(seed, CASES[case])
        except BaseException as error:
            command = (
                f"python -m tests.torch.gradient.test_mass_worlds --first {seed} --seeds 1 --case {case}"
            )
            raise AssertionError(f"{drawn(seed, dist.get_world_size())}\n{command}: {error}") from error
    return seeds


def in_ranks(case: str, first: int, seeds: int) -> None:
    size = 4 if "hosts" in case or case == "hitopk" else 2
    environment = LOSSY if case == "dlcp" else {}
    ranks.run(
        run_all, size, case=case, first=first, seeds=seeds, environment=environment, timeout_s=100.0 + seeds
    )


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_applied_or_kept_whatever_the_model_does(case: str) -> None:
    in_ranks(case, 0, SEEDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", choices=CASES, action="append", help="may be given several times")
    arguments = parser.parse_args()
    bad = 0
    for each in arguments.case or CASES:
        try:
            in_ranks(each, arguments.first, arguments.seeds)
            print(f"{each}: {arguments.seeds} worlds", flush=True)
        except AssertionError:
            bad = 1
            traceback.print_exc()
    sys.exit(bad)
