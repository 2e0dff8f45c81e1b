"""What all selectors share: the protocol, and the check of arguments.

Elements are compared by magnitude: -0 equals 0, subnormal numbers count, NaN and infinity are the largest.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from dlcp.torch.tensors import FLOATING_DTYPES


class Selector(Protocol):
    """Selects elements of large magnitude."""

    fixed_length: bool
    """Whether it selects exactly k; otherwise how many it selects is written with the selector."""

    def select(self, values: Tensor, k: int) -> Tensor:
        """Distinct indices, ascending: int64, one dimension, on the device of `values`.

        `values`: one dimension; float16, bfloat16, float32 or float64. `k`: 0 up to the number of elements; at
        both ends exactly k are selected. Raises ValueError for anything else.
        """
        ...


def check(values: Tensor, k: int) -> Tensor:
    """`values` as selectors want them, contiguous and without a gradient. Raises ValueError."""
    if values.dtype not in FLOATING_DTYPES or values.dim() != 1:
        raise ValueError(
            f"values are {values.dtype} of shape {tuple(values.shape)}; accepted: "
            f"{', '.join(map(str, FLOATING_DTYPES))}, one dimension"
        )
    if not 0 <= k <= values.numel():
        raise ValueError(f"k is {k}; accepted: 0 up to {values.numel()}")
    return values.detach().contiguous()


def trivial(values: Tensor, k: int) -> Tensor | None:
    """The indices where there is no choice: none of the elements, or all. None: there is a choice."""
    if k not in (0, values.numel()):
        return None
    return torch.arange(k, device=values.device)
