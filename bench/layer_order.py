"""Layer order across steps: a step of DistributedDataParallel beside LayerwiseOptimizer with each order, over dlcp.

The link between the two ranks is shaped so that the gradients of a step take about as long as its computation, which is
measured first: there an order has most to win. Two kinds of computation:

- *processor*: the layers are multiplied by the same two processors that also run the transport, so that what looks like
  waiting may be arithmetic that the transport has delayed;
- *accelerator*: a stand-in for one: each layer takes its time without the processor, as when a GPU is at work.

All ways run in turn in the same processes (A B C … A B C …), a few steps each. A step's time is from the beginning of
one forward to that of the next, of the slower rank; the first step of a turn, with nothing left over from one before,
is not counted. DDP has its choice of buckets: as they come, and one per layer; what is required counts against the
faster.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.collectives.world import DLCP, Place, Ranks
from bench.report import Figure, Report, progress, ratios, spread
from dlcp import _native
from dlcp.lab import Lab, tcp_fill
from dlcp.torch.layerwise import LayerwiseOptimizer
from dlcp.transport.layer_order import P3, ByteScheduler, Fifo, LayerPriority, OrderMaker

SUMMARY = "steps of DDP beside layer orders on a link that takes as long as the computation"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
SHORTER_AT_LEAST = 0.15
DDP_VARIANTS = ("DDP", "DDP, a bucket per layer")
OURS = "layer priority"
_ORDERS: dict[str, OrderMaker] = {
    "FIFO": Fifo,
    "P3": P3,
    "ByteScheduler": ByteScheduler,
    OURS: LayerPriority,
}
VARIANTS = (*DDP_VARIANTS, *_ORDERS)
# Steps at the start of a turn that are not counted.
WARM = 1
# Bytes on the wire per byte of the gradients: packets leave room for a long header and a tag, and carry a short header.
_PAYLOAD_BYTES = 1500 - 28 - _native.HEADER_BYTES - _native.TAG_BYTES
WIRE_RATIO = (1500 - 32 + 14) / _PAYLOAD_BYTES


@dataclass(frozen=True)
class Setting:
    """A model and its computation.

    `forward_s`: how long a layer's forward waits instead of computing, and backward twice as long; None: it computes.
    """

    layers: int
    width: int
    batch: int
    forward_s: float | None = None

    @property
    def gradient_bytes(self) -> int:
        return 4 * self.layers * self.width * (self.width + 1)


# Much arithmetic per byte on the processors, so that the transport takes a small share of them.
SETTINGS = {
    "processor": Setting(layers=16, width=384, batch=2048),
    "accelerator": Setting(layers=16, width=724, batch=4, forward_s=0.015),
}


@dataclass
class Turn:
    """Some steps of one way."""

    times_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    """Of this rank's process, all threads, for the whole turn."""
    wall_s: float = 0.0


@dataclass
class Account:
    """What one rank has to say."""

    turns: dict[str, list[Turn]]
    checksum: float
    """Of all parameters at the end."""


class _Wait(torch.autograd.Function):
    """Passes on what it is given, after a time; of gradients, after twice the time."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, wait_s: float) -> torch.Tensor:
        ctx.wait_s = wait_s
        time.sleep(wait_s)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(2 * ctx.wait_s)
        return gradients[0], None


class Layer(nn.Module):
    """A linear layer that takes its time."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.linear = nn.Linear(setting.width, setting.width)
        self.wait_s = setting.forward_s

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        result = torch.relu(self.linear(batch))
        # Behind the layer: then backward waits before it makes the layer's gradient.
        return result if self.wait_s is None else _Wait.apply(result, self.wait_s)


def model_of(setting: Setting) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(Layer(setting) for _ in range(setting.layers)))


def batch_of(setting: Setting) -> torch.Tensor:
    generator = torch.Generator().manual_seed(dist.get_rank())
    return torch.randn(setting.batch, setting.width, generator=generator)


def compute(setting: Setting, seconds: float) -> float:
    """The median step without communication, all ranks at once."""
    model = model_of(setting)
    one = OrderVariant(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), batch_of(setting))
    dist.barrier()
    times_s: list[float] = []
    while sum(times_s) < seconds or len(times_s) < 5:
        begin_s = time.perf_counter()
        one.step()
        times_s.append(time.perf_counter() - begin_s)
    return statistics.median(times_s[1:])


def train(setting: Setting, turns: int, steps: int) -> Account:
    """Every way in turn, `turns` times, `steps` counted steps each."""
    variants = {name: _make(name, setting) for name in VARIANTS}
    found: dict[str, list[Turn]] = {name: [] for name in VARIANTS}
    for variant in variants.values():
        # DDP lays its buckets out anew after the first step; ours traces the first forward.
        for _ in range(2):
            variant.step()
        variant.end()
    for _ in range(turns):
        for name, variant in variants.items():
            found[name].append(_turn(variant, steps))
    checksum = sum(
        float(one.detach().double().sum())
        for variant in variants.values()
        for one in variant.model.parameters()
    )
    return Account(found, checksum)


class OrderVariant:
    """One way to train the model."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        self.model = model
        self.optimizer = optimizer
        self._batch = batch

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = (self.model(self._batch) - self._batch).square().mean()
        loss.backward()
        self.optimizer.step()

    def end(self) -> None:
        """Makes what is left over of the last step, on all ranks."""
        synchronize: Callable[[], None] = getattr(self.optimizer, "synchronize", lambda: None)
        synchronize()
        dist.barrier()


def _make(name: str, setting: Setting) -> OrderVariant:
    model: nn.Module = model_of(setting)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if name in _ORDERS:
        optimizer = LayerwiseOptimizer(optimizer, model, order=_ORDERS[name])
    elif name == DDP_VARIANTS[0]:
        model = DistributedDataParallel(model)
    else:
        layer_mb = setting.gradient_bytes / setting.layers / (1 << 20)
        model = DistributedDataParallel(model, bucket_cap_mb=layer_mb)
    return OrderVariant(model, optimizer, batch_of(setting))


def _turn(variant: OrderVariant, steps: int) -> Turn:
    turn = Turn()
    dist.barrier()
    cpu_s, begin_s = time.process_time(), time.perf_counter()
    marks_s = [begin_s]
    for _ in range(WARM + steps):
        variant.step()
        marks_s.append(time.perf_counter())
    variant.end()
    turn.wall_s = time.perf_counter() - begin_s
    turn.cpu_s = time.process_time() - cpu_s
    turn.times_s = [end - begin for begin, end in zip(marks_s[WARM:], marks_s[WARM + 1 :], strict=False)]
    return turn


def run(*, quick: bool) -> Report:
    turns, steps = (2, 4) if quick else (4, 5)
    report = Report("layer_order", {"turns": turns, "steps each": steps})
    with Ranks() as ranks:
        for kind, setting in SETTINGS.items():
            progress(f"{kind}: computation alone")
            alone_s = max(ranks.run(compute, Place.loopback(2), DLCP, setting, 3.0))
            rate_bps = round(8 * setting.gradient_bytes * WIRE_RATIO / alone_s / 1e6) * 10**6
            with Lab(rate_bps=rate_bps) as lab:
                report.fills[kind] = tcp_fill.measure(lab)
                progress(f"{kind}: {rate_bps / 1e6:.0f} Mbit/s")
                accounts = ranks.run(train, Place.of_lab(lab, 2), DLCP, setting, turns, steps, timeout_s=900)
                drops = lab.queue_drops()
            judge(report, kind, setting, alone_s, rate_bps, accounts)
            report.notes.append(f"{kind}: dropped at full queues of the link: {drops} packets")
    progress("")
    return report


def judge(
    report: Report, kind: str, setting: Setting, alone_s: float, rate_bps: int, accounts: list[Account]
) -> None:
    """Adds what one kind of computation showed."""
    wire_s = 8 * setting.gradient_bytes * WIRE_RATIO / rate_bps
    table = report.table(
        f"{kind}: {setting.layers} layers, {setting.gradient_bytes / 1e6:.1f} MB of gradients; computation alone"
        f" {alone_s * 1e3:.0f} ms, gradients alone at least {wire_s * 1e3:.0f} ms at {rate_bps / 1e6:.0f} Mbit/s",
        ["", "steps", "ms per step", "longest", "over DDP", "processors busy"],
    )
    best = [
        min(_turn_s(accounts, variant, turn) for variant in DDP_VARIANTS)
        for turn in range(len(accounts[0].turns[OURS]))
    ]
    for variant in VARIANTS:
        steps = _each(accounts, variant, lambda turn: turn.times_s)
        medians = [_turn_s(accounts, variant, turn) for turn in range(len(best))]
        busy = [sum(account.turns[variant][turn].cpu_s for account in accounts) for turn in range(len(best))]
        walls = [
            max(account.turns[variant][turn].wall_s for account in accounts) for turn in range(len(best))
        ]
        table.add(
            variant,
            str(sum(len(times) for times in steps)),
            spread((1e3 * median for median in medians), 0),
            f"{1e3 * max(max(times) for times in steps):.0f}",
            ratios(medians, best),
            f"{ratios(busy, walls).show(2)} of {os.cpu_count()}",
        )
        if variant == OURS:
            saved = Figure.of(1 - own / ddp for own, ddp in zip(medians, best, strict=True))
            report.at_least(SHORTER_AT_LEAST, f"{kind}: share of a DDP step that {OURS} saves", saved)
    if len({account.checksum for account in accounts}) > 1:
        report.notes.append(f"WRONG: {kind}: ranks ended with different parameters")


def _each(accounts: list[Account], variant: str, of: Callable[[Any], list[float]]) -> list[list[float]]:
    """By turn, the larger of the ranks' values."""
    turns = zip(*(account.turns[variant] for account in accounts), strict=True)
    return [[max(values) for values in zip(*(of(turn) for turn in ranks), strict=True)] for ranks in turns]


def _turn_s(accounts: list[Account], variant: str, turn: int) -> float:
    """The median step of one turn."""
    return Figure.of(_each(accounts, variant, lambda one: one.times_s)[turn]).median
