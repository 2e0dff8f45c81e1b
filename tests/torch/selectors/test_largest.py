"""The exact selector and counting: every variant and the torch operations against a slow oracle."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from dlcp import _native as native
from dlcp.torch.selectors import Largest
from dlcp.torch.selectors.largest import by_torch
from tests.support.seeds import for_each_seed
from tests.torch.selectors.distributions import awkward, sample

WAYS = [(variant, sampled) for variant in native.reduce_variants() for sampled in (False, True)]


def oracle(values: Tensor, k: int) -> list[int]:
    """As selector.py and largest.py say it."""

    def order(index: int) -> tuple[bool, float, int]:
        value = numbers[index]
        return not math.isnan(value), 0.0 if math.isnan(value) else -abs(value), index

    numbers = values.tolist()
    return sorted(sorted(range(len(numbers)), key=order)[:k])


def by_sorting(values: Tensor) -> Tensor:
    """A faster oracle for longer data: all indices, largest first, by stable sorts."""
    not_a_number = values.isnan()
    order = torch.argsort(values.abs().nan_to_num(math.inf, math.inf), descending=True, stable=True)
    return torch.cat([order[not_a_number[order]], order[~not_a_number[order]]])


def natively(values: Tensor, k: int, variant: str, *, sampled: bool) -> Tensor:
    out = np.full(k, -1, np.int64)
    native.select_largest(values.data_ptr(), values.numel(), out, sampled=sampled, variant=variant)
    return torch.from_numpy(out)


def wanted_counts(numel: int) -> Iterator[int]:
    yield from sorted({k for k in (0, 1, 2, numel // 100, numel // 3, numel - 1, numel) if 0 <= k <= numel})


@pytest.mark.parametrize("numel", [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130, 1000])
def test_awkward_values(numel: int) -> None:
    for name, values in awkward(numel):
        for k in wanted_counts(numel):
            expected = oracle(values, k)
            assert Largest().select(values, k).tolist() == expected, (name, k)
            if 0 < k < numel:
                assert by_torch(values, k).tolist() == expected, (name, k)
            for variant, sampled in WAYS:
                found = natively(values, k, variant, sampled=sampled)
                assert found.tolist() == expected, (name, k, variant)


def test_long_awkward_values() -> None:
    """So long that there is a sample, and that candidates do not have room."""
    numel = 300_001
    for name, values in awkward(numel):
        order = by_sorting(values)
        for k in (1, 300, 30_000, 200_000):
            expected = order[:k].sort().values
            assert torch.equal(by_torch(values, k), expected), (name, k)
            for variant, sampled in WAYS:
                assert torch.equal(natively(values, k, variant, sampled=sampled), expected), (
                    name,
                    k,
                    variant,
                )


def test_a_sample_that_misleads() -> None:
    """All that the sample sees is large, and too little of it: the guess must be given up."""
    numel, period, row = 1 << 18, 1024, 16
    values = torch.rand(numel)
    for number in range(numel // period):
        golden = 0x9E3779B97F4A7C15
        word = (number + 1) * golden % 2**64
        offset = (word ^ word >> 29) * golden % 2**64 >> 32
        begin = number * period + offset % (period - row + 1)
        values[begin : begin + row] = 2.0
    k = numel // period * row + 1000
    expected = by_sorting(values)[:k].sort().values
    for variant, sampled in WAYS:
        assert torch.equal(natively(values, k, variant, sampled=sampled), expected)


@for_each_seed(range(40))
def test_random_values(seed: int) -> None:
    rng = random.Random(seed)
    numel = rng.choice([rng.randrange(1, 300), rng.randrange(1, 5000), rng.randrange(250_000, 400_000)])
    values = sample(rng.choice(["gaussian", "student_t2", "layers"]), numel, seed)
    if rng.random() < 0.5:
        values = values.half().float()  # ties
    k = rng.choice([rng.randrange(numel + 1), numel // 1000, numel // 100])
    expected = by_sorting(values)[:k].sort().values
    for variant, sampled in WAYS:
        assert torch.equal(natively(values, k, variant, sampled=sampled), expected), (variant, sampled)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_unaligned_memory(offset: int) -> None:
    values = sample("gaussian", 1000, offset)
    memory = ctypes.create_string_buffer(b"\xff" * offset + values.numpy().tobytes())
    for variant, sampled in WAYS:
        out = np.empty(17, np.int64)
        native.select_largest(ctypes.addressof(memory) + offset, 1000, out, sampled=sampled, variant=variant)
        assert out.tolist() == oracle(values, 17)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    for name, values in awkward(500):
        if name in ("subnormal", "any bits") and dtype in (torch.float16, torch.bfloat16):
            continue  # rounded to something else
        for k in (0, 1, 50, 499, 500):
            assert Largest().select(values.to(dtype), k).tolist() == oracle(values.to(dtype), k), (name, k)


def test_strided_values_and_a_gradient() -> None:
    values = sample("gaussian", 600, 0).requires_grad_()
    assert Largest().select(values[::3], 20).tolist() == oracle(values.detach()[::3], 20)


@pytest.mark.parametrize("numel", [1, 7, 8, 31, 64, 129, 1000])
def test_counts_of_what_reaches_a_threshold(numel: int) -> None:
    for name, values in awkward(numel):
        magnitudes = values.abs().nan_to_num(math.inf, math.inf)
        for threshold in (-1.0, 0.0, 1e-45, 1e-38, 0.5, 2.5, 3e38, math.inf, math.nan, values[-1].item()):
            expected = int((magnitudes >= torch.tensor(threshold)).sum())
            for variant in native.reduce_variants():
                found = native.count_reaching(values.data_ptr(), numel, threshold, variant=variant)
                assert found == expected, (name, threshold, variant)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device and torch with CUDA")
def test_cuda_selects_the_same() -> None:
    for name, values in awkward(5000):
        for k in (1, 50, 4000):
            found = Largest().select(values.cuda(), k)
            assert found.is_cuda
            assert torch.equal(found.cpu(), Largest().select(values, k)), (name, k)


def test_what_cannot_be_selected() -> None:
    for values in (torch.ones(2, 2), torch.ones(4, dtype=torch.int32)):
        with pytest.raises(ValueError, match="accepted: torch.float32"):
            Largest().select(values, 1)
    with pytest.raises(ValueError, match="k is -1; accepted: 0 up to 10"):
        Largest().select(torch.ones(10), -1)
    with pytest.raises(ValueError, match="k is 11; accepted: 0 up to 10"):
        native.select_largest(torch.ones(10).data_ptr(), 10, np.empty(11, np.int64))
    with pytest.raises(ValueError, match="count is 4294967296; accepted: 0 to 4294967295"):
        native.select_largest(0, 1 << 32, np.empty(1, np.int64))
    assert Largest().select(torch.ones(0), 0).tolist() == []
