"""A message of chosen elements: what each rank chose of a stream, and how it is read.

A stream is cut into *sections*, in each of which a choice is made. A frame is int32, section after section:

    indices [count], values [count] as float32            of a section of single values
    mean [1] as float32, indices [count]                  of a section whose elements share one value

Indices count from the section's begin. The *count* of each section is not in the frame: either it is fixed, or the
ranks have told each other before. It is how many elements there are, and which of the two forms they have: n of
single values, -1 - n of n that share one. So ranks need not have the same form for a section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Section(NamedTuple):
    """Elements of a stream in which a choice is made by itself."""

    begin: int
    end: int
    shared: bool
    """Elements that this rank chooses of it travel as one mean; other ranks may differ."""
    place: tuple[str, int, int]
    """What it is known by in every step."""

    @property
    def numel(self) -> int:
        """How many elements."""
        return self.end - self.begin


class Choice(NamedTuple):
    """What was chosen of a section."""

    indices: Tensor
    """int64, ascending, from the section's begin."""
    values: Tensor
    """float32: as many; of a section that shares one value, that value, of shape [1]."""


def counts_of(sections: Sequence[Section], choices: Sequence[Choice]) -> Tensor:
    """The count of each section: int32."""
    numels = [len(choice.indices) for choice in choices]
    said = [-1 - n if section.shared else n for section, n in zip(sections, numels, strict=True)]
    return torch.tensor(said, dtype=torch.int32)


def frame_numel(counts: Sequence[int]) -> int:
    """The int32s of a frame with these counts."""
    return sum(2 * count if count >= 0 else -count for count in counts)


def encode(sections: Sequence[Section], choices: Sequence[Choice]) -> Tensor:
    """The frame: int32, 1-D."""
    parts: list[Tensor] = []
    for section, choice in zip(sections, choices, strict=True):
        both = choice.indices.to(torch.int32), choice.values.view(torch.int32)
        parts += reversed(both) if section.shared else both
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int32)


def add_frame(total: Tensor, frame: Tensor, sections: Sequence[Section], counts: Sequence[int]) -> None:
    """Adds what a frame says to a stream. `total`: float32; begins with the first section's first element."""
    at, origin = 0, sections[0].begin if sections else 0
    for section, count in zip(sections, counts, strict=True):
        into = total[section.begin - origin : section.end - origin]
        if count < 0:
            end = at - count
            mean, indices = frame[at : at + 1].view(torch.float32), frame[at + 1 : end]
            into.index_add_(0, indices, mean.expand(len(indices)))
        else:
            end = at + 2 * count
            values = frame[at + count : end].view(torch.float32)
            into.index_add_(0, frame[at : at + count], values)
        at = end
