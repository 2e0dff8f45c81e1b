"""What a training job computes and sends: per layer of a model its parameters and its arithmetic, from its definition.

Parameters follow from the architectures as published; each model names its paper, and the tests hold the totals against
the published ones. A layer here is a weight layer with its bias and normalisation. Multiply-accumulates are counted of
matrix products and convolutions alone. Compute time is *derived*, not measured. The published training throughput of
one GPU says how long a sample takes. That time is divided among the layers by their arithmetic, a third forward and two
thirds backward (the gradient of the input and that of the weights are a product each). Layers bound by memory
(normalisation, activations) are thereby spread over the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from dlcp.errors import ArgumentError

FORWARD_SHARE = 1 / 3
"""Of a step's arithmetic; the rest is backward."""


@dataclass(frozen=True)
class Layer:
    """A weight layer, in the order of forward."""

    name: str
    parameters: int
    macs: int
    """Multiply-accumulates of one sample's forward pass."""


@dataclass(frozen=True)
class Speed:
    """How fast one worker trains, and who says so."""

    samples_per_s: float
    gpu: str
    source: str


@dataclass(frozen=True)
class Model:
    """A model as a training job sees it."""

    name: str
    paper: str
    layers: tuple[Layer, ...]
    batch: int
    """Samples per worker and step, if a job does not say."""
    speed: Speed
    sample: str = "image"
    """What a sample is."""

    @property
    def parameters(self) -> int:
        """All of them."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def macs(self) -> int:
        """Of one sample's forward pass."""
        return sum(layer.macs for layer in self.layers)

    def forward_s(self, batch: int | None = None) -> list[float]:
        """Seconds per layer for a batch."""
        step_s = (batch or self.batch) / self.speed.samples_per_s
        return [FORWARD_SHARE * step_s * layer.macs / self.macs for layer in self.layers]

    def backward_s(self, batch: int | None = None) -> list[float]:
        """Seconds per layer for a batch."""
        return [(1 - FORWARD_SHARE) / FORWARD_SHARE * seconds for seconds in self.forward_s(batch)]

    def merged(self, layers: int) -> Model:
        """The same model in at most so many layers: neighbours are joined where both together are smallest.

        Fewer layers, fewer messages; parameters and arithmetic stay.
        """
        if layers < 1:
            raise ArgumentError(f"layers is {layers}; accepted: 1 or more")
        kept = list(self.layers)
        while len(kept) > layers:
            at = min(range(len(kept) - 1), key=lambda i: kept[i].parameters + kept[i + 1].parameters)
            a, b = kept[at], kept[at + 1]
            first = a.name.split("…")[0]
            joined = Layer(f"{first}…{b.name.split('…')[-1]}", a.parameters + b.parameters, a.macs + b.macs)
            kept[at : at + 2] = [joined]
        return replace(self, layers=tuple(kept))


# --- building blocks -----------------------------------------------------------------------------------------


def _conv(
    name: str,
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    out: int,
    *,
    bias: bool = False,
    norm: int = 2,
) -> Layer:
    """A convolution to out × out places; `norm`: parameters per channel of the normalisation behind it."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    weights = inputs * outputs * height * width
    return Layer(name, weights + outputs * (bias + norm), weights * out * out)


def _dense(name: str, inputs: int, outputs: int, *, rows: int = 1, bias: bool = True) -> Layer:
    """A matrix; `rows`: vectors per sample that go through it."""
    return Layer(name, inputs * outputs + outputs * bias, inputs * outputs * rows)


def _table(name: str, rows: int, width: int) -> Layer:
    """An embedding: parameters, no arithmetic worth counting."""
    return Layer(name, rows * width, 0)


# --- images --------------------------------------------------------------------------------------------------

_LAMBDA = "Lambda, RTX 2080 Ti Deep Learning Benchmarks with TensorFlow (2019): V100, fp32, one GPU"


def alexnet() -> Model:
    """One column, as in Krizhevsky 2014 and torchvision: 61.1 M parameters (the two-column original has 62.4 M)."""
    shapes = ((3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13))
    convs = [_conv(f"conv{i}", *shape, bias=True, norm=0) for i, shape in enumerate(shapes, 1)]
    dense = [_dense("fc6", 256 * 36, 4096), _dense("fc7", 4096, 4096), _dense("fc8", 4096, 1000)]
    return Model(
        "alexnet",
        "A. Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997",
        (*convs, *dense),
        128,
        Speed(4782, "V100", _LAMBDA),
    )


def vgg16() -> Model:
    """Configuration D: 138.4 M parameters."""
    layers: list[Layer] = []
    inputs, size = 3, 224
    for stage, (count, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for index in range(1, count + 1):
            layers.append(_conv(f"conv{stage}_{index}", inputs, width, 3, size, bias=True, norm=0))
            inputs = width
        size //= 2
    layers += [_dense("fc6", 512 * 49, 4096), _dense("fc7", 4096, 4096), _dense("fc8", 4096, 1000)]
    return Model(
        "vgg16",
        "Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, arXiv:1409.1556",
        tuple(layers),
        32,
        Speed(240, "V100", _LAMBDA),
    )


def resnet50() -> Model:
    """Bottlenecks of 3, 4, 6 and 3 blocks: 25.6 M parameters."""
    layers = [_conv("conv1", 3, 64, 7, 112)]
    inputs = 64
    for stage, (blocks, width, out) in enumerate(((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)), 2):
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            # The stride is in the 3 × 3 convolution (v1.5), so the first 1 × 1 of a stage sees the larger picture.
            before = out * 2 if block == 1 and stage > 2 else out
            layers.append(_conv(f"{name}a", inputs, width, 1, before))
            layers.append(_conv(f"{name}b", width, width, 3, out))
            layers.append(_conv(f"{name}c", width, 4 * width, 1, out))
            if block == 1:
                layers.append(_conv(f"{name}s", inputs, 4 * width, 1, out))
            inputs = 4 * width
    layers.append(_dense("fc", 2048, 1000))
    return Model(
        "resnet50",
        "He et al., Deep residual learning for image recognition, arXiv:1512.03385 (v1.5)",
        tuple(layers),
        64,
        Speed(405, "V100", _LAMBDA),
    )


def inception_v3(auxiliary: bool = True) -> Model:
    """27.2 M parameters with the auxiliary classifier, 23.8 M without."""
    layers = [
        _conv("conv1a", 3, 32, 3, 149),
        _conv("conv2a", 32, 32, 3, 147),
        _conv("conv2b", 32, 64, 3, 147),
        _conv("conv3b", 64, 80, 1, 73),
        _conv("conv4a", 80, 192, 3, 71),
    ]

    def add(name: str, out: int, *convs: tuple[int, int, int | tuple[int, int]]) -> None:
        layers.extend(_conv(f"{name}_{i}", a, b, kernel, out) for i, (a, b, kernel) in enumerate(convs, 1))

    for name, inputs, pool in (("5b", 192, 32), ("5c", 256, 64), ("5d", 288, 64)):
        five, three = ((inputs, 48, 1), (48, 64, 5)), ((inputs, 64, 1), (64, 96, 3), (96, 96, 3))
        add(f"mixed{name}", 35, (inputs, 64, 1), *five, *three, (inputs, pool, 1))
    layers.append(_conv("mixed6a_1", 288, 384, 3, 17))
    add("mixed6a_s", 35, (288, 64, 1), (64, 96, 3))
    layers.append(_conv("mixed6a_2", 96, 96, 3, 17))
    row, column = (1, 7), (7, 1)
    for name, c in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        seven = ((768, c, 1), (c, c, row), (c, 192, column))
        double = ((768, c, 1), (c, c, column), (c, c, row), (c, c, column), (c, 192, row))
        add(f"mixed{name}", 17, (768, 192, 1), *seven, *double, (768, 192, 1))
    if auxiliary:
        layers.append(_conv("aux_conv0", 768, 128, 1, 5))
        layers.append(_conv("aux_conv1", 128, 768, 5, 1))
        layers.append(_dense("aux_fc", 768, 1000))
    add("mixed7a", 17, (768, 192, 1), (768, 192, 1), (192, 192, row), (192, 192, column))
    add("mixed7a_out", 8, (192, 320, 3), (192, 192, 3))
    for name, inputs in (("7b", 1280), ("7c", 2048)):
        three_way = ((inputs, 384, 1), (384, 384, (1, 3)), (384, 384, (3, 1)))
        double_way = ((inputs, 448, 1), (448, 384, 3), (384, 384, (1, 3)), (384, 384, (3, 1)))
        add(f"mixed{name}", 8, (inputs, 320, 1), *three_way, *double_way, (inputs, 192, 1))
    layers.append(_dense("fc", 2048, 1000))
    return Model(
        "inception_v3",
        "Szegedy et al., Rethinking the Inception architecture for computer vision, arXiv:1512.00567",
        tuple(layers),
        32,
        Speed(259, "V100", _LAMBDA),
    )


# --- sequences -----------------------------------------------------------------------------------------------


def lstm(vocabulary: int = 33_278, width: int = 1500, layers: int = 2, length: int = 35) -> Model:
    """Zaremba's large language model with WikiText-2's vocabulary; four gates per layer, two biases as in cuDNN."""
    gates = [
        Layer(f"lstm{i}", 8 * width * width + 8 * width, 8 * width * width * length)
        for i in range(1, layers + 1)
    ]
    output = _dense("decoder", width, vocabulary, rows=length)
    model = (_table("encoder", vocabulary, width), *gates, output)
    return Model(
        "lstm",
        "Zaremba et al., Recurrent neural network regularization, arXiv:1409.2329 (large; WikiText-2's vocabulary)",
        model,
        20,
        _derived(
            model,
            0.5 * 15.7e12,
            "V100",
            "derived: half of the V100's 15.7 TFLOP/s in fp32 (NVIDIA data sheet)",
        ),
        sample=f"sequence of {length}",
    )


def _derived(layers: Sequence[Layer], flops: float, gpu: str, source: str) -> Speed:
    """Samples per second at a rate of arithmetic: two operations per multiply-accumulate, three passes."""
    return Speed(flops / (6 * sum(layer.macs for layer in layers)), gpu, source)


def _attention(name: str, width: int, length: int, rows: int, *, cross: bool = False) -> list[Layer]:
    """Projections with biases and the normalisation; the products of queries and keys, and with values, in it."""
    kind = "cross" if cross else "self"
    products = 2 * length * rows * width
    return [
        Layer(f"{name}_{kind}_qkv", 3 * width * (width + 1), 3 * width * width * rows + products),
        Layer(f"{name}_{kind}_out", width * (width + 1) + 2 * width, width * width * rows),
    ]


def _feed_forward(name: str, width: int, inner: int, rows: int) -> list[Layer]:
    up = _dense(f"{name}_ff1", width, inner, rows=rows)
    down = _dense(f"{name}_ff2", inner, width, rows=rows)
    return [up, replace(down, parameters=down.parameters + 2 * width)]


def _transformer(name: str, width: int, inner: int, speed: Speed, length: int = 32) -> Model:
    vocabulary = 37_000
    layers = [_table("embedding", vocabulary, width)]
    for index in range(1, 7):
        layers += _attention(f"encoder{index}", width, length, length)
        layers += _feed_forward(f"encoder{index}", width, inner, length)
    for index in range(1, 7):
        layers += _attention(f"decoder{index}", width, length, length)
        layers += _attention(f"decoder{index}", width, length, length, cross=True)
        layers += _feed_forward(f"decoder{index}", width, inner, length)
    # The output shares the embedding's matrix: its arithmetic comes last, its gradient is the first layer's.
    layers[-1] = replace(layers[-1], macs=layers[-1].macs + vocabulary * width * length)
    return Model(
        name,
        "Vaswani et al., Attention is all you need, arXiv:1706.03762",
        tuple(layers),
        3125 // length,
        speed,
        sample=f"pair of sentences of {length} tokens",
    )


_VASWANI = "Vaswani et al., section 5.2: 8 GPUs, 25,000 source and target tokens a step in {} s"


def transformer_base() -> Model:
    """65 M parameters by the paper; 63 M here, with its 37,000 shared words and nothing that it does not name."""
    return _transformer("transformer_base", 512, 2048, Speed(3125 / 32 / 0.4, "P100", _VASWANI.format(0.4)))


def transformer_big() -> Model:
    """213 M parameters by the paper."""
    return _transformer("transformer_big", 1024, 4096, Speed(3125 / 32 / 1.0, "P100", _VASWANI.format(1.0)))


_MEGATRON = (
    "derived: 39 TFLOP/s sustained in fp16, 30 % of peak (Shoeybi et al., arXiv:1909.08053, section 5.1)"
)


def _block(name: str, width: int, length: int) -> list[Layer]:
    return [*_attention(name, width, length, length), *_feed_forward(name, width, 4 * width, length)]


def bert_large(length: int = 128) -> Model:
    """24 layers of 1024: 335 M with the pooler, 336 M with the heads of pre-training (340 M by the paper)."""
    width, vocabulary = 1024, 30_522
    layers = [Layer("embedding", (vocabulary + 512 + 2) * width + 2 * width, 0)]
    for index in range(1, 25):
        layers += _block(f"layer{index}", width, length)
    layers.append(_dense("pooler", width, width))
    # The masked-word head: its matrix is the embedding's; a seventh of the words is predicted (20 of 128).
    predicted = max(1, length * 20 // 128)
    head = width * (width + 1) + 2 * width + vocabulary
    layers.append(Layer("head", head, (width * width + vocabulary * width) * predicted))
    return Model(
        "bert_large",
        "Devlin et al., BERT, arXiv:1810.04805",
        tuple(layers),
        32,
        _derived(layers, 39e12, "V100", _MEGATRON),
        sample=f"sequence of {length}",
    )


def gpt2(depth: int = 12, width: int = 768, length: int = 1024, name: str = "gpt2", batch: int = 8) -> Model:
    """124 M parameters; 48 layers of 1600: 1.56 B, "gpt2_xl"."""
    vocabulary = 50_257
    layers = [_table("embedding", vocabulary + 1024, width)]
    for index in range(1, depth + 1):
        layers += _block(f"layer{index}", width, length)
    # The output is the embedding's matrix.
    layers.append(Layer("final_norm", 2 * width, vocabulary * width * length))
    return Model(
        name,
        "Radford et al., Language models are unsupervised multitask learners, 2019",
        tuple(layers),
        batch,
        _derived(layers, 39e12, "V100", _MEGATRON),
        sample=f"sequence of {length}",
    )


def gpt3_13b(slices: int = 16, length: int = 2048) -> Model:
    """GPT-3 13B cut among GPUs by tensor parallelism: one of `slices`, which is what data-parallel peers exchange.

    Every matrix is divided evenly; normalisations and position embeddings stay whole in each slice. The paper says a
    width of 5140, which its 40 heads of 128 contradict; 5120 is meant, and gives 12.9 B.
    """
    width, depth, vocabulary = 5120, 40, 50_257
    layers = [Layer("embedding", vocabulary * width // slices + length * width, 0)]
    for index in range(1, depth + 1):
        for layer in _block(f"layer{index}", width, length):
            whole = 2 * width if layer.name.endswith(("out", "ff2")) else 0
            cut = (layer.parameters - whole) // slices + whole
            layers.append(Layer(layer.name, cut, layer.macs // slices))
    layers.append(Layer("final_norm", 2 * width, vocabulary * width * length // slices))
    return Model(
        "gpt3_13b",
        "Brown et al., Language models are few-shot learners, arXiv:2005.14165, table 2.1",
        tuple(layers),
        1,
        _derived(
            layers,
            140e12,
            "A100",
            "derived: 140 TFLOP/s sustained, 44 % of peak; Narayanan et al., arXiv:2104.04473, table 1",
        ),
        sample=f"sequence of {length}",
    )


MODELS: Mapping[str, Callable[[], Model]] = MappingProxyType(
    {
        "alexnet": alexnet,
        "vgg16": vgg16,
        "resnet50": resnet50,
        "inception_v3": inception_v3,
        "lstm": lstm,
        "transformer_base": transformer_base,
        "transformer_big": transformer_big,
        "bert_large": bert_large,
        "gpt2": gpt2,
        "gpt2_xl": lambda: gpt2(48, 1600, name="gpt2_xl", batch=1),
        "gpt3_13b": gpt3_13b,
    }
)
"""Models by name."""


def of_table(table: Mapping[str, Any]) -> Model:
    """A model from a file's table: the fields of Model, layers and speed as tables of theirs. Raises ArgumentError."""
    try:
        layers = tuple(Layer(**layer) for layer in table["layers"])
        found = Model(**{**table, "layers": layers, "speed": Speed(**table["speed"])})
    except (KeyError, TypeError) as error:
        raise ArgumentError(
            f"model: {error}; accepted: the fields of Model, its layers and its speed"
        ) from None
    if not layers or found.macs <= 0 or found.speed.samples_per_s <= 0 or found.batch < 1:
        raise ArgumentError(f"model {found.name}: accepted: layers, macs, samples_per_s and batch above zero")
    return found


@cache
def model(name: str) -> Model:
    """A model by name; ArgumentError if it is unknown."""
    if name not in MODELS:
        raise ArgumentError(f"model is {name!r}; accepted: {', '.join(MODELS)}")
    return MODELS[name]()


def table() -> str:
    """All models in a table of text: layers, parameters, arithmetic, seconds per step, sources."""
    rows = [f"{'model':17} {'layers':>6} {'parameters':>12} {'GMAC':>9} {'batch':>5} {'step':>9}  speed"]
    for name in MODELS:
        one = model(name)
        step_ms = 1e3 * one.batch / one.speed.samples_per_s
        rows.append(
            f"{name:17} {len(one.layers):6} {one.parameters / 1e6:10.1f} M {one.macs / 1e9:9.2f} {one.batch:5} "
            f"{step_ms:6.0f} ms  {one.speed.gpu}: {one.speed.source}"
        )
    return "\n".join(rows)
