"""Time to equal loss: a transformer trained over 1 Gbit/s links, by hooks and recipes side by side.

Four hosts with a rank each and a link of 1 Gbit/s each; the task is the demo's language model. How many windows a rank
reads in a step decides how long it computes, so communication takes about half, twice and five times as long as that
(what it really is stands in the table: Gloo's step over a step without communication). Every way trains from the
same seeds with the same rate; held-out loss is counted between steps, off the clock. The mark is Gloo's loss of that
seed at the end of its run, plus what seeds differ; a way's time is the sum of its steps until its loss is at the mark.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.collectives.world import DLCP, GLOO, Backend, Place, Ranks
from bench.report import Figure, Report, in_turn, slowest, spread
from dlcp.lab import Lab

SUMMARY = (
    "a transformer at 1 Gbit/s until it is as good as Gloo's: fp16, PowerSGD, dlcp exact, dlcp low_bit beside"
)
NEEDS_LAB = True
NEEDS_PROGRAMS = False
WORLD, RATE_BPS = 4, 10**9
WIDTH, CONTEXT = 192, 64
# Windows per rank and step, for communication of about half, twice and five times the computation.
WINDOWS = {"five times": 2, "twice": 8, "half": 28}
STEPS, LONGEST, EVALUATE_EVERY, WARMUP_STEPS = 150, 1.3, 15, 10
LEARNING_RATE = 2e-3
# Of the run, PowerSGD is dense; torch's default of 1000 steps is longer than the run.
POWERSGD_DENSE = 0.05
OVER_GLOO, OVER_FP16, OVER_POWERSGD = 3.0, 1.8, 1.2


@dataclass(frozen=True)
class Way:
    """How gradients travel: a backend and what is hooked into DDP."""

    label: str
    backend: Backend
    hook: str = ""
    """"fp16", "powersgd", the name of a recipe, or "": none."""
    bucket_mb: float = 25.0


WAYS = (
    Way("Gloo", GLOO),
    Way("Gloo, fp16 hook", GLOO, "fp16"),
    # With several buckets it hangs (torch 2.13): its callbacks wait for each other's collectives on Gloo's threads.
    Way("Gloo, PowerSGD rank 2", GLOO, "powersgd", bucket_mb=1000.0),
    Way("dlcp exact", DLCP),
    Way("dlcp, PowerSGD rank 2", DLCP, "powersgd"),
    Way("dlcp low_bit, int4", DLCP, "low_bit"),
)
BASE, FP16, POWER_GLOO, EXACT, POWER_DLCP, LOW_BIT = (way.label for way in WAYS)


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


def run(*, quick: bool) -> Report:
    seeds = 1 if quick else 3
    windows = {"twice": WINDOWS["twice"]} if quick else WINDOWS
    steps = STEPS // 3 if quick else STEPS
    found: dict[tuple[str, str], list[list[Trained]]] = {}
    with TemporaryDirectory() as folder, Ranks() as ranks, Lab(hosts=WORLD, rate_bps=RATE_BPS) as lab:
        from dlcp.train.data import prepare

        data, place = prepare("language", Path(folder)), Place.of_lab(lab, WORLD)
        for seed in range(seeds):
            cases = {(share, way.label): (way, count) for share, count in windows.items() for way in WAYS}

            def measure(case: tuple[Way, int], seed: int = seed) -> list[Trained]:
                way, count = case
                return ranks.run(train, place, way.backend, str(data), way, count, steps, seed, timeout_s=600)

            for key, runs in in_turn(1, cases, measure).items():
                found.setdefault(key, []).extend(runs)
    return _judge(found, {"seeds": seeds, "steps": steps, "rate": "1 Gbit/s a link"})


def train(data: str, way: Way, windows: int, steps: int, seed: int) -> Trained:
    """On a rank: the run, its steps timed."""
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from dlcp.train.tasks import Language, Transformer

    class Wide(Language):
        batch = windows * WORLD
        context = CONTEXT
        test_windows = 384

        def model(self) -> torch.nn.Module:
            return Transformer(context=self.context, width=WIDTH)

    torch.manual_seed(seed)
    task = Wide(np.load(data), seed=seed, rank=dist.get_rank(), world_size=dist.get_world_size())
    model = DistributedDataParallel(task.model(), bucket_cap_mb=way.bucket_mb)
    _register(model, way.hook, steps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))

    def step_s(number: int, module: torch.nn.Module) -> float:
        start_s = time.perf_counter()
        optimizer.zero_grad()
        task.loss(module, number).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return time.perf_counter() - start_s

    times_s, losses = [], []
    for number in range(math.ceil(steps * LONGEST)):
        dist.barrier()
        times_s.append(step_s(number, model))
        schedule.step()
        if (number + 1) % EVALUATE_EVERY == 0:
            losses.append(_held_out(task, model.module))
    # After the run, on all ranks at once, as it is when they also communicate.
    alone = []
    for number in range(9):
        dist.barrier()
        alone.append(step_s(number, model.module))
    count = sum(parameter.numel() for parameter in model.parameters())
    return Trained(count, times_s, statistics.median(alone), losses)


def _rate(step: int, steps: int) -> float:
    """The share of the full learning rate: up, down along a cosine, and a tenth for what comes after."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return warm * max(0.1, 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / steps)))


def _register(model: Any, hook: str, steps: int) -> None:
    if hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    elif hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=max(2, int(steps * POWERSGD_DENSE))
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook:
        import dlcp.torch

        model.register_comm_hook(
            dlcp.torch.GradientState(model.module, recipe=hook), dlcp.torch.gradient_hook
        )


def _held_out(task: Any, model: Any) -> float:
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        counted = task.evaluate(model)
    dist.all_reduce(counted)
    return float(counted[0] / counted[2])


# --- what comes of it -------------------------------------------------------------------------------------------


def _judge(found: dict[tuple[str, str], list[list[Trained]]], settings: dict[str, object]) -> Report:
    parameters = next(iter(found.values()))[0][0].parameters
    report = Report("time_to_loss", settings | {"parameters": f"{parameters / 1e6:.2f} million"})
    table = report.table(
        "held-out loss; time until it is Gloo's final one, slowest rank: median (lowest–highest) over seeds",
        [
            "",
            "ms per step",
            "communication / computation",
            "final loss",
            "steps to the mark",
            "s to the mark",
        ],
    )
    steps = int(str(settings["steps"]))
    for share in dict.fromkeys(share for share, _ in found):
        marks = _marks([runs[0] for runs in found[share, BASE]], steps)
        reached: dict[str, list[tuple[int, float] | None]] = {}
        for (of_share, label), runs in found.items():
            if of_share != share:
                continue
            reached[label] = [_reach(ranks, mark) for ranks, mark in zip(runs, marks, strict=True)]
            known = [each for each in reached[label] if each is not None]
            table.add(
                f"{share}, {label}",
                spread((1e3 * statistics.median(_slowest(ranks)) for ranks in runs), 1),
                spread((_communication(ranks) for ranks in runs), 2),
                spread((ranks[0].losses[_last(steps)] for ranks in runs), 3),
                spread((each[0] for each in known), 0) if known else "never",
                spread((each[1] for each in known), 2)
                if len(known) == len(runs)
                else f"{len(known)} of {len(runs)}",
            )
        _compare(report, share, reached)
    return report


def _last(steps: int) -> int:
    """The evaluation at the end of the run proper."""
    return steps // EVALUATE_EVERY - 1


def _marks(runs: list[Trained], steps: int) -> list[float]:
    """By seed, Gloo's loss at the end, and what seeds differ, at least a hundredth."""
    ends = [each.losses[_last(steps)] for each in runs]
    return [end + max(0.01, statistics.pstdev(ends)) for end in ends]


def _slowest(ranks: list[Trained]) -> list[float]:
    return slowest(rank.times_s for rank in ranks)


def _communication(ranks: list[Trained]) -> float:
    alone_s = max(rank.alone_s for rank in ranks)
    return statistics.median(_slowest(ranks)) / alone_s - 1


def _reach(ranks: list[Trained], mark: float) -> tuple[int, float] | None:
    """Steps and seconds until the loss is at the mark; between two evaluations along a line."""
    times_s, losses = _slowest(ranks), ranks[0].losses
    for place, loss in enumerate(losses):
        if loss > mark:
            continue
        steps = (place + 1) * EVALUATE_EVERY
        if place and losses[place - 1] > loss:
            steps -= int(EVALUATE_EVERY * (mark - loss) / (losses[place - 1] - loss))
        return steps, sum(times_s[:steps])
    return None


def _compare(report: Report, share: str, reached: dict[str, list[tuple[int, float] | None]]) -> None:
    """Seed by seed, how many times as long another way takes as low_bit."""

    def times(label: str) -> Figure | None:
        pairs = zip(reached[label], reached[LOW_BIT], strict=True)
        found = [over[1] / own[1] for over, own in pairs if over is not None and own is not None]
        return Figure.of(found) if len(found) == len(reached[LOW_BIT]) else None

    for label, limit in (
        (BASE, OVER_GLOO),
        (FP16, OVER_FP16),
        (POWER_GLOO, OVER_POWERSGD),
        (POWER_DLCP, OVER_POWERSGD),
    ):
        figure = times(label)
        what = f"communication {share} of computation: time to loss, {label} / low_bit"
        if figure is None:
            report.notes.append(f"{what}: one of them did not reach the mark with every seed")
        elif share == "half":
            report.notes.append(f"{what}: {figure.show()}")
        else:
            report.at_least(limit, what, figure)
    if (exact := times(EXACT)) is not None:
        report.notes.append(
            f"communication {share} of computation: time to loss, exact / low_bit: {exact.show()}"
        )
