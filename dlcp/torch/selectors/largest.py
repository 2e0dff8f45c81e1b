"""The exact selector: the k elements of largest magnitude.

NaN counts as the largest, the least index wins ties.
float32, float16 and bfloat16 in the processor's memory are selected by native/collective/select.hpp, in about
the time that one or two reads of the data take; the rest by torch operations, which define the result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dlcp.torch.selectors.selector import check, trivial
from dlcp.transport import gradient


class Largest:
    """Selects exactly k elements, whose magnitudes are the k largest."""

    fixed_length = True

    def select(self, values: Tensor, k: int) -> Tensor:
        """As Selector.select; the same indices on every device. On CUDA it waits for the device."""
        values = check(values, k)
        if (indices := trivial(values, k)) is not None:
            return indices
        if values.dtype != torch.float64:
            values = values.float()
            if values.device.type == "cpu" and values.numel() <= gradient.SELECT_COUNT_MAX:
                return torch.from_numpy(gradient.select_largest(values.data_ptr(), values.numel(), k))
        return by_torch(values, k)


def by_torch(values: Tensor, k: int) -> Tensor:
    """As Selector.select, by torch operations. `values`: float32 or float64, contiguous; 0 < k <= numel."""
    keys = _keys(values)
    # torch.topk says which values are the largest, but not which of equal ones it takes.
    threshold = torch.topk(keys, k, sorted=False).values.min()
    above, ties = keys > threshold, keys == threshold
    chosen = above | (ties & (ties.cumsum(0) <= k - above.sum()))
    return chosen.nonzero().squeeze(1)


def _keys(values: Tensor) -> Tensor:
    """Integers in the order of magnitudes: the bits without the sign; the same for every NaN."""
    if values.dtype == torch.float64:
        return (values.view(torch.int64) & 0x7FFF_FFFF_FFFF_FFFF).clamp_(max=0x7FF0_0000_0000_0001)
    return (values.view(torch.int32) & 0x7FFF_FFFF).clamp_(max=0x7F80_0001)
