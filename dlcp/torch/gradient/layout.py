"""Which parameter lies where in a flat buffer of gradients.

The only place where buffers and parameters meet: whatever outlives a step is kept by parameter name and offset in the
parameter, and is mapped into and out of a buffer by the layout that the buffer has today.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Range = tuple[int, int]
"""First element and end."""


class Segment(NamedTuple):
    """Elements of one parameter that lie in a row in a buffer."""

    name: str
    """The parameter's, as model.named_parameters() has it."""
    offset: int
    """First element, in the flattened parameter."""
    begin: int
    """First element, in the buffer."""
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def end(self) -> int:
        """One past the last element in the buffer."""
        return self.begin + self.count


class Piece(NamedTuple):
    """A part of a segment."""

    segment: Segment
    begin: int
    """In the buffer."""
    end: int

    @property
    def offset(self) -> int:
        """First element, in the flattened parameter."""
        return self.segment.offset + self.begin - self.segment.begin


@dataclass(frozen=True, slots=True)
class Layout:
    """Segments of a buffer of `numel` elements, in order and apart. Elements of no segment are padding."""

    segments: tuple[Segment, ...]
    numel: int

    def __post_init__(self) -> None:
        at = 0
        for segment in self.segments:
            if segment.begin < at or segment.count < 0 or segment.end > self.numel:
                raise ValueError(
                    f"{segment} does not fit: accepted are segments in order, apart, within {self.numel} elements"
                )
            at = segment.end

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, int]]) -> Layout:
        """Whole parameters one after the other: names and numbers of elements."""
        segments, at = [], 0
        for name, count in tensors:
            segments.append(Segment(name, 0, at, count))
            at += count
        return cls(tuple(segments), at)

    def pieces(self, begin: int, end: int) -> Iterator[Piece]:
        """What of the segments lies from `begin` to `end` of the buffer, in order; padding is left out."""
        first = bisect.bisect_right(self.segments, begin, key=lambda segment: segment.end)
        for segment in self.segments[first:]:
            if segment.begin >= end:
                return
            if segment.count:
                yield Piece(segment, max(begin, segment.begin), min(end, segment.end))

    def part(self, begin: int, end: int) -> Layout:
        """The layout of the buffer's elements from `begin` to `end` alone."""
        return Layout(
            tuple(
                Segment(piece.segment.name, piece.offset, piece.begin - begin, piece.end - piece.begin)
                for piece in self.pieces(begin, end)
            ),
            end - begin,
        )

    def without(self, names: Collection[str]) -> Layout:
        """The layout in which these parameters are padding."""
        return Layout(tuple(one for one in self.segments if one.name not in names), self.numel)

    @property
    def place(self) -> tuple[str, int, int]:
        """What ranks can know a buffer by, in whatever order they have them: where it begins, and how long it is."""
        name, offset = self.segments[0][:2] if self.segments else ("", 0)
        return name, offset, self.numel

    def names(self) -> Sequence[str]:
        """The parameters, in order, each once."""
        return tuple(dict.fromkeys(segment.name for segment in self.segments))
