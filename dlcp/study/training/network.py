"""What the network loses, and whom: masks of blocks for many runs at once.

The network decides how many blocks of a message are lost (`Process`); who they are is decided by the network too, or by
the sender (`choose`). Runs of one seed are given the same random numbers, so that a run with more loss loses what a run
with less loss lost, and more: what differs between two runs is the loss, not its luck.

Each worker's gradient is one message per step. Its own part is not spared, as with a parameter server apart from the
workers; with the direct all-reduce of four ranks a fourth of these losses would not occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from dlcp_sim.cosimulation.tasks import WORKERS

Process = Literal["independent", "bursty", "uneven"]
"""independent: each block for itself. bursty: a Gilbert-Elliott channel per worker, whose bad state loses all. uneven:
independent, but as much as possible on one worker's link, the rest on the next."""
PROCESSES: tuple[Process, ...] = get_args(Process)
Who = Literal["random", "least", "transport"]
"""random: whom the network hits. least: as many of each message as the network hits, but the least important.
transport: as dlcp does it: the network hits blocks at random, critical ones are sent again, and of the others the least
important are abandoned, as far as the budget goes; the rest is sent again."""

# Mean length of a burst: a fourth to a sixth of a message here.
BURST_BLOCKS = 64
# What a link of the uneven process loses at most.
UNEVEN_LOSS_MAX = 0.95


@dataclass(frozen=True, slots=True)
class Luck:
    """A step's random numbers, from 0 to 1: [runs, WORKERS, blocks] but the last, [runs, WORKERS, 1]."""

    blocks: Tensor
    start: Tensor

    @classmethod
    def draw(cls, generators: list[torch.Generator], blocks: int) -> Luck:
        drawn = torch.stack([torch.rand(WORKERS, blocks + 1, generator=draw) for draw in generators])
        return cls(drawn[..., :-1], drawn[..., -1:])

    def of(self, rows: Tensor) -> Luck:
        """Rows, chosen for the runs that share a seed."""
        return Luck(self.blocks[rows], self.start[rows])


def network_losses(process: Process, rate: Tensor, luck: Luck) -> Tensor:
    """bool[runs, WORKERS, blocks]: what the network hits at `rate` [runs], below 1."""
    if process == "independent":
        return luck.blocks < rate[:, None, None]
    if process == "uneven":
        return luck.blocks < uneven_rates(rate)[..., None]
    return _bursty(rate[:, None, None], luck)


def uneven_rates(rate: Tensor) -> Tensor:
    """[runs, WORKERS] of a mean of `rate`: one link after another is filled up to UNEVEN_LOSS_MAX."""
    before = torch.arange(WORKERS) * UNEVEN_LOSS_MAX
    filled = (WORKERS * rate[:, None] - before).clamp(0.0, UNEVEN_LOSS_MAX)
    # Above UNEVEN_LOSS_MAX nothing is left to be uneven with.
    return torch.where(rate[:, None] > UNEVEN_LOSS_MAX, rate[:, None], filled)


def _bursty(rate: Tensor, luck: Luck) -> Tensor:
    """Gilbert-Elliott: a chain of a good and a bad state along the blocks, stationary, bad for a share of `rate`.

    One number moves the chain at each block: below `worsens` it is bad, above 1 - `mends` it is good, else as before.
    So its state is what the last number that said anything said, and needs no loop.
    """
    worsens = rate / (1 - rate) / BURST_BLOCKS
    mends = torch.full_like(rate, 1 / BURST_BLOCKS)
    # A chain cannot be bad for so great a share and leave good states that seldom: then the bursts grow.
    surplus = worsens.clamp(min=1.0 - 1 / BURST_BLOCKS) / (1.0 - 1 / BURST_BLOCKS)
    worsens, mends = worsens / surplus, mends / surplus
    bad, good = luck.blocks < worsens, luck.blocks > 1 - mends
    place = torch.arange(luck.blocks.shape[-1])
    last = torch.where(bad | good, place, -1).cummax(-1).values
    said = bad.gather(-1, last.clamp(min=0))
    return torch.where(last < 0, luck.start < rate, said)


def choose(who: Who, hit: Tensor, codes: Tensor, critical: Tensor, budget: Tensor) -> Tensor:
    """bool[runs, WORKERS, blocks]: what is abandoned in the end.

    `hit`: what the network hits. `codes`: importance 0 to 255. `critical`: never abandoned by the transport. `budget`:
    int64[runs], blocks of a message that the transport may abandon.
    """
    if who == "random":
        return hit
    if who == "least":
        return _least(codes, torch.ones_like(hit), hit.sum(-1, keepdim=True))
    candidates = hit & ~critical
    count = torch.minimum(candidates.sum(-1, keepdim=True), budget[:, None, None])
    return _least(codes, candidates, count)


def _least(codes: Tensor, candidates: Tensor, count: Tensor) -> Tensor:
    """The `count` [..., 1] least important candidates of each row; of equals the earlier."""
    blocks = codes.shape[-1]
    keys = codes.long() * blocks + torch.arange(blocks)
    keys = torch.where(candidates, keys, 256 * blocks)
    ordered = keys.sort(-1).values
    last = ordered.gather(-1, (count - 1).clamp(min=0))
    return candidates & (keys <= last) & (count > 0)
