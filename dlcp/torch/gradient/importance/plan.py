"""What marking needs to know about a buffer before it reads a value: where blocks, parts and parameters lie.

Made once per layout, so that marking a buffer has no loop in Python. It holds no statistics.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.torch.gradient.layout import Layout


class Runs(NamedTuple):
    """The elements between two edges of blocks, parts or segments, in order, without gaps from `begin` to `end`."""

    begin: int
    end: int
    lengths: NDArray[np.int64]
    segments: NDArray[np.int64]
    """By run; -1: padding."""
    blocks: NDArray[np.int64]
    """By run; -1: between parts."""


class ImportancePlan:
    """Tables of a layout cut into parts and blocks, but for the part `skip`.

    Raises ValueError if parts are not ascending and apart, or blocks are not whole elements.
    """

    def __init__(
        self,
        layout: Layout,
        numbers: NDArray[np.int64],
        critical: frozenset[str],
        parts: Sequence[tuple[int, int]],
        block_bytes: Sequence[int],
        skip: int | None,
        item_bytes: int,
    ) -> None:
        self.layout = layout
        self.numbers = numbers
        """By segment, the number of its parameter."""
        self.item_bytes = item_bytes
        if len(block_bytes) != len(parts):
            raise ValueError(f"{len(block_bytes)} sizes of blocks; accepted: {len(parts)}, one per part")
        if skip is not None and not 0 <= skip < len(parts):
            raise ValueError(f"skip is {skip}; accepted: 0 to {len(parts) - 1}, or None")
        if wrong := [size for size in block_bytes if size < item_bytes or size % item_bytes]:
            raise ValueError(
                f"blocks of {wrong[0]} bytes; accepted: whole elements of {item_bytes} bytes, 1 or more"
            )
        at = 0
        for begin, end in parts:
            if not at <= begin <= end <= layout.numel:
                raise ValueError(
                    f"parts are {parts}; accepted: ascending and apart, within {layout.numel} elements"
                )
            at = end
        kept = [owner for owner in range(len(parts)) if owner != skip]
        self.parts = tuple(parts[owner] for owner in kept)
        self.block_elements = tuple(block_bytes[owner] // item_bytes for owner in kept)
        segments = [(segment.begin, segment.count) for segment in layout.segments]
        self.segments = np.array(segments, np.int64).reshape(-1, 2)
        self.critical = np.array([segment.name in critical for segment in layout.segments], np.bool_)
        self.table = np.array(
            [(*part, size) for part, size in zip(self.parts, self.block_elements, strict=True)], np.int64
        ).reshape(-1, 3)
        begins, ends, sizes = self.table.T
        blocks = -(-(ends - begins) // sizes)
        self.blocks = int(blocks.sum())
        self.blocks_of_parts = blocks.tolist()
        self.first_blocks = np.cumsum(blocks) - blocks
        """By part, the first of its blocks."""
        covered = _covered(self.table[:, :2], np.stack([self.segments[:, 0], self.segments.sum(1)]))
        self.counts = (covered[1] - covered[0]).astype(np.float64)
        """By segment, its elements that lie in parts."""
        self._lengths: dict[torch.device, torch.Tensor] = {}

    @functools.cached_property
    def block_numels(self) -> NDArray[np.int64]:
        """By block, its elements that lie in segments."""
        runs = self.runs
        held = (runs.blocks >= 0) & (runs.segments >= 0)
        return np.bincount(runs.blocks[held], runs.lengths[held], self.blocks).astype(np.int64)

    @functools.cached_property
    def critical_blocks(self) -> NDArray[np.bool_]:
        """By block, whether a critical segment has an element in it."""
        runs = self.runs
        found = np.zeros(self.blocks, np.bool_)
        held = (runs.blocks >= 0) & (runs.segments >= 0)
        held[held] = self.critical[runs.segments[held]]
        found[runs.blocks[held]] = True
        return found

    @functools.cached_property
    def runs(self) -> Runs:
        """The buffer cut at every edge there is."""
        begins, ends, sizes = self.table.T
        edges = [np.arange(begin, end, size) for begin, end, size in zip(begins, ends, sizes, strict=True)]
        edges += [ends, self.segments[:, 0], self.segments.sum(1)]
        first, last = (int(begins[0]), int(ends[-1])) if len(begins) else (0, 0)
        cuts = np.unique(np.concatenate(edges))
        cuts = cuts[(cuts >= first) & (cuts <= last)]
        at = cuts[:-1]
        part, inside = _find(self.table[:, 0], ends, at)
        block = np.full(len(at), -1)
        block[inside] = (self.first_blocks[part] + (at - begins[part]) // sizes[part])[inside]
        segment, inside = _find(self.segments[:, 0], self.segments.sum(1), at)
        return Runs(first, last, np.diff(cuts), np.where(inside, segment, -1), block)

    def lengths_on(self, device: torch.device) -> torch.Tensor:
        """The lengths of the runs, on a device."""
        if device not in self._lengths:
            self._lengths[device] = torch.from_numpy(self.runs.lengths).to(device)
        return self._lengths[device]


def _find(
    begins: NDArray[np.int64], ends: NDArray[np.int64], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Which of some ranges, ascending and apart, each element lies in, and whether it lies in one at all."""
    if not len(begins):
        return np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
    # Empty ranges begin where the one that holds an element begins, or before it: the last to begin holds it.
    held = np.flatnonzero(ends > begins)
    if not len(held):
        return np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
    place = np.searchsorted(begins[held], at, "right") - 1
    which = held[np.maximum(place, 0)]
    return which, (place >= 0) & (at < ends[which])


def _covered(ranges: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many elements before each place lie in ranges, which are ascending and apart."""
    if not len(ranges):
        return np.zeros_like(at)
    begins, ends = ranges.T
    before = np.concatenate([[0], np.cumsum(ends - begins)])
    place = np.searchsorted(begins, at, "right")
    # Of the last range that begins at or before the place, what lies beyond the place does not count.
    beyond = np.where(place > 0, np.maximum(ends[np.maximum(place, 1) - 1] - at, 0), 0)
    return before[place] - beyond
