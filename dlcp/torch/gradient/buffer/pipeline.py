"""The pipeline of a recipe: what happens to a flat buffer between the gradient and what all ranks apply.

    layout -> memory -> selector -> codec -> exchange -> apply

The *memory* adds what earlier steps could not send, the *selector* chooses what travels or may be lost, the *codec*
says in how many bits, the *exchange* is the collective, and what it could not carry goes back to the memory before the
result is *applied*. A pipeline composes these stages; recipes/table.py lists the compositions. The state (state.py)
is the account around them: it counts steps and bytes, and knows no exchange.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from dlcp.torch.gradient.layout import Layout
from dlcp.transport.communicator import Reduction

if TYPE_CHECKING:
    from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer
    from dlcp.torch.gradient.residual.feedback import FeedbackMemory
    from dlcp.torch.gradient.residual.memory import ResidualMemory
    from dlcp.torch.gradient.residual.report import ResidualReport
    from dlcp.torch.process_group import ProcessGroup
    from dlcp.transport.communicator import Communicator

Range = tuple[int, int]
"""First element and end."""


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
    group: ProcessGroup
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


class Pipeline(Protocol):
    """What a recipe makes of buffers. Methods on a step are called by one thread, with the state's lock held."""

    sequences: int
    """How many collectives it starts for a buffer; the same on all ranks."""

    @property
    def residual(self) -> ResidualMemory | FeedbackMemory | None:
        """What waits for the next step; None: nothing ever does."""

    @property
    def wants_norm(self) -> bool:
        """Whether end_step needs the norm of the step's results."""

    def begin_step(self, loss_scale: float) -> None:
        """A step begins, whose gradients are multiplied by `loss_scale`."""

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        """Starts the collectives of a buffer; any thread."""

    def cancel(self, key: Hashable) -> None:
        """A buffer could not be started, or its collective failed before it was settled."""

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        """The optimizer used the step's gradients, or not: then it never was. What is kept; None: no memory."""

    def reset(self, names: Iterable[str] | None) -> None:
        """Writes off what is kept of these parameters; None: of all."""

    def state_dict(self) -> dict[str, Any]:
        """All that the next step needs, as plain values and tensors. Between steps."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what state_dict() of this recipe returned; changes nothing if it raises. Raises ValueError."""

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        """The parameters that a state of this recipe knows. Raises KeyError: it is none."""
