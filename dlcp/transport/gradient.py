"""What gradients take of the processor before they are sent: importance, the Hadamard transform, selection.

Vector code on raw memory, whose owner the caller is; native/collective/importance.hpp, hadamard.hpp and
select.hpp say what it does. What can be seen to be wrong raises ValueError.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from dlcp import _native
from dlcp.transport.element import DataType

IMPORTANCE_CODES: int = _native.IMPORTANCE_CODES
"""Codes are 0 to 254; a threshold of this many is one that no code reaches."""

SELECT_COUNT_MAX: int = _native.SELECT_COUNT_MAX
"""The most elements that select_largest() takes."""

hadamard = _native.hadamard
"""hadamard(address, count, chunk_log2, seed, step, inverse): of float32, in place."""


def select_largest(address: int, count: int, k: int) -> NDArray[np.int64]:
    """The indices of the k largest magnitudes of `count` float32 at `address`, ascending; 0 <= k <= count.

    NaN counts as the largest; of equal magnitudes the least index is selected.
    """
    indices = np.empty(k, np.int64)
    _native.select_largest(address, count, indices)
    return indices


count_reaching = _native.count_reaching
"""count_reaching(address, count, threshold): how many float32 have at least this magnitude.

NaN counts as infinite. The threshold is rounded to float32; none reaches NaN.
"""


gather_runs = _native.gather_runs
"""gather_runs(dtype, source_address, elements, begin, count, out_address, out_elements): f32 or f64, run after run.

`begin`, `count`: int64, one each per run, within `elements` of the source.
"""

add_runs = _native.add_runs
"""add_runs(dtype, target_address, elements, begin, count, source_address, source_elements, at, factor): f32 or f64.

target[run] += factor * source[as many from `at` on]; the runs are apart. Rounded after each of the two operations.
"""


def mark_importance(
    dtype: DataType,
    address: int,
    count: int,
    *,
    segments: NDArray[np.int64],
    inverse_mean_squares: NDArray[np.float64],
    critical: NDArray[np.bool_],
    parts: NDArray[np.int64],
    threshold: int,
    sampled: bool = False,
) -> tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.float64]]:
    """Importance by block, part after part; bytes of droppable blocks by code; the sum of squares by segment.

    `count` elements at `address`, f32, f64, f16 or bf16. `segments`: [n, 2], begin and count, in order and apart; of
    each `inverse_mean_squares` and whether it is `critical`. `parts`: [m, 3], begin, end and elements of a block.
    """
    blocks = int(-((parts[:, 0] - parts[:, 1]) // np.maximum(parts[:, 2], 1)).sum())
    importance = np.empty(max(blocks, 0), np.uint8)
    histogram = np.zeros(IMPORTANCE_CODES, np.uint64)
    square_sums = np.zeros(len(segments))
    mark = functools.partial(_native.importance, sampled=True) if sampled else _native.importance
    mark(
        dtype,
        address,
        count,
        segments,
        inverse_mean_squares,
        critical,
        parts,
        threshold,
        importance,
        histogram,
        square_sums,
    )
    return importance, histogram, square_sums
