"""Tasks for small models: long enough that a loss-free run is still learning when it stops.

Everything follows from seeds, and nothing is downloaded: images come with scikit-learn, text is the source of Python's
own library, and the third task draws its examples from a teacher. Examples never repeat as they were, so that no run
ends by knowing them by heart. Runs of one seed see the same examples in the same order whatever the network loses.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from dlcp.train.data import digits, library_text
from dlcp_sim.cosimulation.models import Model, convolutional, perceptron, transformer

WORKERS = 4
# Draws what is the same for every seed: what is kept out of the training, and the teacher.
SPLIT_SEED = 8445


class Task(ABC):
    """A model, its examples, and how it is trained."""

    title: str
    model: Model
    optimizer: str
    """"sgd": with momentum 0.9; "nesterov": the same by Nesterov's rule; "clipped sgd": without momentum, and the
    gradient's norm is clipped; "adam"; "adamw". The tasks in TASKS have "sgd" or "adam"."""
    learning_rate: float
    """The middle of those that are tried."""
    steps: int
    share: int
    """Examples of a worker's batch."""
    seeds_factor: int = 1
    """Times the study's seeds, at the loss-free rate: more where chance is large against what a few rounds cost."""

    @abstractmethod
    def batch(self, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """The examples and answers of all workers in a step, [WORKERS, share, ...]."""

    @abstractmethod
    def held_out(self) -> tuple[Tensor, Tensor]:
        """Examples and answers that no run trains on, [examples, ...]: the same for all runs."""


class Teacher(Task):
    """What class a fixed random network puts a random vector in."""

    title = "multilayer perceptron, classes by a random teacher"
    optimizer = "sgd"
    learning_rate = 0.12
    steps = 300
    seeds_factor = 3
    share = 32

    def __init__(self) -> None:
        self.model = perceptron()
        draw = torch.Generator().manual_seed(SPLIT_SEED)
        self._first = torch.randn(64, 24, generator=draw) / 8.0
        self._second = torch.randn(24, 16, generator=draw)
        self._held_out = self._draw(1024, draw)

    def _draw(self, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        examples = torch.randn(count, 64, generator=draw)
        return examples, (torch.tanh(2.0 * examples @ self._first) @ self._second).argmax(1)

    def batch(self, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        examples, answers = self._draw(WORKERS * self.share, draw)
        return examples.view(WORKERS, self.share, 64), answers.view(WORKERS, self.share)

    def held_out(self) -> tuple[Tensor, Tensor]:
        return self._held_out


class Images(Task):
    """Handwritten digits, moved by up to a pixel, of changed contrast, under noise."""

    title = "convolutional network, handwritten digits moved and under noise"
    optimizer = "sgd"
    learning_rate = 0.1
    steps = 400
    seeds_factor = 2
    share = 16
    noise = 0.35

    def __init__(self) -> None:
        self.model = convolutional()
        table = digits()
        order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
        images = torch.from_numpy(table[order, :64]).reshape(-1, 8, 8)
        self._images = functional.pad(images, (1, 1, 1, 1))
        self._digits = torch.from_numpy(table[order, 64]).long()
        self._kept = len(table) // 5
        draw = torch.Generator().manual_seed(SPLIT_SEED)
        chosen = torch.arange(self._kept).repeat(3)
        self._held_out = (self._changed(chosen, draw), self._digits[chosen])

    def _changed(self, chosen: Tensor, draw: torch.Generator) -> Tensor:
        count = len(chosen)
        places = torch.arange(8)
        down = torch.randint(3, (count, 1), generator=draw) + places
        right = torch.randint(3, (count, 1), generator=draw) + places
        images = self._images[chosen[:, None, None], down[:, :, None], right[:, None, :]]
        contrast = 0.5 + torch.rand(count, 1, 1, generator=draw)
        return images * contrast + self.noise * torch.randn(count, 8, 8, generator=draw)

    def batch(self, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(self._kept, len(self._digits), (WORKERS * self.share,), generator=draw)
        examples = self._changed(chosen, draw)
        return examples.view(WORKERS, self.share, 8, 8), self._digits[chosen].view(WORKERS, self.share)

    def held_out(self) -> tuple[Tensor, Tensor]:
        return self._held_out


class Text(Task):
    """The source of Python's own library, each symbol predicted from those before it."""

    title = "transformer, Python's own library symbol by symbol"
    optimizer = "adam"
    learning_rate = 1e-2
    steps = 400
    share = 4
    context = 32
    symbols = 64

    def __init__(self) -> None:
        self.model = transformer(self.symbols, self.context)
        text = library_text()
        counts = np.bincount(text, minlength=256)
        # The most frequent bytes are symbols of their own; the last symbol stands for all others.
        code = np.full(256, self.symbols - 1)
        code[np.argsort(-counts, kind="stable")[: self.symbols - 1]] = np.arange(self.symbols - 1)
        self._keep(torch.from_numpy(code[text]))

    def _keep(self, coded: Tensor) -> None:
        """Takes int64 `coded` as the text: its last twentieth is kept out."""
        kept = len(coded) // 20
        self._text = coded[:-kept]
        draw = torch.Generator().manual_seed(SPLIT_SEED)
        self._held_out = self._windows(coded[-kept:], 96, draw)

    def _windows(self, text: Tensor, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - self.context - 1, (count, 1), generator=draw)
        windows = text[starts + torch.arange(self.context + 1)]
        return windows[:, :-1], windows[:, 1:]

    def batch(self, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        examples, answers = self._windows(self._text, WORKERS * self.share, draw)
        shape = (WORKERS, self.share, self.context)
        return examples.reshape(shape), answers.reshape(shape)

    def held_out(self) -> tuple[Tensor, Tensor]:
        return self._held_out


def words(count: int) -> Tensor:
    """int64: the words and signs of the library's source. The last number stands for all but the most frequent."""
    found = re.findall(rb"\w+|[^\w\s]", library_text().tobytes())
    frequent = [word for word, _ in Counter(found).most_common(count - 1)]
    code = {word: place for place, word in enumerate(frequent)}
    return torch.tensor([code.get(word, count - 1) for word in found])


TASKS: dict[str, type[Task]] = {"transformer": Text, "cnn": Images, "mlp": Teacher}


@cache
def open_task(name: str) -> Task:
    """The task of a model by its name in TASKS, made once."""
    return TASKS[name]()


def schedule(step: int, steps: int) -> float:
    """The share of the learning rate at a step: a twentieth of the run upwards, then down in a line to a hundredth."""
    warm = max(1, math.ceil(steps / 20))
    if step < warm:
        return (step + 1) / warm
    return 1.0 - 0.99 * (step - warm) / max(1, steps - warm)
