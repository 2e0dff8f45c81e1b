"""What is trained: a model, the batches of every step and rank, and how good the model is.

Everything follows from the seed: the same weights at the start, and the same examples in the same order whatever
carries the gradients. Batches are drawn for all ranks together and each rank takes its part, so no rank needs to hear
from another which examples are its own.

The data are arrays that data.py has written; here nothing is looked for or downloaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

# Draws what is kept out of the training: the same for every seed of a run, so that their accuracies compare.
SPLIT_SEED = 8445


class Task(ABC):
    """One model and its data. Shapes are of one rank's batch."""

    learning_rate: float
    batch: int
    """Of all ranks together."""
    steps_per_epoch: int

    def __init__(self, *, seed: int, rank: int, world_size: int) -> None:
        self._seed, self._rank, self._world_size = seed, rank, world_size
        self._share = max(1, self.batch // world_size)

    @abstractmethod
    def model(self) -> nn.Module:
        """Fresh weights, drawn from torch's global generator."""

    @abstractmethod
    def loss(self, model: nn.Module, step: int) -> torch.Tensor:
        """The mean loss of this rank's batch of a step, counted over all epochs."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> torch.Tensor:
        """float64[3]: summed loss, right answers, answers, of this rank's part of what was kept out."""

    def sample(self, model: nn.Module) -> str:
        """Something for a person to look at; "" if there is nothing."""
        return ""


def open_task(model: str, data: Path, *, seed: int, rank: int, world_size: int) -> Task:
    """The task of a model by its name in plan.MODELS, over the array in `data`."""
    kinds: dict[str, type[Digits | Language]] = {"digits": Digits, "language": Language}
    return kinds[model](np.load(data), seed=seed, rank=rank, world_size=world_size)


class Digits(Task):
    """Handwritten digits, 8 × 8 pixels, by a small convolutional network."""

    learning_rate = 1.5e-3
    batch = 128

    def __init__(self, table: np.ndarray, *, seed: int, rank: int, world_size: int) -> None:
        """`table`: float32[examples, 65], the pixels from 0 to 1 and the digit."""
        super().__init__(seed=seed, rank=rank, world_size=world_size)
        order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
        images = torch.from_numpy(table[order, :64]).reshape(-1, 1, 8, 8)
        digits = torch.from_numpy(table[order, 64]).long()
        kept = len(table) // 5
        self._images, self._digits = images[kept:], digits[kept:]
        part = slice(rank, kept, world_size)
        self._test_images, self._test_digits = images[:kept][part], digits[:kept][part]
        self.steps_per_epoch = len(self._images) // (self._share * world_size)
        self._order = torch.empty(0)
        self._order_epoch = -1

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 16, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def loss(self, model: nn.Module, step: int) -> torch.Tensor:
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._order_epoch:
            draw = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            self._order = torch.randperm(len(self._images), generator=draw)
            self._order_epoch = epoch
        world = len(self._order) // self.steps_per_epoch // self._share
        start = (place * world + self._rank) * self._share
        chosen = self._order[start : start + self._share]
        return functional.cross_entropy(model(self._images[chosen]), self._digits[chosen])

    def evaluate(self, model: nn.Module) -> torch.Tensor:
        return _score(model(self._test_images), self._test_digits)


class Language(Task):
    """The bytes of Python's own library, each predicted from those before it by a small transformer."""

    learning_rate = 3e-3
    batch = 24
    context = 64
    steps_per_epoch = 50
    test_windows = 96

    def __init__(self, text: np.ndarray, *, seed: int, rank: int, world_size: int) -> None:
        """`text`: uint8[bytes]; its last twentieth is kept out of the training."""
        super().__init__(seed=seed, rank=rank, world_size=world_size)
        kept = len(text) // 20
        self._text = torch.from_numpy(text[:-kept].astype(np.int64))
        test = torch.from_numpy(text[-kept:].astype(np.int64))
        draw = torch.Generator().manual_seed(SPLIT_SEED)
        starts = torch.randint(len(test) - self.context - 1, (self.test_windows,), generator=draw)
        self._test = self._windows(test, starts[rank::world_size])

    def _windows(self, text: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return text[starts[:, None] + torch.arange(self.context + 1)]

    def model(self) -> nn.Module:
        return Transformer(context=self.context)

    def loss(self, model: nn.Module, step: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        starts = torch.randint(
            len(self._text) - self.context - 1, (self._share * self._world_size,), generator=draw
        )
        own = starts[self._rank * self._share : (self._rank + 1) * self._share]
        windows = self._windows(self._text, own)
        return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())

    def evaluate(self, model: nn.Module) -> torch.Tensor:
        if len(self._test) == 0:
            return torch.zeros(3, dtype=torch.float64)
        return _score(model(self._test[:, :-1]).flatten(0, 1), self._test[:, 1:].flatten())

    def sample(self, model: nn.Module, prompt: str = "def ", count: int = 240) -> str:
        """Text that the model writes after the prompt, drawn from a seed of its own."""
        draw = torch.Generator().manual_seed(self._seed)
        text: torch.Tensor = torch.tensor([list(prompt.encode())])
        for _ in range(count):
            answers = model(text[:, -self.context :])[:, -1]
            chances = functional.softmax(answers / 0.6, dim=-1)
            text = torch.cat([text, torch.multinomial(chances, 1, generator=draw)], dim=1)
        return bytes(text[0].tolist()).decode("utf-8", "replace")


def _score(answers: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """As `evaluate` returns it."""
    loss = functional.cross_entropy(answers, truth, reduction="sum")
    right = (answers.argmax(1) == truth).sum()
    return torch.tensor([loss.item(), right.item(), len(truth)], dtype=torch.float64)


class Transformer(nn.Module):
    """A decoder over bytes: pre-norm blocks, learned positions, the output tied to the embedding."""

    def __init__(self, *, context: int, width: int = 96, heads: int = 4, blocks: int = 3) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        for table in (self.bytes, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """int64[batch, length] to float32[batch, length, 256]."""
        state = self.bytes(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            state = block(state)
        answers: torch.Tensor = functional.linear(self.norm(state), self.bytes.weight)
        return answers


class Block(nn.Module):
    """Attention and a two-layer network, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        batch, length, width = state.shape
        parts = self.mix(self.norm1(state)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        state = state + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        more: torch.Tensor = self.down(functional.gelu(self.up(self.norm2(state))))
        return state + more
