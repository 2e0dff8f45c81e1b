"""Time to accuracy: a small model, trained by workers whose gradients cross the simulated network.

    curves = time_to_accuracy("mlp", ds.Star(8, rate_bps=1e9, delay_s=2e-6), workers=8,
                              configurations=[Exact(), Bounded(loss_ratio=0.1), Baseline(transport=ds.Dctcp())])
    print(table(curves))

Tasks (tasks.py) are small: data from seeds, the same examples for every configuration. A step takes the
workers' `compute_s`, then what the network takes; nothing overlaps. All replicas hold the same bits, so that one copy
of the weights stands for all. Needs torch, and scikit-learn for digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from dlcp.errors import ArgumentError
from dlcp.units import aligned, duration
from dlcp_sim.cosimulation.configurations import Bounded, Configuration, Exact, Layer, Place
from dlcp_sim.cosimulation.tasks import TASKS, WORKERS, Task, open_task, schedule

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.faults import Fault
    from dlcp_sim.workloads.load import Workload

MOMENTUM = 0.9
ADAM_SQUARES, ADAM_SMALL = 0.99, 1e-8
TARGET_SHARE = 0.9
"""Times are compared at this share of the descent from the first loss to the best one that all configurations reach."""


@dataclass(frozen=True)
class Curve:
    """One configuration's training."""

    title: str
    time_s: np.ndarray
    """Simulated seconds at which the held-out loss was looked at."""
    loss: np.ndarray
    steps: int
    network_s: float
    """Spent waiting for the network, of all time."""
    abandoned_share: float
    """Of the bytes on their way to be added."""
    step: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def total_s(self) -> float:
        """When it ended."""
        return float(self.time_s[-1])

    def time_to(self, loss: float) -> float:
        """When the held-out loss was first at or below `loss`, on a line between two looks; inf: never."""
        below = np.flatnonzero(self.loss <= loss)
        if len(below) == 0:
            return math.inf
        at = int(below[0])
        if at == 0:
            return float(self.time_s[0])
        share = (self.loss[at - 1] - loss) / (self.loss[at - 1] - self.loss[at])
        return float(self.time_s[at - 1] + share * (self.time_s[at] - self.time_s[at - 1]))


def time_to_accuracy(
    task: str,
    fabric: Fabric,
    *,
    configurations: Sequence[Configuration] | None = None,
    workers: int = WORKERS,
    steps: int | None = None,
    compute_s: float = 1e-3,
    looks: int = 20,
    policy: Policy | None = None,
    background: Workload | None = None,
    network_faults: Sequence[Fault] = (),
    seed: int = 1,
) -> list[Curve]:
    """Trains `task` once per configuration on the first `workers` hosts; the held-out loss by simulated time.

    `task`: "mlp", "cnn" or "transformer". `steps`: None: as many as the task asks for. `compute_s`: forward and
    backward of one worker's batch. The rest is the network's, as SimulatedGroup has it.
    """
    if task not in TASKS:
        raise ArgumentError(f"task is {task!r}; accepted: {', '.join(TASKS)}")
    if not 2 <= workers <= fabric.hosts:
        raise ArgumentError(f"workers is {workers}; accepted: 2 to {fabric.hosts}, the fabric's hosts")
    if steps is not None and steps < 1:
        raise ArgumentError(f"steps is {steps}; accepted: 1 or more")
    if not 0 <= compute_s < math.inf:
        raise ArgumentError(f"compute_s is {compute_s}; accepted: 0 or more")
    place = Place(
        fabric=fabric,
        workers=workers,
        policy=policy,
        background=background,
        network_faults=network_faults,
        seed=seed,
    )
    opened = open_task(task)
    count = opened.steps if steps is None else steps
    # Models this small gain nothing from threads, and lose much where others want the processor.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            _train(configuration, place, opened, count, compute_s, looks, seed)
            for configuration in (configurations if configurations is not None else (Exact(), Bounded()))
        ]
    finally:
        torch.set_num_threads(threads)


def _train(
    configuration: Configuration,
    place: Place,
    task: Task,
    steps: int,
    compute_s: float,
    looks: int,
    seed: int,
) -> Curve:
    model = task.model
    begins = np.cumsum([0] + [parameter.numel for parameter in model.parameters])
    layers = [
        Layer(int(begin), parameter.numel, parameter.droppable)
        for begin, parameter in zip(begins, model.parameters, strict=False)
    ]
    exchange = configuration.open(place, layers)
    weights = model.fresh(seed)[None]
    optimizer = _Optimizer(task, weights)
    examples = torch.Generator().manual_seed(1_000_003 * seed + 1)
    now_s, network_s, abandoned = 0.0, 0.0, 0.0
    at = sorted({round(i * steps / looks) for i in range(looks + 1)})
    seen = [(0, 0.0, _held_out(task, weights))]
    for step in range(steps):
        gradients = _gradients(task, weights, place.workers, examples)
        now_s += compute_s
        out = exchange(gradients, now_s)
        now_s += out.network_s
        network_s += out.network_s
        abandoned += out.abandoned_share
        optimizer.step(torch.from_numpy(out.mean)[None], schedule(step, steps), step)
        if step + 1 in at:
            seen.append((step + 1, now_s, _held_out(task, weights)))
    step_at, time_s, loss = (np.array(column) for column in zip(*seen, strict=True))
    return Curve(configuration.title, time_s, loss, steps, network_s, abandoned / steps, step_at)


def _gradients(task: Task, weights: torch.Tensor, workers: int, draw: torch.Generator) -> np.ndarray:
    """float32[workers, elements]: each worker's mean over a batch of its own."""
    batches = [task.batch(draw) for _ in range(-(-workers // WORKERS))]
    inputs = torch.cat([batch[0] for batch in batches])[:workers]
    answers = torch.cat([batch[1] for batch in batches])[:workers]
    flat = weights.repeat_interleave(workers, 0).requires_grad_()
    losses = task.model.losses(flat, inputs, answers)
    (gradients,) = torch.autograd.grad(losses.sum(), flat)
    return gradients.numpy()


def _held_out(task: Task, weights: torch.Tensor) -> float:
    inputs, answers = task.held_out()
    with torch.no_grad():
        return float(task.model.losses(weights, inputs[None], answers[None])[0])


class _Optimizer:
    """SGD with momentum or Adam, as the study has them, in place."""

    def __init__(self, task: Task, weights: torch.Tensor) -> None:
        self._task, self._weights = task, weights
        self._momentum = torch.zeros_like(weights)
        self._squares = torch.zeros_like(weights)

    def step(self, mean: torch.Tensor, share: float, step: int) -> None:
        rate = self._task.learning_rate * share
        if self._task.optimizer == "sgd":
            self._momentum.mul_(MOMENTUM).add_(mean)
            self._weights.add_(self._momentum, alpha=-rate)
            return
        self._momentum.lerp_(mean, 1 - MOMENTUM)
        self._squares.mul_(ADAM_SQUARES).addcmul_(mean, mean, value=1 - ADAM_SQUARES)
        first, second = 1 - MOMENTUM ** (step + 1), 1 - ADAM_SQUARES ** (step + 1)
        change = self._momentum / (self._squares.div(second).sqrt_().add_(ADAM_SMALL))
        self._weights.add_(change, alpha=-rate / first)


def target_loss(curves: Sequence[Curve]) -> float:
    """A held-out loss that every configuration has reached, most of the way down."""
    start = max(float(curve.loss[0]) for curve in curves)
    reached = max(float(curve.loss.min()) for curve in curves)
    return start + TARGET_SHARE * (reached - start)


def table(curves: Sequence[Curve], loss: float | None = None) -> str:
    """Times to a held-out loss and to the end, relative to the first configuration. `loss` None: one that all reach."""
    target = target_loss(curves) if loss is None else loss
    rows = [["", "final loss", f"to loss {target:.3f}", "", "whole run", "network", "abandoned"]]
    first = curves[0].time_to(target)
    for curve in curves:
        reached = curve.time_to(target)
        rows.append(
            [
                curve.title,
                f"{curve.loss[-1]:.4f}",
                duration(reached) if math.isfinite(reached) else "never",
                f"{first / reached:.2f} x" if math.isfinite(reached) and reached > 0 else "",
                duration(curve.total_s),
                f"{100 * curve.network_s / curve.total_s:.1f} %" if curve.total_s else "",
                f"{100 * curve.abandoned_share:.2f} %",
            ]
        )
    return "\n".join(aligned(rows))
