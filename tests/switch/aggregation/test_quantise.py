"""Floats as integers with an exponent."""

from __future__ import annotations

import numpy as np
import pytest

from dlcp.switch.aggregation.hub import add_up
from dlcp.switch.aggregation.packet import (
    INT32_MAX,
    INT32_MIN,
    LANES,
    Operation,
)
from dlcp.switch.aggregation.quantise import (
    CODE_NOT_FINITE,
    CODE_ZERO,
    dequantise,
    exponent_codes,
    quantise,
    value_bits,
)


def step_size(code: int, workers: int) -> float:
    """The difference between neighbouring values under an exponent: twice the error of one worker."""
    return 0.0 if code in (CODE_ZERO, CODE_NOT_FINITE) else 2.0 ** (code - 126 - value_bits(workers))


@pytest.mark.parametrize("workers", range(1, 33))
def test_sum_of_all_workers_fits(workers: int) -> None:
    assert workers * (2 ** value_bits(workers) - 1) <= INT32_MAX
    assert 2 * workers * (2 ** value_bits(workers) - 1) > INT32_MAX // 2, "and wastes less than two bits"


@pytest.mark.parametrize("workers", [1, 2, 3, 32])
def test_quantised_value_is_off_by_half_a_step(workers: int) -> None:
    rng = np.random.default_rng(workers)
    blocks = (rng.standard_normal((500, LANES)) * np.exp2(rng.integers(-100, 100, (500, 1)))).astype(
        np.float32
    )
    codes = exponent_codes(blocks)
    integers = quantise(blocks, codes, workers).astype(np.float64)
    for row, code, block in zip(integers, codes, blocks.astype(np.float64), strict=True):
        step = step_size(int(code), workers)
        limit = step * (2 ** value_bits(workers) - 1)
        error = np.abs(row * step - block)
        assert (error <= np.where(np.abs(block) > limit, step, step / 2)).all()
        assert np.abs(block).max() < step * 2.0 ** value_bits(workers)


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
    assert not dequantise(quantise(zeros, np.array([CODE_ZERO], np.int32), 3), exponent_codes(zeros), 3).any()
    for bad in (np.nan, np.inf, -np.inf):
        block = np.ones((1, LANES), np.float32)
        block[0, 7] = bad
        codes = exponent_codes(block)
        assert codes.tolist() == [CODE_NOT_FINITE]
        assert np.isnan(dequantise(quantise(block, codes, 3), codes, 3)).all()


def test_who_missed_the_agreement_is_clipped() -> None:
    block = np.full((1, LANES), 100.0, np.float32)
    code = exponent_codes(np.full((1, LANES), 0.75, np.float32))
    assert quantise(block, code, 4)[0, 0] == 2 ** value_bits(4) - 1
    assert quantise(-block, code, 4)[0, 0] == -(2 ** value_bits(4)) + 1


def test_larger_code_is_larger_exponent() -> None:
    blocks = np.exp2(np.arange(-149, 128)).astype(np.float32)[:, None].repeat(LANES, 1)
    codes = exponent_codes(blocks)
    assert (np.diff(codes) >= 0).all()
    assert (codes.min(), codes.max()) == (1, 254)


def test_hub_adds_as_the_switch_does() -> None:
    rows = [
        np.array([INT32_MAX, INT32_MIN, 5] + [0] * 29, np.int32),
        np.array([1, -1, 5] + [0] * 29, np.int32),
    ]
    rows.append(np.array([-7, 7, 5] + [0] * 29, np.int32))
    values, saturated = add_up(rows, Operation.SUM)
    assert values[:3].tolist() == [INT32_MAX - 7, INT32_MIN + 7, 15]
    assert saturated == 0b11
    values, saturated = add_up(rows, Operation.MAX)
    assert (values[:3].tolist(), saturated) == ([INT32_MAX, 7, 5], 0)
