"""Models, optimizers and loops for the tests of LayerwiseOptimizer, and the plain loop whose bits it must have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dlcp.torch.layerwise.bucket import Bucket, buckets_of
from dlcp.transport.layer_order import LayerPriority, OrderMaker

WIDTH, STEPS = 12, 4
Optimizer = torch.optim.Optimizer


class Stack(nn.Module):
    """Layers in a row; one is large enough to travel alone, one is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 280)
        self.norm = nn.LayerNorm(280)
        self.large = nn.Linear(280, 280)
        self.frozen = nn.Linear(280, 280).requires_grad_(False)
        self.last = nn.Linear(280, WIDTH, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(batch)))
        return self.last(torch.relu(self.frozen(torch.relu(self.large(hidden)))))


class Tied(nn.Module):
    """Two modules have one parameter, and one module is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.leave = nn.Linear(WIDTH, WIDTH, bias=False)
        self.leave.weight = self.enter.weight

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.leave(torch.relu(self.twice(torch.relu(self.twice(self.enter(batch))))))


class Branches(nn.Module):
    """Every rank goes its own way in every step; one branch nobody ever takes, one no rank takes in odd steps."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.branches = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.never = nn.Linear(WIDTH, WIDTH)
        self.steps = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(batch)
        rank, step = dist.get_rank(), self.steps
        self.steps += self.training
        taken = [(rank + step) % 3, (rank + 2 * step + 1) % 3, *([3] if step % 2 == 0 else [])]
        if rank % 2:
            taken.reverse()
        return sum((self.branches[index](hidden) for index in taken), start=hidden)


class Attention(nn.Module):
    """Uses parameters of modules whose forward is never called, and all of them so in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layer(batch.unsqueeze(1) * self.scale).squeeze(1)


class Images(nn.Module):
    """A gradient that is not contiguous, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8 * WIDTH, WIDTH)
        self.to(memory_format=torch.channels_last)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        image = batch.view(-1, 1, WIDTH, 1).expand(-1, 3, -1, 1).contiguous(memory_format=torch.channels_last)
        return self.last(torch.relu(self.norm(self.conv(image))).flatten(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "stack": Stack,
    "tied": Tied,
    "branches": Branches,
    "attention": Attention,
    "images": Images,
    "halves": lambda: Stack().bfloat16(),
}
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


def made(name: str) -> nn.Module:
    """A model, the same on all ranks."""
    torch.manual_seed(7)
    return MODELS[name]()


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Parameters in two groups of different settings."""
    parameters = list(model.parameters())
    return [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.02}]


def batches(model: nn.Module, steps: int = STEPS, seed: int = 0) -> Iterator[torch.Tensor]:
    """This rank's."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        yield torch.randn(4, WIDTH, generator=generator).to(dtype)


class PlainAverage:
    """What the plain loop does between backward() and step(): averages every gradient over the ranks.

    In the same pieces as LayerwiseOptimizer does: which rank adds what first depends on where a value lies in a
    collective, so that from three ranks on the last bit depends on the pieces.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, order: OrderMaker = LayerPriority) -> None:
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._buckets = buckets_of(model, trained)
        self._order = order

    def __call__(self) -> None:
        for bucket in self._buckets:
            self._average(bucket)

    def _average(self, bucket: Bucket) -> None:
        used = torch.tensor(
            [parameter.grad is not None for parameter in bucket.parameters], dtype=torch.uint8
        )
        dist.all_reduce(used, dist.ReduceOp.MAX)
        gradients = [
            torch.zeros(one.shape, dtype=one.dtype) if one.grad is None else one.grad
            for one in bucket.parameters
        ]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        for piece in self._order([bucket.nbytes]).slices:
            begin, count = piece.offset // flat.element_size(), piece.nbytes // flat.element_size()
            dist.all_reduce(flat[begin : begin + count], dist.ReduceOp.AVG)
        averages = torch.split(flat, [parameter.numel() for parameter in bucket.parameters])
        for parameter, average, anybody in zip(bucket.parameters, averages, used, strict=True):
            parameter.grad = average.view(parameter.shape).clone() if anybody else None


def train(
    model: nn.Module,
    optimizer: Optimizer,
    average: Callable[[], None] | None,
    *,
    zero: str = "none",
    clip: float | None = None,
) -> list[torch.Tensor]:
    """Some steps of a loop with a schedule of learning rates; losses of training and of a look in between.

    `zero`: "none" and "zero": zero_grad() before forward, to None or to zero; "after": after step(); "model": of the
    model; "never".
    """
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    seen = []
    for step, batch in enumerate(batches(model)):
        if zero in ("none", "zero"):
            optimizer.zero_grad(set_to_none=zero == "none")
        elif zero == "model":
            model.zero_grad()
        loss = (model(batch) - batch).float().square().mean()
        loss.backward()
        if average is not None:
            average()
        if clip is not None:
            parameters = [one for group in optimizer.param_groups for one in group["params"]]
            own = getattr(optimizer, "clip_grad_norm_", None)
            seen.append(own(clip) if own else torch.nn.utils.clip_grad_norm_(parameters, clip))
        optimizer.step()
        if zero == "after":
            optimizer.zero_grad()
        schedule.step()
        optimizer.param_groups[0]["weight_decay"] = 0.01 * step
        seen.append(loss.detach())
        if step == 1:
            model.eval()
            with torch.no_grad():
                seen.append(model(batch).float().sum())
            model.train()
    return seen


def same_bits(ours: Any, theirs: Any) -> None:
    """Raises AssertionError unless tensors in lists and mappings are equal, bit for bit."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def same_on_all_ranks(tensors: list[torch.Tensor]) -> None:
    """Raises AssertionError unless all ranks have the same bits."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    same_bits(others, [flat] * len(others))
