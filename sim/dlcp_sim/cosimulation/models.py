"""Small models, many at once: every operation takes G models side by side, each with weights and examples of its own.

Models this small are bound by the cost of calling an operation, not by its arithmetic; side by side, hundreds of runs
cost little more than one. A model is a list of parameters, which lie one after another in a row of a flat tensor, and
a function from that tensor and a batch to G losses. Parameters of two or more dimensions come first and have a
multiple of BLOCK elements each, so that no block straddles two of them; those of one dimension come last and are
never lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64
"""Elements that one packet carries here. A packet of 1500 bytes carries 348; that would leave these models, of some ten
thousand parameters, with too few blocks for a loss of a percent to mean anything."""

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: shape, and the standard deviation it is drawn with; 0: zeros, nan: ones."""

    name: str
    shape: tuple[int, ...]
    deviation: float

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def droppable(self) -> bool:
        """Whether the network may lose its gradient: not of 1-D parameters."""
        return len(self.shape) > 1


@dataclass(frozen=True)
class Model:
    """A kind of model: its parameters in the order in which they lie, and its loss."""

    name: str
    parameters: tuple[Parameter, ...]
    loss: Callable[[Weights, Tensor, Tensor], Tensor]
    """Of weights [G, ...], inputs [G, batch, ...] and answers [G, batch, ...]: the mean loss of each model, [G]."""

    def __post_init__(self) -> None:
        kinds = [parameter.droppable for parameter in self.parameters]
        if kinds != sorted(kinds, reverse=True):
            raise ValueError(f"{self.name}: 1-D parameters come last")
        for parameter in self.parameters:
            if parameter.droppable and parameter.numel % BLOCK:
                raise ValueError(f"{parameter} is no multiple of {BLOCK} elements")

    @cached_property
    def numel(self) -> int:
        """Elements of all parameters."""
        return sum(parameter.numel for parameter in self.parameters)

    @cached_property
    def droppable_numel(self) -> int:
        """Elements that may be lost: the first of a row."""
        return sum(parameter.numel for parameter in self.parameters if parameter.droppable)

    @cached_property
    def parameter_of_block(self) -> Tensor:
        """int64[blocks]: which parameter a block belongs to."""
        counts = [parameter.numel // BLOCK for parameter in self.parameters if parameter.droppable]
        return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))

    def fresh(self, seed: int) -> Tensor:
        """float32[numel]: weights at the start."""
        draw = torch.Generator().manual_seed(seed)
        parts = []
        for parameter in self.parameters:
            if math.isnan(parameter.deviation):
                parts.append(torch.ones(parameter.numel))
            else:
                parts.append(torch.randn(parameter.numel, generator=draw) * parameter.deviation)
        return torch.cat(parts)

    def losses(self, flat: Tensor, inputs: Tensor, answers: Tensor) -> Tensor:
        """Of weights [G, numel] and a batch [G, batch, ...]: the mean loss of each model, [G]."""
        parts = torch.split(flat, [parameter.numel for parameter in self.parameters], dim=1)
        weights = {
            parameter.name: part.view(-1, *parameter.shape)
            for parameter, part in zip(self.parameters, parts, strict=True)
        }
        return self.loss(weights, inputs, answers)


# --- layers, G side by side -----------------------------------------------------------------------------------


def _linear(state: Tensor, weights: Weights, name: str) -> Tensor:
    """[G, rows, in] to [G, rows, out]."""
    if (bias := weights.get(f"{name}.bias")) is not None:
        return torch.baddbmm(bias[:, None], state, weights[f"{name}.weight"])
    return torch.bmm(state, weights[f"{name}.weight"])


def _norm(state: Tensor, weights: Weights, name: str) -> Tensor:
    """Layer normalisation of [G, rows, width]."""
    normal = functional.layer_norm(state, state.shape[-1:])
    return torch.addcmul(weights[f"{name}.bias"][:, None], normal, weights[f"{name}.weight"][:, None])


def _cross_entropy(answers: Tensor, truth: Tensor) -> Tensor:
    """[G, rows, classes] and int64[G, rows] to [G]."""
    one_by_one = functional.cross_entropy(answers.flatten(0, 1), truth.flatten(), reduction="none")
    return one_by_one.view(truth.shape[0], -1).mean(1)


def _convolve(state: Tensor, weights: Weights, name: str, size: int) -> Tensor:
    """[G, batch, side, side, in] to [G, batch, side / 2, side / 2, out]: every other place, edges filled with zero."""
    groups, batch, side = state.shape[:3]
    padded = functional.pad(state, (0, 0, 1, 1, 1, 1))[:, :, : side + size - 2, : side + size - 2]
    patches = padded.unfold(2, size, 2).unfold(3, size, 2)  # [G, batch, side / 2, side / 2, in, size, size]
    rows = patches.reshape(groups, batch * side**2 // 4, -1)
    return _linear(rows, weights, name).view(groups, batch, side // 2, side // 2, -1)


def _convolve_evenly(state: Tensor, weights: Weights, name: str) -> Tensor:
    """[G, batch, side, side, in] to [G, batch, side, side, out]: 3 × 3, at every place, edges filled with zero."""
    patches = functional.pad(state, (0, 0, 1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    rows = patches.reshape(len(state), state.shape[1:4].numel(), -1)
    return _linear(rows, weights, name).view(*state.shape[:4], -1)


def _batch_norm(state: Tensor, weights: Weights, name: str) -> Tensor:
    """Of [G, batch, side, side, channels], by the statistics of this batch: a worker's own, or of what is kept out."""
    rows = state.flatten(1, 3)
    variance, middle = torch.var_mean(rows, 1, correction=0, keepdim=True)
    scale = weights[f"{name}.weight"][:, None] * torch.rsqrt(variance + 1e-5)
    return torch.addcmul(weights[f"{name}.bias"][:, None], rows - middle, scale).view(state.shape)


def _dense(name: str, inputs: int, outputs: int, *, gain: float = 2.0, bias: bool = True) -> list[Parameter]:
    weight = Parameter(f"{name}.weight", (inputs, outputs), math.sqrt(gain / inputs))
    return [weight, Parameter(f"{name}.bias", (outputs,), 0.0)] if bias else [weight]


def _scale(name: str, width: int) -> list[Parameter]:
    return [Parameter(f"{name}.weight", (width,), math.nan), Parameter(f"{name}.bias", (width,), 0.0)]


def _model(
    name: str, parameters: list[Parameter], loss: Callable[[Weights, Tensor, Tensor], Tensor]
) -> Model:
    return Model(name, tuple(sorted(parameters, key=lambda parameter: not parameter.droppable)), loss)


# --- the models -----------------------------------------------------------------------------------------------


def perceptron(inputs: int = 64, width: int = 128, classes: int = 16) -> Model:
    """Two hidden layers."""

    def loss(weights: Weights, examples: Tensor, answers: Tensor) -> Tensor:
        state = _linear(examples, weights, "first").relu()
        state = _linear(state, weights, "second").relu()
        return _cross_entropy(_linear(state, weights, "out"), answers)

    return _model(
        "mlp",
        [
            *_dense("first", inputs, width),
            *_dense("second", width, width),
            *_dense("out", width, classes, gain=1.0),
        ],
        loss,
    )


def convolutional(classes: int = 10, width: int = 16) -> Model:
    """Two convolutions, each of which halves the sides, and two dense layers, for images of 8 × 8.

    `width`: channels of the first convolution; the second has twice as many, the dense layer eight times.
    """

    def loss(weights: Weights, examples: Tensor, answers: Tensor) -> Tensor:
        state = _convolve(examples[..., None], weights, "first", 4).relu()
        state = _convolve(state, weights, "second", 3).relu()
        state = _linear(state.flatten(2), weights, "third").relu()
        return _cross_entropy(_linear(state, weights, "out"), answers)

    return _model(
        "cnn",
        [
            *_dense("first", 16, width),
            *_dense("second", 9 * width, 2 * width),
            *_dense("third", 8 * width, 8 * width),
            *_dense("out", 8 * width, classes, gain=1.0),
        ],
        loss,
    )


def residual_convolutional(classes: int = 10, width: int = 16) -> Model:
    """A residual network with batch norm, for images of 8 × 8: two blocks of 4 × 4, one of 2 × 2 and twice as wide."""

    def normal(state: Tensor, weights: Weights, name: str) -> Tensor:
        return _batch_norm(_convolve_evenly(state, weights, name), weights, f"{name}.norm")

    def loss(weights: Weights, examples: Tensor, answers: Tensor) -> Tensor:
        state = _convolve(examples[..., None], weights, "stem", 4)
        state = _batch_norm(state, weights, "stem.norm").relu()
        for block in range(3):
            if block == 2:
                state = _convolve(state, weights, "down", 3)
                state = _batch_norm(state, weights, "down.norm").relu()
            inner = normal(state, weights, f"{block}.first").relu()
            state = (state + normal(inner, weights, f"{block}.second")).relu()
        return _cross_entropy(_linear(state.mean((2, 3)), weights, "out"), answers)

    def convolution(name: str, inputs: int, outputs: int) -> list[Parameter]:
        return [*_dense(name, inputs, outputs, bias=False), *_scale(f"{name}.norm", outputs)]

    parameters = [*convolution("stem", 16, width), *convolution("down", 9 * width, 2 * width)]
    for block in range(3):
        channels = 2 * width if block == 2 else width
        for name in (f"{block}.first", f"{block}.second"):
            parameters += convolution(name, 9 * channels, channels)
    return _model("resnet", [*parameters, *_dense("out", 2 * width, classes, gain=1.0)], loss)


def recurrent(words: int = 2048, width: int = 64) -> Model:
    """A gated recurrent network over words. One table holds what a word is at the input and at the output."""

    def loss(weights: Weights, examples: Tensor, answers: Tensor) -> Tensor:
        groups, batch, length = examples.shape
        table = weights["words"]
        rows = examples + torch.arange(groups)[:, None, None] * words
        read = functional.embedding(rows.flatten(1), table.flatten(0, 1))
        inputs = _linear(read, weights, "input").view(groups, batch, length, 3 * width)
        state, states = read.new_zeros(groups, batch, width), []
        for place in range(length):
            reset, update, fresh = inputs[:, :, place].chunk(3, -1)
            reset_by, update_by, fresh_by = _linear(state, weights, "state").chunk(3, -1)
            fresh = torch.tanh(fresh + torch.sigmoid(reset + reset_by) * fresh_by)
            state = torch.lerp(fresh, state, torch.sigmoid(update + update_by))
            states.append(state)
        seen = torch.stack(states, 2).flatten(1, 2)
        scores = torch.baddbmm(weights["words.bias"][:, None], seen, table.transpose(1, 2))
        return _cross_entropy(scores, answers.flatten(1))

    parameters = [
        Parameter("words", (words, width), 0.8 / math.sqrt(width)),
        Parameter("words.bias", (words,), 0.0),
    ]
    for name in ("input", "state"):
        parameters += _dense(name, width, 3 * width, gain=1.0)
    return _model("recurrent", parameters, loss)


def transformer(symbols: int = 64, context: int = 32, width: int = 32, blocks: int = 2) -> Model:
    """A decoder over symbols: pre-norm blocks of attention and a two-layer network, learned positions."""
    heads = 4

    def loss(weights: Weights, examples: Tensor, answers: Tensor) -> Tensor:
        groups, batch, length = examples.shape
        table = weights["symbols"].flatten(0, 1)  # one table for all, each model at its own rows
        rows = examples + torch.arange(groups)[:, None, None] * symbols
        state = functional.embedding(rows, table) + weights["places"][:, None, :length]
        state = state.flatten(1, 2)
        for block in range(blocks):
            mixed = _linear(_norm(state, weights, f"{block}.norm1"), weights, f"{block}.mix")
            query, key, value = mixed.view(groups * batch, length, 3, heads, width // heads).permute(
                2, 0, 3, 1, 4
            )
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            seen = seen.transpose(1, 2).reshape(groups, batch * length, width)
            state = state + _linear(seen, weights, f"{block}.back")
            more = _linear(_norm(state, weights, f"{block}.norm2"), weights, f"{block}.up").relu()
            state = state + _linear(more, weights, f"{block}.down")
        return _cross_entropy(_linear(_norm(state, weights, "norm"), weights, "out"), answers.flatten(1))

    parameters = [Parameter("symbols", (symbols, width), 0.1), Parameter("places", (context, width), 0.1)]
    for block in range(blocks):
        parameters += [
            *_scale(f"{block}.norm1", width),
            *_dense(f"{block}.mix", width, 3 * width, gain=1.0, bias=False),
            *_dense(f"{block}.back", width, width, gain=0.5, bias=False),
            *_scale(f"{block}.norm2", width),
            *_dense(f"{block}.up", width, 4 * width),
            *_dense(f"{block}.down", 4 * width, width, gain=0.5),
        ]
    parameters += [*_scale("norm", width), *_dense("out", width, symbols, gain=0.5, bias=False)]
    return _model("transformer", parameters, loss)
