"""The recipe "exact": every bit of a gradient arrives, by the group's own choice of algorithm.

Memory, selector, codec: none. Exchange: all-reduce or reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from dlcp.torch.gradient.exact_part import account_exact
from dlcp.torch.gradient.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.gradient.pipeline import GradientBuffer
from dlcp.torch.tensors import DATA_TYPES, readable, span
from dlcp.transport.communicator import Reduction
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual_report import ResidualReport
    from dlcp.torch.gradient.state import GradientState


class ExactPipeline:
    """Buffers of one state, reduced as a plain call would; see pipeline.Pipeline."""

    sequences = 1
    wants_norm = False
    residual = None

    def __init__(self, state: GradientState) -> None:
        self._state = state

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
        op = Reduction.AVG if buffer.call.average else Reduction.SUM
        name = "reduce_scatter" if buffer.scattered else "all_reduce"
        with self._state.starting(buffer, name, prepared) as (communicator, how):
            if buffer.scattered:
                work = communicator.reduce_scatter(output, memory, dtype, op, **how)
            else:
                work = communicator.all_reduce(output, dtype, op, **how)
        return PendingBuffer(prepared, [work], lambda: self._finish(buffer, prepared, work))

    def _prepare(self, buffer: GradientBuffer) -> PreparedBuffer:
        memory = readable(buffer.values, "gradients")
        with torch.no_grad(), self._state.lock:
            output, result, back = self._state.buffers.output(buffer)
            if not buffer.scattered:
                output.copy_(memory)
        return PreparedBuffer(
            key=buffer.key,
            layout=buffer.layout,
            step=buffer.step,
            memory=memory,
            output=output,
            result=result,
            back=back,
            factor=buffer.call.factor,
        )

    def _finish(self, buffer: GradientBuffer, prepared: PreparedBuffer, work: Work) -> float | None:
        account_exact(self._state, buffer, prepared.name, [work])
        with torch.no_grad():
            return self._state.note_result(prepared, buffer.group)

    def reset(self, names: Iterable[str] | None) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        return ()
