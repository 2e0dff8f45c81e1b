"""Longest first: how full the fullest bin is, for the tensors of models as published, and of equal input the same."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from dlcp.errors import ArgumentError
from dlcp.transport.schedule.packing import longest_first

KIB = 1024
FLOAT_BYTES = 4


def resnet_50() -> Iterator[int]:
    """Elements of each tensor (He et al., CVPR 2016, table 1): 25,557,032 in all."""
    yield from (64 * 3 * 7 * 7, 64, 64)
    width_in = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from (width_in * width, width, width)
            yield from (width * width * 9, width, width)
            yield from (width * 4 * width, width * 4, width * 4)
            if block == 0:
                yield from (width_in * width * 4, width * 4, width * 4)
            width_in = width * 4
    yield from (2048 * 1000, 1000)


def gpt_2_small() -> Iterator[int]:
    """Elements of each tensor (Radford et al., 2019: 12 layers, 768 wide, 50,257 tokens): 124,439,808 in all."""
    width = 768
    yield from (50257 * width, 1024 * width)
    for _ in range(12):
        yield from (width, width, width * 3 * width, 3 * width, width * width, width)
        yield from (width, width, width * 4 * width, 4 * width, 4 * width * width, width)
    yield from (width, width)


MODELS = {"ResNet-50": (resnet_50, 25_557_032), "GPT-2 small": (gpt_2_small, 124_439_808)}


def keys(tensors: Iterable[int], key_bytes: int) -> list[int]:
    """Bytes of each key; a tensor's last one may be short."""
    found = []
    for elements in tensors:
        whole, rest = divmod(elements * FLOAT_BYTES, key_bytes)
        found += [key_bytes] * whole + [rest] * (rest > 0)
    return found


def loads(sizes: list[int], bins: int) -> list[int]:
    filled = [0] * bins
    for size, place in zip(sizes, longest_first(sizes, bins), strict=True):
        filled[place] += size
    return filled


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("key_bytes", "limit"), [(32 * KIB, 1.1), (1024 * KIB, 1.2)])
def test_no_core_has_much_more_than_the_mean(model: str, key_bytes: int, limit: float) -> None:
    shapes, elements = MODELS[model]
    tensors = list(shapes())
    assert sum(tensors) == elements
    sizes = keys(tensors, key_bytes)
    for cores in (1, 2, 3, 4, 8, 10, 16, 28):
        filled = loads(sizes, cores)
        assert sum(filled) == elements * FLOAT_BYTES
        assert max(filled) <= limit * sum(filled) / cores, cores


def test_the_last_item_of_the_fullest_bin_came_to_the_emptiest() -> None:
    draw = random.Random(1)
    for _ in range(300):
        bins = draw.randint(1, 9)
        sizes = [int(draw.paretovariate(0.7)) for _ in range(draw.randint(0, 60))]
        fullest = max(loads(sizes, bins))
        # No packing does better than any of these.
        ordered = sorted(sizes, reverse=True)
        pair = ordered[bins - 1] + ordered[bins] if len(sizes) > bins else 0
        best = max([-(-sum(sizes) // bins), pair, *ordered[:1]])
        if len(sizes) <= bins:
            assert fullest == best
        else:
            # It is its bin's second at least, so others are as large, and the bin had at most the mean of all others.
            assert fullest <= best + ordered[bins] * (bins - 1) / bins


def test_of_equals_the_first_goes_first() -> None:
    assert longest_first([3, 3, 3, 3, 3], 2) == [0, 1, 0, 1, 0]
    assert longest_first([1, 5, 2, 4], 2) == [0, 0, 1, 1]
    assert longest_first([0, 0, 7], 3) == [1, 1, 0]
    assert longest_first([], 4) == []


def test_bad_input_is_named() -> None:
    with pytest.raises(ArgumentError, match="bins"):
        longest_first([1], 0)
    with pytest.raises(ArgumentError, match="the least size"):
        longest_first([1, -1], 2)
