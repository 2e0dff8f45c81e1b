"""Whether plain calls of this thread are marked as gradients; a process group checks before it starts one.

Separate from context.py, so that a group without gradients loads none of that code.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from dlcp.torch.gradient.state import GradientState
    from dlcp.torch.work import CollectiveWork


class Scope(Protocol):
    """Takes calls over, by a state's recipe. A method that returns None leaves the call a plain one."""

    state: GradientState
    """The state of the gradients."""

    def all_reduce(
        self, group: dist.ProcessGroup, tensors: Sequence[torch.Tensor], opts: Any
    ) -> CollectiveWork | None:
        """The work of an all_reduce."""

    def reduce_scatter(
        self,
        group: dist.ProcessGroup,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> CollectiveWork | None:
        """The work of a reduce_scatter of inputs in equal parts."""


current: ContextVar[Scope | None] = ContextVar("dlcp_gradients", default=None)
"""Of this thread: set by the context manager `gradients`."""
