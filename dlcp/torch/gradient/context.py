"""Gradients of hand-written loops: plain calls of torch.distributed, marked.

    with dlcp.torch.gradients(state):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)

Marked are all_reduce and reduce_scatter_single (reduce_scatter_tensor) of floating point with SUM, AVG or PREMUL_SUM,
on groups of dlcp, called by this thread; other calls inside are unchanged. Results are where a plain call puts them. An
option of a group, Options(gradients=...), does the same to all such calls on that group.

Residuals are kept under the tensor's name: that of `layout` or `name`, if given; that of the parameter, if the tensor
is its .grad; otherwise the number of the call in its step and the tensor's size. So calls without names must come in
the same order in every step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dlcp.torch.gradient import scope
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.buffer.pending_buffer import GradientWork, PendingBuffer
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.state import GradientState
from dlcp.torch.tensors import FLOATING_DTYPES, reduction
from dlcp.transport.communicator import Reduction

if TYPE_CHECKING:
    from dlcp.torch.gradient.options import GradientOptions
    from dlcp.torch.work import CollectiveWork

_MAY_LOSE = (Reduction.SUM, Reduction.AVG)


@contextlib.contextmanager
def gradients(
    state: GradientState,
    *,
    name: str | None = None,
    layout: Layout | None = None,
    ends_step: bool | None = None,
) -> Iterator[GradientState]:
    """Makes the gradient reductions inside follow the state's recipe.

    `name`: of the one tensor that is reduced inside; `layout`: of the one flat buffer, which holds several parameters.
    `ends_step`: whether the step's last gradient is among them; None: if neither name nor layout is given. Calls inside
    raise ValueError for a second tensor of the same name or layout; otherwise what they raise outside.
    """
    if not isinstance(state, GradientState):
        raise TypeError(f"state is a {type(state).__name__}; accepted: a dlcp.torch.GradientState")
    if name is not None and layout is not None:
        raise ValueError("name and layout are both given; accepted: one of them, or neither")
    token = scope.current.set(MarkedCalls(state, name, layout))
    try:
        yield state
    finally:
        scope.current.reset(token)
    if ends_step or (ends_step is None and name is None and layout is None):
        state.mark_last()


def marked_calls(gradients: GradientOptions | GradientState) -> MarkedCalls:
    """For all calls on one group, from Options.gradients."""
    return MarkedCalls(
        gradients if isinstance(gradients, GradientState) else GradientState(options=gradients)
    )


class MarkedCalls:
    """Takes over what may be lost of a group's calls; see scope.Scope."""

    def __init__(self, state: GradientState, name: str | None = None, layout: Layout | None = None) -> None:
        self.state = state
        """Whose gradients they are."""
        self._name = name
        self._layout = layout
        self._used = False

    def all_reduce(
        self, group: dist.ProcessGroup, tensors: Sequence[torch.Tensor], opts: Any
    ) -> CollectiveWork | None:
        """The work of an all_reduce in place; None: it is none that may be lost."""
        reduced = _reduction(tensors, opts)
        if reduced is None:
            return None
        average, factor = reduced
        exchange, pending = exchange_of(self.state, group), []
        for tensor in tensors:
            call = BufferCall(average=average, factor=factor, into=tensor, opts=opts)
            # The caller's tensor holds its old values until it holds the final ones.
            buffer = _flat(tensor).clone()
            pending.append(exchange.start_all_reduce(buffer, self._layout_of(tensor), call))
        return _work(pending, list(tensors), opts)

    def reduce_scatter(
        self,
        group: dist.ProcessGroup,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> CollectiveWork | None:
        """The work of a reduce_scatter of equal parts; None: it is none that may be lost."""
        reduced = _reduction([*inputs, *outputs], opts)
        if reduced is None:
            return None
        average, factor = reduced
        exchange, pending = exchange_of(self.state, group), []
        for output, source in zip(outputs, inputs, strict=True):
            call = BufferCall(average=average, factor=factor, into=output, opts=opts)
            # The caller's input stays as it is.
            buffer = _flat(source).clone()
            pending.append(exchange.start_reduce_scatter(buffer, self._layout_of(source), call))
        return _work(pending, list(outputs), opts)

    def _layout_of(self, tensor: torch.Tensor) -> Layout:
        if self._name is not None or self._layout is not None:
            if self._used:
                raise ValueError(
                    f"a second tensor is reduced as {self._name or 'one layout'}; accepted: one, in each gradients(...)"
                )
            self._used = True
        if self._layout is not None:
            return self._layout
        name = self._name or self.state.names.of_gradient(tensor) or self.state.next_name(tensor.numel())
        return Layout((Segment(name, 0, 0, tensor.numel()),), tensor.numel())


def _reduction(tensors: Sequence[torch.Tensor], opts: Any) -> tuple[bool, float | None] | None:
    """Whether to average, and the factor of the result; None: a plain call."""
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.dtype not in FLOATING_DTYPES or not tensor.numel():
            return None
    op, factor = reduction(torch.distributed.ReduceOp.SUM if opts is None else opts.reduceOp, "gradients")
    return (op is Reduction.AVG, factor) if op in _MAY_LOSE else None


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """One dimension, in memory of its own if the tensor's is not contiguous."""
    return tensor.detach().contiguous().view(-1)


def _work(pending: list[PendingBuffer], result: list[torch.Tensor], opts: Any) -> CollectiveWork:
    work = GradientWork(pending, result)
    if opts is None or opts.asyncOp:
        # Results are copied back, and residuals kept, even if no caller waits.
        work.get_future()
    return work
