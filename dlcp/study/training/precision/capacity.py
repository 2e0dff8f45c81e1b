"""What decides how much a rank sends in a step: a share fixed beforehand, or the network.

A link's capacity in a step is so many times the bytes of the base. The base goes over in any case; what is left of the
capacity carries refinement, up to all of it, or lets the sender use a wider code. Capacities are scaled so that the
mean is the arm's: arms of one mean send equally many bytes, whatever decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dlcp.study.training.precision.arm import Arm, Capacity, bits_of
from dlcp_sim.cosimulation.tasks import WORKERS

SIGMA = 1.0
"""Of the logarithm of a log-normal capacity, drawn anew for each rank, step and half."""
SLOW = 0.1
"""The capacity of the slow rank, both ways, of the others'."""
CROSS_TRAFFIC = 0.8
"""Of a link's capacity, taken by cross traffic while there is any: half of the time, on each rank's link for itself."""
SPELL_STEPS = 8
"""The mean length of a spell with cross traffic, and of one without."""


class Shares:
    """What each rank sends beyond the base, step by step: the same for all arms of one seed and capacity."""

    def __init__(self, arm: Arm, draws: Sequence[torch.Generator]) -> None:
        """`draws`: a generator for each seed."""
        self._arm = arm
        self._draws = draws
        self._busy = torch.stack([torch.rand(WORKERS, generator=draw) < 0.5 for draw in draws])
        self._step = 0
        self._factor = 1.0 if arm.capacity == "fixed" else _factor(arm)

    def draw(self) -> Tensor:
        """[seeds, 2, WORKERS]: what each rank sends of its contribution, and of the sum that it owns.

        float32, a share of the refinement; of an arm with wider codecs int64, which: 0 is the base.
        """
        if self._arm.capacity == "fixed":
            return torch.full((len(self._draws), 2, WORKERS), self._arm.share)
        return _sent(self._arm, self.capacities())

    def capacities(self) -> Tensor:
        """float32[seeds, 2, WORKERS]: of the links in the next step, in bases of the arm; not of a fixed share."""
        return self._relative() * self._factor

    def _relative(self) -> Tensor:
        """Capacities of this step [seeds, 2, WORKERS], without their common factor."""
        if self._arm.capacity == "log-normal":
            drawn = torch.stack([torch.randn(2, WORKERS, generator=draw) for draw in self._draws])
            return torch.exp(SIGMA * drawn)
        if self._arm.capacity == "slow rank":
            one = torch.ones(WORKERS)
            one[0] = SLOW
            return one.expand(len(self._draws), 2, WORKERS)
        if self._step:
            ends = torch.stack(
                [torch.rand(WORKERS, generator=draw) < 1 / SPELL_STEPS for draw in self._draws]
            )
            self._busy = self._busy ^ ends
        self._step += 1
        return (1 - CROSS_TRAFFIC * self._busy.float())[:, None].expand(-1, 2, -1)


def mean_times(arm: Arm, codecs: Sequence[str], steps: int = 4000) -> tuple[float, list[float]]:
    """How long half an exchange takes with the arm's capacities, and with flat codes over the same links.

    In the times that the capacities are for, in the mean over steps; a half ends when the last rank has sent. This is
    arithmetic: no network was measured. Only for arms whose capacity is not fixed.
    """
    links = Shares(arm, [torch.Generator().manual_seed(0)])
    capacities = torch.cat([links.capacities() for _ in range(steps)])
    own = _bits(arm, _sent(arm, capacities)) / bits_of(arm.codec)
    last = (1 / capacities).amax(-1).mean()
    flat = [float(bits_of(codec) / bits_of(arm.codec) * last) for codec in codecs]
    return float((own / capacities).amax(-1).mean()), flat


def _sent(arm: Arm, capacity: Tensor) -> Tensor:
    """What is sent at capacities in bases, as Shares.draw has it."""
    base = bits_of(arm.codec)
    if arm.wider:
        return sum((capacity >= bits_of(codec) / base).long() for codec in arm.wider)  # type: ignore[return-value]
    return ((capacity - 1) * base / (arm.layers * bits_of(arm.refinement))).clamp(0.0, 1.0)


def _bits(arm: Arm, sent: Tensor) -> Tensor:
    """Of a value, by what is sent."""
    if arm.wider:
        return torch.tensor([bits_of(codec) for codec in (arm.codec, *arm.wider)])[sent]
    return bits_of(arm.codec) + sent * (arm.layers * bits_of(arm.refinement))


def _factor(arm: Arm) -> float:
    """What relative capacities are to be multiplied by, so that the mean is the arm's, or the least above it."""
    sample = _sample(arm.capacity)
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = math.sqrt(low * high)
        if float(_bits(arm, _sent(arm, sample * middle)).mean()) < arm.bits - 1e-6:
            low = middle
        else:
            high = middle
    # Above it in float32 too.
    return high * (1 + 1e-6)


def _sample(capacity: Capacity) -> Tensor:
    """Relative capacities, each as often as it comes."""
    if capacity == "log-normal":
        places = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
        return torch.exp(SIGMA * torch.special.ndtri(places))
    if capacity == "slow rank":
        return torch.tensor([SLOW] + [1.0] * (WORKERS - 1), dtype=torch.float64)
    return torch.tensor([1 - CROSS_TRAFFIC, 1.0], dtype=torch.float64)
