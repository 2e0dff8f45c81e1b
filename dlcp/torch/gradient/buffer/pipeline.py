"""The pipeline of a recipe: what happens to a flat buffer between the gradient and what all ranks apply.

    layout -> memory -> selector -> codec -> exchange -> apply

The *memory* adds what earlier steps could not send. The *selector* chooses what travels or may be lost, and the *codec*
says in how many bits. The *exchange* is the collective. What it could not carry goes back to the memory before the
result is *applied*. A pipeline composes these stages. It sees the group of a buffer as its `peers`, and the state as
its `account`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol

from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer
from dlcp.torch.gradient.residual.feedback import FeedbackMemory
from dlcp.torch.gradient.residual.memory import ResidualMemory
from dlcp.torch.gradient.residual.report import ResidualReport


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
