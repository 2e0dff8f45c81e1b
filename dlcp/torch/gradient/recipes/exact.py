"""The recipe "exact": every bit of a gradient arrives, by the group's own choice of algorithm.

Memory, selector, codec: none. Exchange: all-reduce or reduce-scatter. Over one hub an all-reduce with `deadline_s` is
the sum, or the mean, of the ranks that were in time; what a late one brings is lost, and counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.exact_part import account_exact, start_sum
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.tensors import DATA_TYPES, readable, span
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual.report import ResidualReport


class ExactPipeline:
    """Buffers of one state, reduced as a plain call would; see buffer/pipeline.py."""

    sequences = 1
    wants_norm = False
    residual = None

    def __init__(self, account: Account) -> None:
        self._account = account

    def begin_step(self, loss_scale: float) -> None:
        pass

    def cancel(self, key: Hashable) -> None:
        pass

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        return None

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        prepared = self._prepare(buffer)
        memory, output = span(prepared.memory), span(prepared.output)
        dtype = DATA_TYPES[prepared.memory.dtype]
        deadline_s = self._account.options.deadline_s
        work = start_sum(self._account, buffer, output, memory, dtype, prepared, deadline_s=deadline_s)
        return PendingBuffer(prepared, [work], lambda: self._finish(buffer, prepared, work))

    def _prepare(self, buffer: GradientBuffer) -> PreparedBuffer:
        memory = readable(buffer.values, "gradients")
        with torch.no_grad(), self._account.lock:
            opened = self._account.buffers.output(buffer)
            if not buffer.scattered:
                opened[0].copy_(memory)
        return PreparedBuffer.of(buffer, memory, opened)

    def _finish(self, buffer: GradientBuffer, prepared: PreparedBuffer, work: Work) -> float | None:
        is_late = None if work.marks is None else buffer.rank not in work.contributors
        account_exact(self._account, buffer, prepared.name, [work], is_late)
        with torch.no_grad():
            return self._account.note_result(prepared, buffer.group)

    def reset(self, names: Iterable[str] | None) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        return ()
