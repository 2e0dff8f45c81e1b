"""Where the elements of a buffer lie when it travels coded: which are coded, in which group, and which stay exact.

Coded values form a *stream*: one segment after the other, each from a new group on, so that no scale is shared by two
parameters. The groups of a stream are split among the ranks that add them. What is not coded (small parameters, those
of one dimension, padding) travels exactly, one run after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlcp.torch.gradient.layout import Layout, Piece, Range, Segment
from dlcp.transport.coded import GROUP_VALUES, group_parts

Runs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CodePlan:
    """Where the elements of buffers of one layout lie."""

    group_values: int
    """Of a group: 1 where values have no scale to share."""
    runs: Runs
    """int64 [runs, 3]: first element in the buffer, count, first group; ascending."""
    stream: Layout
    """The parameters in the stream: element 0 is the first value of group 0."""
    parts: tuple[Range, ...]
    """First group and end, by the rank that adds them."""
    exact: Runs
    """int64 [runs, 2]: first element in the buffer, and count; ascending, so by rank."""
    exact_counts: tuple[int, ...]
    """Exact elements, by the rank whose part they lie in."""

    @property
    def groups(self) -> int:
        """Of the stream."""
        return self.parts[-1][1]

    def part_runs(self, rank: int) -> Runs:
        """The runs of a rank's groups, counted from the part's first group; of a reduce-scatter."""
        first, end = self.parts[rank]
        runs = self.runs[(self.runs[:, 2] >= first) & (self.runs[:, 2] < end)].copy()
        runs[:, 2] -= first
        return runs

    def part_stream(self, rank: int) -> Layout:
        """The parameters in a rank's groups: element 0 is the first value of its first group."""
        begin, end = (group * self.group_values for group in self.parts[rank])
        segments = (
            Segment(piece.segment.name, piece.offset, piece.begin - begin, piece.end - piece.begin)
            for piece in self.stream.pieces(begin, end)
        )
        return Layout(tuple(segments), end - begin)


def plan_of(
    layout: Layout,
    is_coded: Callable[[Segment], bool],
    parts: Sequence[Range],
    *,
    scattered: bool,
    shares: Sequence[int] | None = None,
    group_values: int = GROUP_VALUES,
) -> CodePlan:
    """The plan of buffers of a layout. `parts`: elements by rank; `scattered`: each rank wants its part alone.

    Of an all-reduce the groups are split in these `shares` of ranks (None: evenly), wherever parts begin.
    """
    runs: list[tuple[int, int, int]] = []
    segments: list[Segment] = []
    ends: list[int] = []
    groups = 0
    for begin, end in parts if scattered else [(0, layout.numel)]:
        for piece in _coded(layout, is_coded, begin, end):
            count = piece.end - piece.begin
            runs.append((piece.begin, count, groups))
            segments.append(Segment(piece.segment.name, piece.offset, groups * group_values, count))
            groups += -(-count // group_values)
        ends.append(groups)
    by_rank = group_parts(groups, len(parts), shares)
    if scattered:
        by_rank = list(zip([0, *ends[:-1]], ends, strict=True))
    exact, counts = _rest(runs, parts)
    return CodePlan(
        group_values,
        np.array(runs, np.int64).reshape(-1, 3),
        Layout(tuple(segments), groups * group_values),
        tuple(by_rank),
        exact,
        counts,
    )


def _coded(layout: Layout, is_coded: Callable[[Segment], bool], begin: int, end: int) -> Iterator[Piece]:
    return (piece for piece in layout.pieces(begin, end) if is_coded(piece.segment))


def _rest(runs: Sequence[tuple[int, int, int]], parts: Sequence[Range]) -> tuple[Runs, tuple[int, ...]]:
    """What lies between the coded runs, cut at the parts, and how much of it is in each part."""
    rest: list[tuple[int, int]] = []
    counts = []
    coded = iter([*runs, (parts[-1][1], 0, 0)])
    begin, count, _ = next(coded)
    for at, end in parts:
        total = 0
        while at < end:
            if at < begin:
                stop = min(begin, end)
                rest.append((at, stop - at))
                total += stop - at
                at = stop
            else:
                at = max(at, min(begin + count, end))
                if at == begin + count:
                    begin, count, _ = next(coded, (parts[-1][1], 0, 0))
        counts.append(total)
    return np.array(rest, np.int64).reshape(-1, 2), tuple(counts)
