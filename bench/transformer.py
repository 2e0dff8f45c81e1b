"""A transformer that ranks train by DDP, its steps timed: the demo's language model, a way for gradients, a seed.

Held-out loss is counted between steps, off the clock. A way's time to a loss is the sum of its steps, each as long as
its slowest rank took, until the loss is there; between two evaluations along a line.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.collectives.world import Backend
from bench.report import slowest

CONTEXT = 64
EVALUATE_EVERY, WARMUP_STEPS = 15, 10
LEARNING_RATE = 2e-3
# Of the run, PowerSGD is dense; torch's default of 1000 steps is longer than the run.
POWERSGD_DENSE = 0.05


@dataclass(frozen=True)
class TrainingVariant:
    """How gradients travel: a backend and what is hooked into DDP."""

    label: str
    backend: Backend
    hook: str = ""
    """"fp16", "powersgd", the name of a recipe, or "": none."""
    bucket_mb: float = 25.0
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of the recipe."""


@dataclass(frozen=True)
class TransformerPlan:
    """What is trained, the same for every way."""

    windows: int
    """That a rank reads in a step: how long it computes."""
    steps: int
    """Over which the learning rate falls."""
    seed: int
    longest: float = 1.3
    """So many times `steps` are taken, the last of them at a tenth of the rate."""
    width: int = 192
    test_windows: int = 384
    """Held out, of all ranks together."""
    mark: float | None = None
    """A loss: who has been there ends after `steps`, or as soon as it is."""


@dataclass(frozen=True)
class Trained:
    """One rank's account of one run."""

    parameters: int
    times_s: list[float]
    """Of each step."""
    alone_s: float
    """A step without communication, median."""
    losses: list[float]
    """Held out, after each EVALUATE_EVERY steps; the same on all ranks."""
    digest: str = ""
    """Of the weights at the end: the same on all ranks."""


# --- what comes of a run ----------------------------------------------------------------------------------------


def final_loss(losses: Sequence[float], steps: int) -> float:
    """Of the evaluation at the end of the run proper."""
    return losses[steps // EVALUATE_EVERY - 1]


def marks(ends: Sequence[float]) -> list[float]:
    """By seed, the loss at the end of a dense run, and what seeds differ, at least a hundredth."""
    return [end + max(0.01, statistics.pstdev(ends)) for end in ends]


def step_times_s(ranks: Sequence[Trained]) -> list[float]:
    """What each step took: the time of its slowest rank."""
    return slowest(rank.times_s for rank in ranks)


def communication(ranks: Sequence[Trained]) -> float:
    """How many times as long as computation alone a step waits."""
    alone_s = max(rank.alone_s for rank in ranks)
    return statistics.median(step_times_s(ranks)) / alone_s - 1


def reach(times_s: Sequence[float], losses: Sequence[float], mark: float) -> tuple[int, float] | None:
    """Steps and seconds until the loss is at the mark; None: it never was."""
    for place, loss in enumerate(losses):
        if loss > mark:
            continue
        steps = (place + 1) * EVALUATE_EVERY
        if place and losses[place - 1] > loss:
            steps -= int(EVALUATE_EVERY * (mark - loss) / (losses[place - 1] - loss))
        return steps, sum(times_s[:steps])
    return None


# --- on every rank ----------------------------------------------------------------------------------------------


def train(data: str, variant: TrainingVariant, plan: TransformerPlan, running: Path | None = None) -> Trained:
    """On a rank: the run, its steps timed. `running`: a file that is there from the first step to the last."""
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from dlcp.train.tasks import Language, Transformer

    class Wide(Language):
        batch = plan.windows * dist.get_world_size()
        context = CONTEXT
        test_windows = plan.test_windows

        def model(self) -> torch.nn.Module:
            return Transformer(context=self.context, width=plan.width)

    torch.manual_seed(plan.seed)
    task = Wide(np.load(data), seed=plan.seed, rank=dist.get_rank(), world_size=dist.get_world_size())
    model = DistributedDataParallel(task.model(), bucket_cap_mb=variant.bucket_mb)
    _register(model, variant, plan.steps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, plan.steps))

    def step_s(number: int, module: torch.nn.Module) -> float:
        start_s = time.perf_counter()
        optimizer.zero_grad()
        task.loss(module, number).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return time.perf_counter() - start_s

    times_s, losses = [], []
    for number in range(math.ceil(plan.steps * plan.longest)):
        dist.barrier()
        if running is not None and dist.get_rank() == 0:
            running.touch()
        times_s.append(step_s(number, model))
        schedule.step()
        if (number + 1) % EVALUATE_EVERY == 0:
            losses.append(_held_out(task, model.module))
            if plan.mark is not None and number + 1 >= plan.steps and min(losses) <= plan.mark:
                break
    dist.barrier()
    if running is not None and dist.get_rank() == 0:
        running.unlink()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    # After the run, on all ranks at once, as it is when they also communicate.
    alone = []
    for number in range(9):
        dist.barrier()
        alone.append(step_s(number, model.module))
    count = sum(parameter.numel() for parameter in model.parameters())
    return Trained(count, times_s, statistics.median(alone), losses, digest.hexdigest())


def _rate(step: int, steps: int) -> float:
    """The share of the full learning rate: up, down along a cosine, and a tenth for what comes after."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return warm * max(0.1, 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / steps)))


def _register(model: Any, variant: TrainingVariant, steps: int) -> None:
    if variant.hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    elif variant.hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        memory = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=max(2, int(steps * POWERSGD_DENSE))
        )
        model.register_comm_hook(memory, powerSGD_hook.powerSGD_hook)
    elif variant.hook:
        import dlcp.torch

        state = dlcp.torch.GradientState(model.module, recipe=variant.hook, **variant.options)
        model.register_comm_hook(state, dlcp.torch.gradient_hook)


def _held_out(task: Any, model: Any) -> float:
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        counted = task.evaluate(model)
    dist.all_reduce(counted)
    return float(counted[0] / counted[2])
