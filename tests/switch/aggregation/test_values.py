"""The fixed-point rule: how far its sums are from exact ones. test_native_worker: the compiled worker has its bits."""

from __future__ import annotations

import numpy as np
import pytest

from dlcp import _native
from tests.support.aggregation_values import (
    CODE_NOT_FINITE,
    CODE_ZERO,
    dequantise,
    exponent_codes,
    fixed_point_sum,
    quantise,
    value_bits,
)

LANES = 32
INT32_MAX = 2**31 - 1


def step_size(code: int, ranks: int) -> float:
    """The difference between neighbouring values under an exponent: twice the error of one rank."""
    return 0.0 if code == CODE_ZERO else 2.0 ** (code - 126 - value_bits(ranks))


def random_blocks(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((500, LANES)) * np.exp2(rng.integers(-100, 100, (500, 1)))).astype(np.float32)


@pytest.mark.parametrize("ranks", range(1, 33))
def test_sum_of_all_ranks_fits(ranks: int) -> None:
    assert ranks * (2 ** value_bits(ranks) - 1) <= INT32_MAX
    assert 2 * ranks * (2 ** value_bits(ranks) - 1) > INT32_MAX // 2, "and wastes less than two bits"


@pytest.mark.parametrize("ranks", [1, 2, 3, 32])
def test_quantised_value_is_off_by_half_a_step(ranks: int) -> None:
    blocks = random_blocks(ranks)
    codes = exponent_codes(blocks)
    integers = quantise(blocks, codes, ranks).astype(np.float64)
    for row, code, block in zip(integers, codes, blocks.astype(np.float64), strict=True):
        step = step_size(int(code), ranks)
        limit = step * (2 ** value_bits(ranks) - 1)
        error = np.abs(row * step - block)
        assert (error <= np.where(np.abs(block) > limit, step, step / 2)).all()
        assert np.abs(block).max() < step * 2.0 ** value_bits(ranks)


@pytest.mark.parametrize(("ranks", "width"), [(1, 32), (3, 32), (32, 32), (4, 16), (4, 8)])
def test_sum_is_the_exact_one_but_for_a_step_of_each_rank(ranks: int, width: int) -> None:
    per_block = LANES * (32 // width)
    inputs = [random_blocks(seed).reshape(-1)[: 60 * per_block] for seed in range(ranks)]
    exact = np.sum(np.array(inputs, np.float64), axis=0)
    largest = np.abs(np.array(inputs, np.float64)).reshape(ranks, -1, per_block).max(axis=(0, 2))
    step = np.exp2(np.frexp(largest)[1] - float(value_bits(ranks, width))).repeat(per_block)
    rounding = np.abs(exact) * 2.0**-23  # of the result to float32
    assert (np.abs(fixed_point_sum(inputs, LANES, width) - exact) <= ranks * step + rounding).all()


def test_extremes_of_float32() -> None:
    info = np.finfo(np.float32)
    for value in (info.max, -info.max, info.tiny, info.smallest_subnormal, -info.smallest_subnormal):
        block = np.full((1, LANES), value, np.float32)
        codes = exponent_codes(block)
        assert 1 <= codes[0] < CODE_NOT_FINITE
        back = dequantise(quantise(block, codes, 32), codes, 32)
        assert np.abs(back / value - 1).max() <= 2.0**-25
    zeros = np.zeros((1, LANES), np.float32)
    assert exponent_codes(zeros).tolist() == [CODE_ZERO]
    assert not fixed_point_sum([zeros.reshape(-1)] * 3, LANES).any()


def test_compiled_codes_are_the_rules() -> None:
    """Of every power of two, what is beside it, zero, and values that are not finite; a block each."""
    powers = np.exp2(np.arange(-149, 128)).astype(np.float32)
    values = np.concatenate(
        [powers, np.nextafter(powers, np.float32(0)), -powers, np.float32([0, np.inf, -np.inf, np.nan])]
    )
    blocks = np.zeros((values.size, LANES), np.float32)
    blocks[:, 7] = values
    codes = np.zeros(values.size, np.uint8)
    _native.aggregation_exponent_codes(blocks.ctypes.data, blocks.size, LANES, codes.ctypes.data)
    assert codes.tolist() == exponent_codes(blocks).tolist()
    assert (np.diff(codes[: powers.size].astype(int)) >= 0).all(), "the larger code is the larger exponent"
    assert (codes[: powers.size].min(), codes[: powers.size].max()) == (1, 254)
    assert codes[-4:].tolist() == [CODE_ZERO] + [CODE_NOT_FINITE] * 3
