"""The pass over a buffer's values that importance takes: by the processor, or where the buffer is by torch operations.

Both give the same but for the rounding of sums of squares: a block whose score is at the edge of two codes may have
either. All above a run (elements of one parameter in one block) is computed in float64, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dlcp.torch.gradient.importance.plan import ImportancePlan
from dlcp.torch.tensors import DATA_TYPES
from dlcp.transport.bounded import CRITICAL
from dlcp.transport.gradient import IMPORTANCE_CODES, mark_importance

CODES = IMPORTANCE_CODES
"""Codes are 0 to 254."""
AVERAGE = 128
"""The code of a score of 1."""


class Scan(NamedTuple):
    """What a pass has found."""

    importance: NDArray[np.uint8]
    """By block: CRITICAL or its code."""
    histogram: NDArray[np.uint64]
    """Bytes by code, but for blocks that are critical by a parameter or not finite."""
    square_sums: NDArray[np.float64]
    """By segment."""


ScanFunction = Callable[[Tensor, ImportancePlan, NDArray[np.float64], int, bool], Scan]
"""Of a buffer, its plan, the inverse mean square by segment, the code from which on a block is critical, and whether a
sample of the values will do."""


def scan_by_processor(
    buffer: Tensor, plan: ImportancePlan, inverse: NDArray[np.float64], threshold: int, sampled: bool
) -> Scan:
    """One pass of vector code; `buffer` is on the CPU."""
    return Scan(
        *mark_importance(
            DATA_TYPES[buffer.dtype],
            buffer.data_ptr(),
            buffer.numel(),
            segments=plan.segments,
            inverse_mean_squares=inverse,
            critical=plan.critical,
            parts=plan.table,
            threshold=threshold,
            sampled=sampled,
        )
    )


def scan_by_torch(
    buffer: Tensor, plan: ImportancePlan, inverse: NDArray[np.float64], threshold: int, sampled: bool
) -> Scan:
    """Squares are summed on the buffer's device; a number per run comes to the host. Blocks until it is there.

    All values are read, also if a sample would do: memory is fast where this is used.
    """
    runs = plan.runs
    squares = np.zeros(len(runs.lengths))
    if len(squares):
        values = buffer[runs.begin : runs.end]
        values = (values if values.dtype == torch.float64 else values.float()).square()
        of_runs = torch.segment_reduce(values, "sum", lengths=plan.lengths_on(buffer.device), unsafe=True)
        squares = of_runs.double().cpu().numpy()
    held = (runs.blocks >= 0) & (runs.segments >= 0)
    segment, block, squares = runs.segments[held], runs.blocks[held], squares[held]
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = np.bincount(block, squares * inverse[segment], plan.blocks)
        score = (ratios / np.maximum(plan.block_numels, 1)).astype(np.float32)
    finite = np.bincount(block, ~np.isfinite(squares), plan.blocks) == 0
    code = code_of(score)
    droppable = finite & ~plan.critical_blocks
    importance = np.where(droppable & (code < threshold), code, CRITICAL).astype(np.uint8)
    histogram = histogram_of(code[droppable], plan.block_numels[droppable] * plan.item_bytes)
    sums = np.bincount(segment, squares, len(plan.segments)).astype(np.float64)
    return Scan(importance, histogram, sums)


def code_of(score: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Codes 0 to 254 of scores of 0 or more: four steps to a factor of two, 128 of 1. 254 of what is not finite."""
    quarters = (np.ascontiguousarray(score, np.float32).view(np.uint32) >> 21).astype(np.int32)
    return np.clip(quarters - (127 << 2) + AVERAGE, 0, CODES - 1).astype(np.uint8)


def histogram_of(code: NDArray[np.uint8], nbytes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Bytes by code."""
    return np.bincount(code, nbytes, CODES).astype(np.uint64)


def threshold_of(histogram: NDArray[np.uint64], critical_share: float) -> int:
    """The least code such that blocks of this code and above have `critical_share` of the bytes or less. 255: none."""
    if critical_share == 0:
        return CODES
    above = np.cumsum(histogram[::-1].astype(np.float64))[::-1]
    # Rounding: a tenth of a hundred blocks is ten blocks.
    few = np.flatnonzero(above <= critical_share * above[0] * (1 + 1e-12))
    return int(few[0]) if len(few) else CODES
