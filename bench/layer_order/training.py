"""What each rank does: train a stack of equal layers in every way in turn, and keep the time of what happens."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.layer_order.timeline import SHOWN, SKIPPED, Timeline
from dlcp.torch.layerwise import LayerwiseOptimizer
from dlcp.transport.layer_order import P3, ByteScheduler, Fifo, LayerPriority, OrderMaker

DDP_WAYS = ("DDP", "DDP, a bucket per layer")
OURS = "layer priority"
_ORDERS: dict[str, OrderMaker] = {
    "FIFO": Fifo,
    "P3": P3,
    "ByteScheduler": ByteScheduler,
    OURS: LayerPriority,
}
WAYS = (*DDP_WAYS, *_ORDERS)
# Steps at the start of a turn that are not counted.
WARM = 1


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
    timelines: dict[str, Timeline]
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
    one = Way(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), batch_of(setting))
    dist.barrier()
    times_s: list[float] = []
    while sum(times_s) < seconds or len(times_s) < 5:
        begin_s = time.perf_counter()
        one.step()
        times_s.append(time.perf_counter() - begin_s)
    return statistics.median(times_s[1:])


def train(setting: Setting, turns: int, steps: int) -> Account:
    """Every way in turn, `turns` times, `steps` counted steps each; then a few steps with a timeline."""
    ways = {name: _make(name, setting) for name in WAYS}
    found: dict[str, list[Turn]] = {name: [] for name in WAYS}
    for way in ways.values():
        # DDP lays its buckets out anew after the first step; ours traces the first forward.
        for _ in range(2):
            way.step()
        way.end()
    for _ in range(turns):
        for name, way in ways.items():
            found[name].append(_turn(way, steps))
    timelines = {name: _watched(ways[name], setting) for name in (DDP_WAYS[-1], OURS)}
    checksum = sum(
        float(one.detach().double().sum()) for way in ways.values() for one in way.model.parameters()
    )
    return Account(found, timelines, checksum)


class Way:
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


def _make(name: str, setting: Setting) -> Way:
    model: nn.Module = model_of(setting)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if name in _ORDERS:
        optimizer = LayerwiseOptimizer(optimizer, model, order=_ORDERS[name])
    elif name == DDP_WAYS[0]:
        model = DistributedDataParallel(model)
    else:
        layer_mb = setting.gradient_bytes / setting.layers / (1 << 20)
        model = DistributedDataParallel(model, bucket_cap_mb=layer_mb)
    return Way(model, optimizer, batch_of(setting))


def _turn(way: Way, steps: int) -> Turn:
    turn = Turn()
    dist.barrier()
    cpu_s, begin_s = time.process_time(), time.perf_counter()
    marks_s = [begin_s]
    for _ in range(WARM + steps):
        way.step()
        marks_s.append(time.perf_counter())
    way.end()
    turn.wall_s = time.perf_counter() - begin_s
    turn.cpu_s = time.process_time() - cpu_s
    turn.times_s = [end - begin for begin, end in zip(marks_s[WARM:], marks_s[WARM + 1 :], strict=False)]
    return turn


def _watched(way: Way, setting: Setting) -> Timeline:
    """Two steps in the middle of some, with everything that happens in them."""
    layers = [module for module in way.model.modules() if isinstance(module, Layer)]
    optimizer = way.optimizer
    communicator: Any = (
        optimizer._communicator
        if isinstance(optimizer, LayerwiseOptimizer)
        else dist.group.WORLD.communicator  # type: ignore[union-attr]
    )
    timeline = Timeline(setting.layers)
    dist.barrier()
    with timeline.watch(layers, communicator, partial(layers_of, setting)):
        for _ in range(SKIPPED + SHOWN + 1):
            timeline.mark()
            way.step()
        timeline.mark()
        way.end()
    return timeline


def layers_of(setting: Setting, label: str | None, before_bytes: int, nbytes: int) -> list[int]:
    """Which layers a message has gradients of: by its name, or, without one, by how much of backward went before."""
    if label is not None:
        return [int(label.split(".")[0])] if label[0].isdigit() else []
    layer_bytes = setting.gradient_bytes // setting.layers
    first, last = before_bytes // layer_bytes, (before_bytes + nbytes - 1) // layer_bytes
    return [setting.layers - 1 - place for place in range(first, last + 1)]
