"""What is trained: tasks of dlcp_sim.cosimulation with larger models, so that a packet is a small part of a gradient.

Parameters of one dimension, and those of fewer than EXACT_BELOW values, are exchanged exactly.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from dlcp.transport.coded import GROUP_VALUES
from dlcp_sim.cosimulation.models import (
    Model,
    convolutional,
    perceptron,
    recurrent,
    residual_convolutional,
    transformer,
)
from dlcp_sim.cosimulation.tasks import Images, Task, Teacher, Text, words

EXACT_BELOW = 1024
"""Values. What is small costs few bytes. In these models this leaves at least 97 % of the values coded."""


class PerceptronSgd(Teacher):
    """86 544 parameters."""

    steps = 400

    def __init__(self) -> None:
        super().__init__()
        self.model = perceptron(width=256)


class PerceptronAdam(PerceptronSgd):
    """The same under Adam."""

    optimizer = "adam"
    learning_rate = 8e-3


class ConvolutionalSgd(Images):
    """87 402 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.model = convolutional(width=32)


class TransformerAdam(Text):
    """118 016 parameters."""

    learning_rate = 8e-3
    share = 2
    symbols = 128

    def __init__(self) -> None:
        super().__init__()
        self.model = transformer(self.symbols, self.context, width=64)


class NarrowTransformerAdam(Text):
    """30 336 parameters."""

    share = 2
    steps = 300


class ResidualNesterov(Images):
    """33 194 parameters, with batch norm."""

    title = "residual convolutional network with batch norm, handwritten digits moved and under noise"
    optimizer = "nesterov"
    steps = 200

    def __init__(self) -> None:
        super().__init__()
        self.model = residual_convolutional()


class RecurrentClipped(Text):
    """158 080 parameters, five sixths of them the table of words."""

    title = "gated recurrent network, Python's own library word by word, one table of words at both ends"
    optimizer = "clipped sgd"
    learning_rate = 20.0
    steps = 300
    symbols = 2048
    context = 16
    width = 64

    def __init__(self) -> None:
        self.model = recurrent(self.symbols, self.width)
        self._keep(words(self.symbols))


class NarrowTransformerAdamw(NarrowTransformerAdam):
    """The same under AdamW, with a decay of 0.1."""

    optimizer = "adamw"


class LargeRecurrentClipped(RecurrentClipped):
    """10 161 584 parameters, most of them the table of words."""

    share = 2
    steps = 100
    symbols = 16_384
    width = 520


class LargeTransformerAdamw(Text):
    """10 916 640 parameters."""

    optimizer = "adamw"
    learning_rate = 1e-3
    share = 2
    steps = 100

    def __init__(self) -> None:
        super().__init__()
        self.model = transformer(self.symbols, self.context, width=336, blocks=8)


FIRST: dict[str, type[Task]] = {
    "mlp sgd": PerceptronSgd,
    "mlp adam": PerceptronAdam,
    "cnn sgd": ConvolutionalSgd,
    "tfs adam": TransformerAdam,
    "tfn adam": NarrowTransformerAdam,
}
OTHER_KINDS: dict[str, type[Task]] = {
    "resnet nesterov": ResidualNesterov,
    "gru clipped": RecurrentClipped,
    "tfn adamw": NarrowTransformerAdamw,
}
"""Of which few bits are asked alone: see plan.FEW."""
LARGE: dict[str, type[Task]] = {
    "gru 10m clipped": LargeRecurrentClipped,
    "tf 10m adamw": LargeTransformerAdamw,
}
"""Of ten million parameters. A run takes minutes: of them plan.FEW_LARGE alone."""
PROBLEMS = FIRST | OTHER_KINDS | LARGE


@cache
def open_problem(name: str) -> Task:
    """The task of a name in PROBLEMS, made once."""
    return PROBLEMS[name]()


def coded_groups(model: Model) -> Tensor:
    """int64[groups]: which groups of 64 values of a gradient are coded, ascending. The rest is exchanged exactly."""
    begin, chosen = 0, []
    for parameter in model.parameters:
        # One dimension: they come last, and need not be whole groups.
        if parameter.droppable:
            groups = parameter.numel // GROUP_VALUES
            if parameter.numel >= EXACT_BELOW:
                chosen.append(torch.arange(begin, begin + groups))
            begin += groups
    return torch.cat(chosen)
