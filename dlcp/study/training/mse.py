"""How far one aggregated tensor is from the truth when every way of aggregating loses equally much.

Each rank has a tensor of random values; wanted is the sum over ranks. Packets are lost independently, at the same rate
on every hop of every way. The published ways lose in both halves, and put zero for what is lost. One is transposed
(TAR): every rank sends a part straight to its owner, and the owner the sum straight to all. Another is a parameter
server apart from the ranks. The third is a ring, where a lost partial sum takes all earlier contributions with it and a
lost result is lost to all who come after. Ours loses in the first half alone, since the second is repaired in full:
zero, rescaled, behind a Hadamard transform, with the least important blocks abandoned in place of random ones, and with
residuals over several steps.

Errors are means over ranks and entries of the squared difference, per unit of variance of the true sum: 1 is what
knowing nothing costs. The tensor is made and measured in pieces, so memory does not grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dlcp.study.training.fills import hadamard_

BLOCK = 348
"""float32 entries of a packet of 1500 bytes."""
PIECE_BLOCKS = 752
RATES = (0.001, 0.01, 0.1)
KINDS = {"flat": 0.0, "uneven": 0.5}
"""Of values: the standard deviation of the logarithm of a block's scale, alike for all ranks. flat: all blocks alike,
as the published figures have it. uneven: as the gradients of the study of tolerance have it: there the deviation is 0.3
for the perceptron, 0.5 for the transformer, and above 1 for the convolutional network, by blocks of 64."""
STEPS = 10
# Of the entries, for what is measured over several steps: a piece costs as many tensors as steps.
STEPS_SHARE = 10

TAR, SERVER, RING = "TAR, zero", "parameter server, zero", "ring, zero"
PUBLISHED = {TAR: 2.47, SERVER: 9.92, RING: 14.55}
"""OptiReduce (NSDI 2025), a tensor of 500 M entries; unit, rate and pattern of its drops are not known to us."""
OURS = (
    "ours, zero",
    "ours, rescaled",
    "ours, Hadamard",
    "ours, least important, zero",
)
OURS_STEPS = {"zero": 0.0, "residual 0.5": 0.5, "residual 0.9": 0.9, "residual 1": 1.0}


@dataclass
class Found:
    entries: int
    ranks: int
    mse: dict[str, dict[str, dict[float, float]]] = field(default_factory=dict)
    """By kind of values, way and rate: one tensor."""
    worst: dict[str, dict[str, dict[float, float]]] = field(default_factory=dict)
    """The same of the worst block of a piece, mean over pieces."""
    steps: dict[str, dict[str, dict[float, float]]] = field(default_factory=dict)
    """By kind of values, fill and rate: of the sum over STEPS steps, blocks lost at random."""


def measure(
    *, entries: int, ranks: int, seed: int = 0, progress: Callable[[float], None] = lambda _: None
) -> Found:
    """Measures all ways, of `entries` entries or a little more."""
    found = Found(entries, ranks)
    pieces = max(1, round(entries / (BLOCK * PIECE_BLOCKS)))
    found.entries = pieces * BLOCK * PIECE_BLOCKS
    for place, (kind, deviation) in enumerate(KINDS.items()):
        draw = torch.Generator().manual_seed(seed)
        ways: dict[str, dict[float, float]] = {way: dict.fromkeys(RATES, 0.0) for way in (*PUBLISHED, *OURS)}
        worst: dict[str, dict[float, float]] = {way: dict.fromkeys(RATES, 0.0) for way in ways}
        steps: dict[str, dict[float, float]] = {fill: dict.fromkeys(RATES, 0.0) for fill in OURS_STEPS}
        piece_steps = max(1, pieces // STEPS_SHARE)
        unit = ranks * _mean_square(deviation)
        for piece in range(pieces):
            progress((place + piece / pieces) / len(KINDS))
            scales = _scales(deviation, draw)
            values = _values(ranks, scales, draw)
            for rate in RATES:
                for way, errors in _ways(values, rate, draw):
                    ways[way][rate] += errors.mean().item() / unit / pieces
                    worst[way][rate] += errors.max().item() / unit / pieces
            if piece < piece_steps:
                for rate in RATES:
                    for fill, error in _over_steps(ranks, scales, rate, draw):
                        steps[fill][rate] += error / unit / piece_steps
        found.mse[kind], found.worst[kind], found.steps[kind] = ways, worst, steps
    return found


# --- values ---------------------------------------------------------------------------------------------------


def _scales(deviation: float, draw: torch.Generator) -> Tensor:
    """[PIECE_BLOCKS, 1]."""
    return (deviation * torch.randn(PIECE_BLOCKS, 1, generator=draw)).exp()


def _mean_square(deviation: float) -> float:
    """Of an entry: that of a log-normal scale."""
    return float(torch.tensor(2.0 * deviation**2).exp())


def _values(ranks: int, scales: Tensor, draw: torch.Generator) -> Tensor:
    """[ranks, PIECE_BLOCKS, BLOCK]."""
    return torch.randn(ranks, PIECE_BLOCKS, BLOCK, generator=draw) * scales


# --- one tensor -----------------------------------------------------------------------------------------------


def _ways(values: Tensor, rate: float, draw: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Each way's mean squared error by block, mean over ranks, [PIECE_BLOCKS]."""
    ranks = len(values)
    truth = values.sum(0)
    empty = truth.square().mean(1)  # the error of whom the result does not reach

    def lost(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=draw) < rate

    def error(total: Tensor) -> Tensor:
        return (total - truth).square().mean(1)

    def both(total: Tensor, holes: Tensor) -> Tensor:
        """Of a sum that was then lost to some ranks: holes [ranks, blocks]."""
        share = holes.float().mean(0)
        return error(total) * (1 - share) + empty * share

    owner = torch.arange(PIECE_BLOCKS) % ranks
    others = torch.arange(ranks)[:, None] != owner
    sent_lost = lost(ranks, PIECE_BLOCKS) & others
    came = values * ~sent_lost[..., None]
    yield TAR, both(came.sum(0), lost(ranks, PIECE_BLOCKS) & others)
    yield "ours, zero", error(came.sum(0))
    yield "ours, rescaled", error(came.sum(0) * (ranks / (~sent_lost).sum(0))[:, None])
    yield SERVER, both((values * ~lost(ranks, PIECE_BLOCKS)[..., None]).sum(0), lost(ranks, PIECE_BLOCKS))
    yield RING, both(*_ring(values, owner, lost(2, ranks - 1, PIECE_BLOCKS)))
    # As many blocks of each rank as chance hits, but its least important; its own part is not on the way.
    squares = values.square().mean(2).masked_fill(~others, torch.inf)
    order = squares.argsort(1).argsort(1)
    least = order < sent_lost.sum(1, keepdim=True)
    yield "ours, least important, zero", error((values * ~least[..., None]).sum(0))
    spread = hadamard_(values.flatten(1)).view_as(values)
    total = (spread * ~sent_lost[..., None]).sum(0)
    yield "ours, Hadamard", error(hadamard_(total.flatten()).view_as(truth))
    hadamard_(values.flatten(1))  # and back: the transform is done in place


def _ring(values: Tensor, owner: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
    """The sum that a block's owner ends with, and whom it does not reach, [ranks, blocks]; lost: [2, hops, blocks]."""
    ranks, blocks = values.shape[:2]
    block = torch.arange(blocks)
    total = values[(owner + 1) % ranks, block]
    for hop in range(ranks - 1):
        total = total * ~lost[0, hop][:, None] + values[(owner + 2 + hop) % ranks, block]
    holes = torch.cat([torch.zeros(1, blocks, dtype=torch.bool), lost[1].cummax(0).values])
    return total, holes


# --- several steps --------------------------------------------------------------------------------------------


def _over_steps(
    ranks: int, scales: Tensor, rate: float, draw: torch.Generator
) -> Iterator[tuple[str, float]]:
    """Each fill's mean squared error of the sum over STEPS steps, per step; values are new in each step."""
    truth = torch.zeros(PIECE_BLOCKS, BLOCK)
    totals = {fill: torch.zeros_like(truth) for fill in OURS_STEPS}
    kept = {fill: torch.zeros(ranks, PIECE_BLOCKS, BLOCK) for fill in OURS_STEPS}
    others = torch.arange(ranks)[:, None] != torch.arange(PIECE_BLOCKS) % ranks
    for _ in range(STEPS):
        values = _values(ranks, scales, draw)
        abandoned = (torch.rand(ranks, PIECE_BLOCKS, generator=draw) < rate) & others
        truth += values.sum(0)
        for fill, decay in OURS_STEPS.items():
            sent = values + decay * kept[fill]
            kept[fill] = sent * abandoned[..., None]
            totals[fill] += sent.sum(0) - kept[fill].sum(0)
    for fill, total in totals.items():
        yield fill, (total - truth).square().mean().item() / STEPS
