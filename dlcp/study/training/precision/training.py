"""Trainings with coded gradients: what is run, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dlcp.study.training.lockstep import Lockstep
from dlcp.study.training.precision.arm import Arm
from dlcp.study.training.precision.exchange import Exchange
from dlcp.study.training.precision.problems import coded_groups, open_problem
from dlcp.transport.coded import GROUP_VALUES
from dlcp_sim.cosimulation.models import Model

POINTS = 10


@dataclass(frozen=True, slots=True)
class Run:
    problem: str
    arm: Arm
    rate: float
    """Times the problem's learning rate."""
    seed: int
    rounds: float = 1.0
    """Times the problem's steps."""
    again: int = 0
    """Which of runs that are alike, but for the jitter of the weights at the start."""

    @property
    def group(self) -> tuple[object, ...]:
        """What runs that train together have in common."""
        return self.problem, self.arm, self.rounds


@dataclass(frozen=True, slots=True)
class Result:
    """What a training came to."""

    held_out: float
    """Mean loss on what was kept out of the training, at the end; not finite: diverged."""
    bits: float
    """Of a coded value, as counted, in the mean over steps and the two halves of the exchange."""
    curve: tuple[float, ...] = ()
    """As `held_out`, after each of POINTS equal parts of the steps but the last; (): not noted."""


def train(runs: Sequence[Run]) -> list[Result]:
    """The results of runs of one group, in order."""
    if len({run.group for run in runs}) != 1:
        raise ValueError("runs that train together differ in what is common to a group")
    task = open_problem(runs[0].problem)
    steps = max(1, round(task.steps * runs[0].rounds))
    trainings = Lockstep(task, [run.seed for run in runs], [run.rate for run in runs], steps)
    trainings.jitter([run.again for run in runs])
    coded = coded_groups(task.model)
    exchange = Exchange(runs[0].arm, len(coded), trainings.seeds, trainings.row)
    noted = {round(steps * point / POINTS) for point in range(1, POINTS)} - {0}
    curve = []
    for step in range(steps):
        if step in noted:
            curve.append(trainings.held_out())
        gradients = trainings.gradients()
        mean = gradients.mean(1)
        applied = exchange.mean(_groups(gradients, task.model).index_select(2, coded))
        _groups(mean, task.model).index_copy_(1, coded, applied)
        trainings.update(mean, step)
    curve.append(trainings.held_out())
    ends = zip(torch.stack(curve, 1).tolist(), exchange.bits().tolist(), strict=True)
    return [Result(held_out, bits, tuple(before)) for (*before, held_out), bits in ends]


def _groups(values: Tensor, model: Model) -> Tensor:
    """A view [..., groups, 64] of what is not of one dimension."""
    many = values[..., : model.droppable_numel]
    return many.view(*many.shape[:-1], -1, GROUP_VALUES)
