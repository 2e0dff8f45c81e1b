"""The account of a model's gradients, as a recipe sees it: GradientState (state.py) is one.

Apart from peers.py, since an account takes buffers, and a buffer names its peers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.ledger import Ledger
from dlcp.torch.gradient.buffer.peers import Peers
from dlcp.torch.gradient.buffer.pending_buffer import PreparedBuffer
from dlcp.torch.gradient.buffer.pool import BufferPool
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.rules.layout_rules import LayoutRules
from dlcp.torch.gradient.rules.names import ParameterNames
from dlcp.transport.communicator import Communicator


class Account(Protocol):
    """What is counted, and what holds for all buffers."""

    @property
    def options(self) -> GradientOptions:
        """What is done with gradients; the same on all ranks."""

    @property
    def names(self) -> ParameterNames:
        """Of the model's parameters."""

    @property
    def rules(self) -> LayoutRules:
        """The rules for each buffer."""

    @property
    def buffers(self) -> BufferPool:
        """Memory of results, valid until the next step begins."""

    @property
    def ledger(self) -> Ledger:
        """Bytes sent and lost."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Guards what buffers share: held for moments, never while something is waited for."""

    def starting(
        self, buffer: GradientBuffer, collective: str, keep: object, place: int = 0, agree: str = ""
    ) -> AbstractContextManager[tuple[Communicator, Any]]:
        """`with` around the start of a buffer's collective: gives the communicator and how to start it.

        `keep`: the collective's memory. `place`: of the collective among the buffer's. `agree`: what must be equal on
        all ranks besides the options.
        """

    def note_result(self, prepared: PreparedBuffer, group: Peers) -> float | None:
        """A buffer's result is in its output, but for the call's factor. Its squared L2 norm; None: no rule asks."""
