"""A message of chosen elements: what each rank chose of a stream, and how it is read.

A stream is cut into *sections*, in each of which a choice is made. A frame is int32, section after section:

    indices [count], values [count] as float32            of a section of single values
    mean [1] as float32, indices [count]                  of a section whose elements share one value

Indices count from the section's begin. How many elements each section has is not in the frame: either it is fixed, or
the ranks have told each other before.
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
    """Its chosen elements travel as one mean."""
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


def frame_numel(sections: Sequence[Section], counts: Sequence[int]) -> int:
    """The int32s of a frame with so many elements of each section."""
    return sum(
        1 + count if section.shared else 2 * count for section, count in zip(sections, counts, strict=True)
    )


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
        if section.shared:
            mean, indices = frame[at : at + 1].view(torch.float32), frame[at + 1 : at + 1 + count]
            into.index_add_(0, indices, mean.expand(count))
            at += 1 + count
        else:
            values = frame[at + count : at + 2 * count].view(torch.float32)
            into.index_add_(0, frame[at : at + count], values)
            at += 2 * count
