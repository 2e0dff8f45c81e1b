"""Where the chosen chunks of a stream lie when they travel: packed, each from a new group of coded values on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dlcp.torch.gradient.buffer.replicas import ReplicaError
from dlcp.torch.gradient.coding.plan import CodePlan
from dlcp.torch.gradient.element_runs import starts
from dlcp.torch.gradient.flow.chunks import ChunkTable, Mask
from dlcp.torch.gradient.layout import Range
from dlcp.transport.coded import GROUP_VALUES


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """Where the elements of buffers of one layout lie."""

    layout: CodePlan
    """Those of which some may wait: the stream, in groups of one value."""
    table: ChunkTable
    """Its chunks."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the chosen chunks of a buffer lie among its groups."""

    mask: Mask
    """bool [chunks]: what travels."""
    runs: NDArray[np.int64]
    """int64 [chosen, 3]: first element in the stream, count, first group."""
    elements: Tensor
    """int64: of the stream, what travels."""
    places: Tensor
    """int64: of the groups' values, where it is."""
    parts: Sequence[Range]
    """Of a reduce-scatter: first group and end, by the rank that adds them."""
    groups: int


def pack(plan: FlowPlan, mask: Mask, scattered: bool) -> Packing:
    """Each chosen chunk begins a new group: no scale is shared by two of them."""
    begin, count = plan.table.begin[mask], plan.table.count[mask]
    groups = -(-count // GROUP_VALUES)
    first = starts(groups)
    within = np.arange(int(count.sum())) - np.repeat(starts(count), count)
    parts: list[Range] = []
    if scattered:
        ends = [int(groups[begin < end].sum()) for _, end in plan.layout.parts]
        parts = list(zip([0, *ends[:-1]], ends, strict=True))
    return Packing(
        mask,
        np.stack((begin, count, first), 1) if len(begin) else np.zeros((0, 3), np.int64),
        torch.from_numpy(np.repeat(begin, count) + within),
        torch.from_numpy(np.repeat(first * GROUP_VALUES, count) + within),
        parts,
        int(groups.sum()),
    )


def fingerprint(mask: Mask) -> Tensor:
    """uint8 [8], of which ranks take the largest byte by byte: a checksum of what travels, and its complement.

    Where the largest of all complements is the complement of the largest checksum, all ranks have the same.
    """
    checksum = np.frombuffer(zlib.crc32(np.packbits(mask).tobytes()).to_bytes(4, "little"), np.uint8)
    return torch.from_numpy(np.concatenate((checksum, ~checksum)))


def checked_codes(importance: Tensor) -> NDArray[np.uint8]:
    """The importance without the fingerprint that follows it. Raises ReplicaError: ranks chose different chunks."""
    codes, checksum, complement = np.split(importance.numpy(), [-8, -4])
    if (checksum != ~complement).any():
        raise ReplicaError(
            "ranks chose different chunks, so their sums are of different values; accepted: end_step(applied=...) with "
            "the same word on all ranks, and states of the same step"
        )
    return codes
