"""One step of training, seen from the gradients: what belongs to it, and when it is over.

    open ── last buffer ──> full ── next buffer, end_step(), state_dict() ──> ended

A step is full when a caller says that a buffer is its last (DDP), and in any case when a buffer comes that it has seen
already. It ends when the next step begins, or when the caller ends it: by then the optimizer has made its step, or
skipped it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer


@dataclass(slots=True)
class Step:
    """A step that has begun."""

    number: int
    """Counted from 0; the same on all ranks."""
    loss_scale: float
    """What the gradients are multiplied by; 1 without a scaler."""
    buffers: list[PendingBuffer] = field(default_factory=list)
    """Its buffers, in the order of their start."""
    keys: set[Hashable] = field(default_factory=set)
    """The keys of its buffers so far."""
    full: bool = False
    """Whether no buffer is to come."""
    has_last: bool = False
    """Whether callers mark the step's last buffer; a step that restarts without that mark was broken off."""
    failed: bool = False
    """Whether a buffer could not be started."""
    discarded: Collection[str] = ()
    """Parameters whose results nobody has applied."""
    starting: int = 0
    """Buffers of the step, of any thread, that are about to be started."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards `starting`."""

    def begin_start(self) -> None:
        """A buffer of it is about to be started."""
        with self.changed:
            self.starting += 1

    def end_start(self) -> None:
        """It was started, or could not be."""
        with self.changed:
            self.starting -= 1
            self.changed.notify_all()

    def gradient_norm(self) -> float | None:
        """L2 norm of the step's results, unscaled; of shards: of this rank's. None: it was not wanted."""
        squares = [buffer.square for buffer in self.buffers if buffer.square is not None]
        return math.sqrt(sum(squares)) / self.loss_scale if squares else None

    def wait(self) -> bool:
        """Blocks until every buffer is settled; whether all went well.

        Raises no errors of buffers: a buffer's own work or future raises them.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.starting == 0)
        ended_well = not self.failed
        for buffer in list(self.buffers):
            try:
                buffer.wait()
            except Exception:  # what settling raised, whatever it was; its own work raises it to the caller
                ended_well = False
        return ended_well
