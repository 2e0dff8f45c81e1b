"""Argument checks before anything is sent: each function raises for an invalid argument.

The message names the operation, the argument, its value and what is accepted. The transport detects mismatches between
ranks (another rank's shape).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")

# c10d's tags are ints; from here on they are this package's own (monitored_barrier).
USER_TAGS = 2**31


def rank(number: int, size: int, operation: str, what: str) -> int:
    """A rank of the group. Raises ValueError."""
    if not 0 <= number < size:
        raise ValueError(f"{operation}: {what} is {number}; accepted: group ranks 0 to {size - 1}")
    return number


def tag(number: int, operation: str) -> int:
    """A tag of the user's. Raises ValueError."""
    if not 0 <= number < USER_TAGS:
        raise ValueError(f"{operation}: tag is {number}; accepted: 0 to 2^31 - 1")
    return number


def only(items: Sequence[Item], operation: str, what: str) -> Item:
    """The one item of a list: torch's interface has lists for a process with several devices. Raises ValueError."""
    if len(items) != 1:
        raise ValueError(
            f"{operation}: {what} has {len(items)} entries; accepted: one, for this process's device"
        )
    return items[0]


def one_per_rank(tensors: Sequence[object], size: int, operation: str, what: str) -> None:
    """A tensor for each rank. Raises ValueError."""
    if len(tensors) != size:
        raise ValueError(f"{operation}: {what} holds {len(tensors)} tensors; accepted: {size}, one per rank")


def same_type(tensors: Sequence[torch.Tensor], like: torch.Tensor, operation: str, what: str) -> None:
    """All of the type of one. Raises TypeError."""
    for index, tensor in enumerate(tensors):
        if tensor.dtype != like.dtype:
            raise TypeError(
                f"{operation}: {what}[{index}] has dtype {tensor.dtype}; accepted: {like.dtype}, as the rest"
            )


def same_count(tensor: torch.Tensor, count: int, operation: str, what: str) -> None:
    """A number of elements. Raises ValueError."""
    if tensor.numel() != count:
        raise ValueError(
            f"{operation}: {what} has {tensor.numel()} elements (shape {tuple(tensor.shape)}); accepted: {count}"
        )


def splits(tensor: torch.Tensor, sizes: Sequence[int], size: int, operation: str, what: str) -> list[int]:
    """How many rows of a tensor each rank gets: `sizes`, or even shares if there are none. Raises ValueError."""
    if not tensor.dim():
        raise ValueError(f"{operation}: {what} has no dimension to split; accepted: one dimension or more")
    rows = tensor.shape[0]
    if not sizes:
        if rows % size:
            raise ValueError(
                f"{operation}: {what} has {rows} rows, which do not divide evenly over {size} ranks; give split sizes"
            )
        return [rows // size] * size
    if len(sizes) != size:
        raise ValueError(f"{operation}: {len(sizes)} split sizes of {what}; accepted: {size}, one per rank")
    if min(sizes) < 0 or sum(sizes) != rows:
        raise ValueError(
            f"{operation}: split sizes {list(sizes)} of {what}, which has {rows} rows; accepted: a sum of {rows}"
        )
    return list(sizes)
