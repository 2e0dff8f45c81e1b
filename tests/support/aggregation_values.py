"""The fixed-point rule of sums by a switch, in slow and obvious Python: native/aggregation/values.cpp has its bits.

A block's exponent is the least e with |x| < 2^e for all its values. Ranks agree on the largest of theirs, and each
sends rint(x · 2^(k−e)), clipped to ±(2^k − 1). k leaves room for the sum of all ranks, which is exact in integers.

Code of an exponent, 8 bits, made so that the larger one wins: 0 all zero; 1 … 254 e + 126; 255 not finite. Smaller
exponents are taken for −125, in which float32's least number is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CODE_ZERO = 0
CODE_NOT_FINITE = 255
_CODE_BIAS = 126

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]


def value_bits(ranks: int, width: int = 32) -> int:
    """k: so many bits below the exponent, so that `ranks` times 2^k − 1 and a sign fit into `width` bits."""
    return width - 1 - (ranks - 1).bit_length()


def exponent_codes(blocks: Floats) -> Integers:
    """The code of each row."""
    largest = np.max(np.abs(blocks), axis=1)  # NaN wins
    _, exponents = np.frexp(np.where(np.isfinite(largest), largest, 0))
    codes = np.maximum(exponents, 1 - _CODE_BIAS) + _CODE_BIAS
    codes = np.where(largest == 0, CODE_ZERO, codes)
    return np.where(np.isfinite(largest), codes, CODE_NOT_FINITE).astype(np.int32)


def quantise(blocks: Floats, codes: Integers, ranks: int, width: int = 32) -> Integers:
    """Rows as integers under agreed exponents, one per row. All values are finite."""
    bits = value_bits(ranks, width)
    finite = np.where((codes == CODE_ZERO)[:, None], 0, blocks).astype(np.float64)
    scaled = np.rint(np.ldexp(finite, (bits + _CODE_BIAS - codes)[:, None]))
    return np.clip(scaled, -(2**bits) + 1, 2**bits - 1).astype(np.int32)


def dequantise(values: Integers, codes: Integers, ranks: int, width: int = 32) -> Floats:
    """What rows of integers stand for, rounded to float32."""
    scaled = np.ldexp(values.astype(np.float64), (codes - _CODE_BIAS - value_bits(ranks, width))[:, None])
    scaled[codes == CODE_ZERO] = 0
    with np.errstate(over="ignore"):  # a sum beyond float32 is infinite, as in any sum
        return scaled.astype(np.float32)


def fixed_point_sum(inputs: Sequence[Floats], lanes: int, width: int = 32) -> Floats:
    """What a switch with so many lanes sums up, of flat arrays, one per rank; a lane has 32 / width values."""
    size, per_block = inputs[0].size, lanes * (32 // width)
    blocks = -(-size // per_block)
    rows = [
        np.append(each, np.zeros(blocks * per_block - size, np.float32)).reshape(blocks, per_block)
        for each in inputs
    ]
    codes = np.max([exponent_codes(each) for each in rows], axis=0)
    sums = np.sum([quantise(each, codes, len(inputs), width) for each in rows], axis=0, dtype=np.int32)
    return dequantise(sums, codes, len(inputs), width).reshape(-1)[:size]
