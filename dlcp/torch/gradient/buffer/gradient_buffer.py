"""A buffer of gradients as its caller gave it: values, layout, the ranks that sum it, and the options of the call."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dlcp.torch.gradient.buffer.peers import Peers
from dlcp.torch.gradient.layout import Layout, Range
from dlcp.transport.communicator import Communicator, Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferCall:
    """Options for the exchange of one buffer."""

    average: bool
    """The mean over all ranks; False: the sum."""
    traffic_class: int | None = None
    """0 to 6, 6 leaves first; None: by the layers in the buffer."""
    last_of_step: bool | None = None
    """Whether it ends the step; None: not known, then the step ends with state.end_step(), or when a buffer of this
    layout comes again."""
    sequence: int | None = None
    """The first of `sequences` numbers of collectives that Communicator.reserve took; None: the next ones."""
    factor: float | None = None
    """Of the result, on top of the reduction."""
    into: torch.Tensor | None = None
    """Where the result goes, such as where the buffer came from; None: to memory of its own."""
    opts: Any = None
    """torch's options of the call."""
    unused: Collection[str] = ()
    """Parameters that this rank's backward did not use. If no rank's did, nobody applies their result: so what is kept
    of them is not sent, and waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBuffer:
    """A buffer that is to be reduced, as its caller gave it."""

    key: Hashable
    """Identifies the buffer among those of its step, on this rank."""
    values: torch.Tensor
    """1-D, contiguous; the pipeline may change it."""
    layout: Layout
    parts: Sequence[Range]
    """By rank, the elements whose sum it gets; all of them together are the result of an all-reduce."""
    scattered: bool
    """The result is this rank's part alone (reduce-scatter); False: all of it (all-reduce)."""
    step: int
    """Number of the step."""
    call: BufferCall
    group: Peers
    communicator: Communicator
    """The one that numbers its collectives."""

    @property
    def rank(self) -> int:
        """This rank in the group."""
        return self.group.rank()

    @property
    def own(self) -> Range:
        """This rank's part."""
        return self.parts[self.rank]

    @property
    def op(self) -> Reduction:
        """Mean or sum."""
        return Reduction.AVG if self.call.average else Reduction.SUM

    @property
    def output_numel(self) -> int:
        """Elements of the result."""
        return self.own[1] - self.own[0] if self.scattered else self.values.numel()

    @property
    def sent_bytes(self) -> int:
        """Bytes of the buffer that other ranks add."""
        return (self.values.numel() - self.own[1] + self.own[0]) * self.values.element_size()
