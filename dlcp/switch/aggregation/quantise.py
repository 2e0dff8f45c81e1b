"""Floating point in blocks of integers with one exponent, so that a switch can add it.

A block's exponent is the least e with |x| < 2^e for all its values. The workers agree on the largest of theirs first
(Operation.MAX over codes), and each sends rint(x · 2^(k−e)), clipped to ±(2^k − 1); k leaves room for the sum of all
workers in 32 bits. So a sum never overflows, is exact in integers, and every worker knows exactly what of its values
is in it.

Error: a worker that took part in the agreement is off by at most one step, 2^(e−k), per element, and by half a step
where it did not clip: for 32 workers 2^−26 of 2^e, less than what float32 loses at the block's largest values. A worker
that came too late to it is clipped to the others' range; what it did not send is its residual.

Code of an exponent, 8 bits, made so that the larger one wins: 0 all zero; 1 … 254 e + 126; 255 not finite (the result
is NaN for everyone, as in any sum). Smaller exponents are taken for −125, in which float32's least number is exact.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dlcp.switch.aggregation.packet import LANES, Values

CODE_ZERO = 0
CODE_NOT_FINITE = 255
_CODE_BIAS = 126

Floats = npt.NDArray[np.float32]


def block_count(elements: int) -> int:
    """How many blocks so many elements are; the last one is filled with zeros."""
    return -(-elements // LANES)


_Scalar = TypeVar("_Scalar", bound=np.generic)


def in_blocks(values: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """A copy of a flat array as rows of LANES, zeros behind its end."""
    rows = np.zeros((block_count(values.size), LANES), values.dtype)
    rows.reshape(-1)[: values.size] = values
    return rows


def value_bits(workers: int, width: int = 32) -> int:
    """k: so many bits below the exponent, so that `workers` times 2^k − 1 and a sign fit into `width` bits."""
    return width - 1 - (workers - 1).bit_length()


def exponent_codes(blocks: Floats) -> Values:
    """The code of each row."""
    largest = np.max(np.abs(blocks), axis=1)  # NaN wins
    _, exponents = np.frexp(np.where(np.isfinite(largest), largest, 0))
    codes = np.maximum(exponents, 1 - _CODE_BIAS) + _CODE_BIAS
    codes = np.where(largest == 0, CODE_ZERO, codes)
    return np.where(np.isfinite(largest), codes, CODE_NOT_FINITE).astype(np.int32)


def quantise(blocks: Floats, codes: Values, workers: int, width: int = 32) -> Values:
    """Rows as integers under agreed exponents, one per row. What is not finite is sent as 0."""
    bits = value_bits(workers, width)
    zeros = (codes == CODE_ZERO) | (codes == CODE_NOT_FINITE)
    finite = np.where(np.isfinite(blocks) & ~zeros[:, None], blocks, 0).astype(np.float64)
    scaled = np.rint(np.ldexp(finite, (bits + _CODE_BIAS - codes)[:, None]))
    return np.clip(scaled, -(2**bits) + 1, 2**bits - 1).astype(np.int32)


def dequantise(values: Values, codes: Values, workers: int, width: int = 32) -> Floats:
    """What rows of integers stand for, rounded to float32: the same on every host."""
    scaled = np.ldexp(values.astype(np.float64), (codes - _CODE_BIAS - value_bits(workers, width))[:, None])
    scaled[codes == CODE_ZERO] = 0
    scaled[codes == CODE_NOT_FINITE] = np.nan
    with np.errstate(over="ignore"):  # a sum beyond float32 is infinite, as in any sum
        return scaled.astype(np.float32)
