"""What a sender adds to its gradient before it chooses, and what it keeps of the rest.

    v = gradient + kept; what is not chosen is kept                                error feedback
    u' = m u + gradient; v' = v + u'; where v' is chosen, both are 0 again         momentum correction, factor masking

The second is of Deep Gradient Compression (Lin et al., ICLR 2018, sections 3.1 and 3.2) and of RedSync (arXiv
1808.04357); an optimizer with momentum 0 is presumed then. Both are kept whole, by name and offset, in streams
(feedback.py): a skipped step never was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.coding.plan import CodePlan
from dlcp.torch.gradient.residual.feedback import FROM_SENDER, FeedbackMemory, KeptStream
from dlcp.torch.gradient.residual.saved import VERSION

VELOCITY = "velocity"
_CPU = torch.device("cpu")


class SparseMemory(FeedbackMemory):
    """What one rank keeps. `momentum`: None: error feedback alone."""

    def __init__(self, momentum: float | None = None) -> None:
        super().__init__((FROM_SENDER,) if momentum is None else (FROM_SENDER, VELOCITY))
        self._momentum = momentum

    def open_values(
        self, buffer: GradientBuffer, plan: CodePlan, device: torch.device = _CPU
    ) -> SparseValues:
        """The streams of a buffer for this step, on a device; with the state's lock held."""
        velocity = None
        if self._momentum is not None:
            velocity = self.open(VELOCITY, buffer.key, plan.stream, device=device, unused=buffer.call.unused)
        kept = self.open(FROM_SENDER, buffer.key, plan.stream, device=device, unused=buffer.call.unused)
        return SparseValues(kept, velocity, self._momentum or 0.0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As FeedbackMemory; a state without velocities brings none."""
        nothing = {"version": VERSION, "batches": []}
        super().load_state_dict({side: state.get(side, nothing) for side in self._sides})


class SparseValues:
    """A buffer's values in one step: gradient and what was kept, of which some are taken away to be sent."""

    def __init__(self, kept: KeptStream, velocity: KeptStream | None, momentum: float) -> None:
        self._kept = kept
        self._velocity = velocity
        self._momentum = momentum

    @property
    def values(self) -> Tensor:
        """float32, in the order of the stream; changed in place where something is taken, once loaded."""
        return self._kept.after

    def load(self, memory: Tensor, plan: CodePlan) -> None:
        """Copies the gradient in. `memory`: the buffer, on the same device."""
        for begin, count, at in plan.runs.tolist():
            self.values[at : at + count] = memory[begin : begin + count]

    def add_kept(self) -> None:
        """Adds what was kept."""
        kept, velocity = self._kept, self._velocity
        if velocity is None:
            kept.after.add_(kept.before, alpha=kept.factor)
            return
        torch.add(kept.after, velocity.before, alpha=self._momentum * velocity.factor, out=velocity.after)
        torch.add(velocity.after, kept.before, alpha=kept.factor, out=kept.after)

    def take(self, begin: int, indices: Tensor, sent: Tensor) -> None:
        """Elements of a section that begins at `begin` are sent, as `sent` says: what that leaves is kept."""
        self.values[begin:].index_add_(0, indices, -sent.expand(len(indices)))
        finite = sent.isfinite().all()
        if not finite:
            # A difference of what is not finite is no number: nothing is left.
            self.values[begin:].index_fill_(0, indices, 0.0)
        if self._velocity is not None:
            self._velocity.after[begin:].index_fill_(0, indices, 0.0)

    def leave(self, indices: Tensor, left: Tensor) -> None:
        """Elements are sent, but for what is `left` of each."""
        self.values.index_copy_(0, indices, left)
        if self._velocity is not None:
            self._velocity.after.index_fill_(0, indices, 0.0)

    def take_all(self) -> Tensor:
        """All values are sent: a copy of them; nothing is kept."""
        taken = self.values.clone()
        self.values.zero_()
        if self._velocity is not None:
            self._velocity.after.zero_()
        return taken

    def write_off(self) -> None:
        """What is not finite and not sent is written off: what had been kept there stays."""
        for stream in (self._kept, self._velocity):
            # The sum of finite values may overflow; then this looks in vain.
            if stream is not None and not math.isfinite(float(stream.after.sum())):
                torch.where(
                    stream.after.isfinite(), stream.after, stream.before * stream.factor, out=stream.after
                )


def names_of(residual: Mapping[str, Any]) -> Iterable[str]:
    """The parameters that a saved memory knows. Raises KeyError: it is none."""
    residual[FROM_SENDER]
    return {name: None for side in residual.values() for batch in side["batches"] for name in batch["names"]}
