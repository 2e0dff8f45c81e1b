"""The importance of coded blocks, by the scales of their groups: no second look at the values.

A group's scale is its largest magnitude over the largest code, so the mean of scale² over a block's groups, divided by
that over the whole buffer, says how the block compares; on the scale of marker.py, four steps to a factor of two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.torch.gradient.importance.scan import code_of, histogram_of, threshold_of
from dlcp.torch.gradient.layout import Range
from dlcp.transport.bounded import CRITICAL
from dlcp.transport.coded import CodecTraits


def importance_by_scales(
    coded: torch.Tensor,
    codec: CodecTraits,
    parts: Sequence[Range],
    block_bytes: Sequence[int],
    critical_share: float,
) -> list[NDArray[np.uint8] | None]:
    """Importance by owner: uint8, one per block; 255: critical. None where block_bytes is 0.

    `coded`: uint8 [groups · group_bytes], of a codec with scales. `parts`: first group and end, by owner;
    `block_bytes`: of the owner's blocks, whole groups. Critical is `critical_share` of each message, its most important
    blocks, and every block with a value that is not finite.
    """
    groups = coded.numpy().reshape(-1, codec.group_bytes)
    bits = np.ascontiguousarray(groups[:, :2]).view(np.uint16).reshape(-1).astype(np.uint32) << 16
    squares = bits.view(np.float32).astype(np.float64) ** 2
    finite = np.isfinite(squares)
    mean = squares[finite].mean() if finite.any() else 0.0
    found: list[NDArray[np.uint8] | None] = []
    for (begin, end), nbytes in zip(parts, block_bytes, strict=True):
        if nbytes == 0 or begin == end:
            found.append(None)
            continue
        per_block = nbytes // codec.group_bytes
        firsts = np.arange(0, end - begin, per_block)
        counts = np.diff(np.append(firsts, end - begin))
        means = np.add.reduceat(squares[begin:end], firsts) / counts
        score = (means / mean if mean > 0 else np.zeros_like(means)).astype(np.float32)
        code, known = code_of(score), np.isfinite(means)
        threshold = threshold_of(histogram_of(code[known], counts[known]), critical_share)
        found.append(np.where(known & (code < threshold), code, CRITICAL).astype(np.uint8))
    return found


def critical_bytes_of(importance: NDArray[np.uint8], block_bytes: int, message_bytes: int) -> int:
    """Of a message, the bytes of its critical blocks; the last block may be shorter."""
    critical = importance == CRITICAL
    short = block_bytes * len(critical) - message_bytes
    return int(critical.sum()) * block_bytes - (short if critical[-1] else 0)
