"""Many data-parallel trainings in lockstep, in one process: what differs between them is what the network does.

Each run has four workers, a batch for each, one set of weights. Only the way of the gradients to their owner is lossy;
the result is repaired in full, so the replicas never differ and one copy of the weights stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dlcp.study.training.arm import Arm
from dlcp.study.training.fills import Filling
from dlcp.study.training.importance import Importance
from dlcp.study.training.lockstep import Lockstep
from dlcp.study.training.network import Luck, choose, network_losses
from dlcp_sim.cosimulation.models import BLOCK
from dlcp_sim.cosimulation.tasks import open_task


@dataclass(frozen=True, slots=True)
class Run:
    task: str
    arm: Arm
    loss: float
    """The share of droppable blocks that is lost; of the transport: its budget."""
    rate: float
    """Times the task's learning rate."""
    seed: int
    rounds: float = 1.0
    """Times the task's steps."""
    again: int = 0
    """Which of runs that are alike, but for the jitter of the weights at the start."""

    @property
    def group(self) -> tuple[object, ...]:
        arm = self.arm
        return self.task, arm.fill, arm.who, arm.process, self.rounds, self.loss == 0.0

    @property
    def network_loss(self) -> float:
        """The share of blocks that the network hits.

        A critical block that it hits is sent again, so the budget is used up at budget / (1 - critical_share).
        """
        if self.arm.who != "transport":
            return self.loss
        return min(0.98, self.arm.pressure * self.loss / (1 - self.arm.critical_share))


@dataclass(frozen=True, slots=True)
class Result:
    """What a training came to."""

    held_out: float
    """Mean loss on what was kept out of the training, at the end; not finite: diverged."""
    abandoned: float
    """Share of droppable blocks that was abandoned."""


def train(runs: Sequence[Run]) -> list[Result]:
    """The results of runs of one group, in order."""
    if len({run.group for run in runs}) != 1:
        raise ValueError("runs that train together differ in what is common to a group")
    return _Lockstep(runs).run()


class _Lockstep:
    """The runs of one group, step by step."""

    def __init__(self, runs: Sequence[Run]) -> None:
        first = runs[0]
        self._first = first
        task = open_task(first.task)
        self._model = task.model
        self._steps = max(1, round(task.steps * first.rounds))
        self._trainings = Lockstep(task, [run.seed for run in runs], [run.rate for run in runs], self._steps)
        self._luck = [torch.Generator().manual_seed(1_000_003 * seed + 2) for seed in self._trainings.seeds]
        self._trainings.jitter([run.again for run in runs])
        blocks = self._model.droppable_numel // BLOCK
        self._hit_rate = torch.tensor([run.network_loss for run in runs])
        self._budget = torch.tensor([int(run.loss * blocks + 1e-9) for run in runs])
        self._filling = Filling(first.arm.fill, torch.tensor([run.arm.decay for run in runs]))
        self._importance = None
        if first.arm.who != "random":
            shares = torch.tensor([run.arm.critical_share for run in runs])
            self._importance = Importance(self._model.parameter_of_block, shares)
        self._abandoned = torch.zeros(len(runs))

    def run(self) -> list[Result]:
        for step in range(self._steps):
            gradients = self._trainings.gradients()
            mean = gradients.mean(1) if self._first.loss == 0.0 else self._through_network(gradients, step)
            self._trainings.update(mean, step)
        held_out, abandoned = self._trainings.held_out(), self._abandoned / self._steps
        return [Result(*ends) for ends in zip(held_out.tolist(), abandoned.tolist(), strict=True)]

    def _through_network(self, gradients: Tensor, step: int) -> Tensor:
        """The mean over workers [runs, numel], of what came."""
        size = self._model.droppable_numel
        sent = self._filling.compensate(gradients[..., :size], step)
        luck = Luck.draw(self._luck, size // BLOCK).of(self._trainings.row)
        abandoned = network_losses(self._first.arm.process, self._hit_rate, luck)
        if self._importance is not None:
            codes = self._importance.codes(sent)
            abandoned = choose(
                self._first.arm.who, abandoned, codes, self._importance.critical(), self._budget
            )
            self._importance.end_step()
        self._abandoned += abandoned.float().mean((1, 2))
        return torch.cat([self._filling.settle(sent, abandoned, step), gradients[..., size:].mean(1)], 1)
