"""Several trainings in lockstep in one process: one set of weights each, four workers' batches, the optimizer.

Replicas never differ, so one copy of the weights stands for all of a training. Invariant: a training is the same alone
and among others. What becomes of the gradients between `gradients` and `update` is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dlcp_sim.cosimulation.tasks import WORKERS, Task, schedule

MOMENTUM = 0.9
"""Of the optimizers: SGD's, and Adam's first."""
ADAM_SQUARES, ADAM_SMALL = 0.99, 1e-8
WEIGHT_DECAY = 0.1
"""AdamW's, times the learning rate of the step."""
NORM_MAX = 0.25
"""Of a gradient, under "clipped sgd"."""
JITTER = 1e-4
"""Of the weights at the start, in runs that are alike but for this: enough to end elsewhere by as much as chance moves
a run of one seed."""


class Lockstep:
    """Trainings of one task, step by step; they differ in seed and learning rate."""

    def __init__(self, task: Task, seeds: Sequence[int], rates: Sequence[float], steps: int) -> None:
        """`seeds`, `rates`: of each training; a rate is times the task's own. `steps`: of all of them."""
        self._task = task
        self._steps = steps
        self.seeds = sorted(set(seeds))
        """Without repetition: what is drawn, is drawn once for each."""
        self.row = torch.tensor([self.seeds.index(seed) for seed in seeds])
        """int64[trainings]: the place of each training's seed in `seeds`."""
        self._examples = [torch.Generator().manual_seed(1_000_003 * seed + 1) for seed in self.seeds]
        self.weights = torch.stack([task.model.fresh(seed) for seed in self.seeds])[self.row]
        """float32[trainings, numel]."""
        self._rate = torch.tensor([rate * task.learning_rate for rate in rates])[:, None]
        self._momentum = torch.zeros_like(self.weights)
        self._squares = torch.zeros_like(self.weights)

    def jitter(self, again: Sequence[int]) -> None:
        """Moves the weights by JITTER of themselves, in each training by its number; not where that is 0."""
        for weights, number in zip(self.weights, again, strict=True):
            if number:
                draw = torch.Generator().manual_seed(number)
                weights.mul_(1 + JITTER * torch.randn(len(weights), generator=draw))

    def gradients(self) -> Tensor:
        """float32[trainings, WORKERS, numel]: of the next batches."""
        batches = [self._task.batch(draw) for draw in self._examples]
        inputs = torch.stack([batch[0] for batch in batches])[self.row].flatten(0, 1)
        answers = torch.stack([batch[1] for batch in batches])[self.row].flatten(0, 1)
        flat = self.weights.repeat_interleave(WORKERS, 0).requires_grad_()
        losses = self._task.model.losses(flat, inputs, answers)
        (gradients,) = torch.autograd.grad(losses.sum(), flat)
        return gradients.view(len(self.weights), WORKERS, -1)

    def update(self, mean: Tensor, step: int) -> None:
        """One step of the optimizer with `mean` [trainings, numel], as torch.optim's SGD, Adam and AdamW have it."""
        share = schedule(step, self._steps)
        kind = self._task.optimizer
        if kind == "clipped sgd":
            norm = torch.linalg.vector_norm(mean, dim=1, keepdim=True)
            clipped = mean * (NORM_MAX / (norm + 1e-6)).clamp(max=1.0)
            self.weights.addcmul_(clipped, self._rate, value=-share)
            return
        if kind in ("sgd", "nesterov"):
            self._momentum.mul_(MOMENTUM).add_(mean)
            change = self._momentum if kind == "sgd" else mean + MOMENTUM * self._momentum
            self.weights.addcmul_(change, self._rate, value=-share)
            return
        if kind == "adamw":
            self.weights.mul_(1 - share * WEIGHT_DECAY * self._rate)
        self._momentum.lerp_(mean, 1 - MOMENTUM)
        self._squares.mul_(ADAM_SQUARES).addcmul_(mean, mean, value=1 - ADAM_SQUARES)
        first, second = 1 - MOMENTUM ** (step + 1), 1 - ADAM_SQUARES ** (step + 1)
        change = self._momentum / (self._squares.div(second).sqrt_().add_(ADAM_SMALL))
        self.weights.addcmul_(change, self._rate, value=-share / first)

    def held_out(self) -> Tensor:
        """float32[trainings]: mean loss on what was kept out."""
        inputs, answers = self._task.held_out()
        trainings = len(self.weights)
        with torch.no_grad():
            return self._task.model.losses(
                self.weights,
                inputs.expand(trainings, *inputs.shape),
                answers.expand(trainings, *answers.shape),
            )
