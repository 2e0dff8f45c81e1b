"""The part of a buffer that travels exactly, beside what a recipe codes or chooses from.

Small parameters, those of one dimension, padding, and what the option `critical` names: few bytes, of which each
matters. The runs of a buffer are gathered into one tensor, which is reduced as it is, and put in their places again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.crossing import Crossing
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.element_runs import Indices
from dlcp.torch.gradient.layout import Segment
from dlcp.torch.tensors import DATA_TYPES, span
from dlcp.transport.bounded import CollectiveOutcome
from dlcp.transport.communicator import DataType
from dlcp.transport.span import Span
from dlcp.transport.work import Work


def is_exact(segment: Segment, account: Account) -> bool:
    """Whether a parameter travels exactly: it is small or has one dimension; or what the option `critical` says."""
    options, parameter = account.options, account.names.parameters.get(segment.name)
    rule = options.critical
    if rule is None:
        if parameter is None:
            return segment.count < options.small_numel
        return parameter.dim() <= 1 or parameter.numel() < options.small_numel
    if callable(rule):
        return parameter is not None and rule(segment.name, parameter)  # type: ignore[arg-type]
    return segment.name in rule


class ExactPart:
    """The exact elements of one buffer.

    `memory`: the buffer. `runs`: int64 [runs, 2], first element and count, ascending; `counts`: elements by the rank
    whose part they lie in. `crossing`: of a buffer that is worked on on its device; the values are there once it has
    waited.
    """

    def __init__(
        self, memory: torch.Tensor, runs: Indices, counts: Sequence[int], crossing: Crossing | None = None
    ) -> None:
        # Few runs, a parameter each: views are made sooner than gather() sorts them (19 µs for 137 with 13 runs).
        pieces = [memory[begin : begin + count] for begin, count in runs.tolist()]
        values = torch.cat(pieces) if pieces else torch.empty(0, dtype=memory.dtype)
        self.values = values if crossing is None or not pieces else crossing.down(values)
        """One run after the other, on the host; their sum once the collective is over."""
        self._runs = runs
        self._counts = counts

    def __len__(self) -> int:
        return len(self.values)

    def start(self, account: Account, buffer: GradientBuffer, keep: object, place: int) -> Work:
        """Starts its collective, number `place` of the buffer's."""
        dtype, whole = DATA_TYPES[self.values.dtype], span(self.values)
        if not buffer.scattered:
            return start_sum(account, buffer, whole, whole, dtype, keep, place)
        itemsize, at, inputs = self.values.element_size(), 0, []
        for count in self._counts:
            inputs.append(whole.part(at, count * itemsize))
            at += count * itemsize
        return start_sum(account, buffer, inputs[buffer.rank], inputs, dtype, keep, place)

    def put(self, output: torch.Tensor, buffer: GradientBuffer) -> None:
        """Puts the sums in their places in the buffer's result."""
        origin, first, last, at = 0, 0, output.numel(), 0
        if buffer.scattered:
            origin = first = buffer.own[0]
            last = buffer.own[1]
        values = self.values.to(output.device, non_blocking=True)
        for begin, count in self._runs.tolist():
            if first <= begin < last:
                output[begin - origin : begin - origin + count] = values[at : at + count]
            at += count


def start_sum(
    account: Account,
    buffer: GradientBuffer,
    output: Span,
    inputs: Span | Sequence[Span],
    dtype: DataType,
    keep: object,
    place: int = 0,
    deadline_s: float | None = None,
) -> Work:
    """Starts a sum or mean of which every bit arrives, as collective number `place` of the buffer's.

    As Communicator.reduce_scatter if the buffer is scattered, of all ranks; else an all-reduce of `output`, in place.
    """
    name = "reduce_scatter" if buffer.scattered else "all_reduce"
    with account.starting(buffer, name, keep, place) as (communicator, how):
        if buffer.scattered:
            return communicator.reduce_scatter(output, inputs, dtype, buffer.op, **how)
        return communicator.all_reduce(output, dtype, buffer.op, deadline_s=deadline_s, **how)


def account_exact(
    account: Account,
    buffer: GradientBuffer,
    name: str,
    works: Sequence[Work],
    is_late: bool | None = None,
) -> None:
    """Enters in the ledger collectives that lose nothing.

    `is_late`: whether they were made at a deadline without this rank, of which all is lost; None: they have none.
    """
    moved = [work.moved_bytes for work in works]
    sent_bytes, received_bytes = (sum(each[i] for each in moved) for i in (0, 1))
    budget_bytes = 0 if is_late is None else sent_bytes
    account.ledger.enter(
        name,
        CollectiveOutcome((), (), sent_bytes, received_bytes, 0),
        critical_bytes=sent_bytes - budget_bytes,
        budget_bytes=budget_bytes,
        block_bytes=block_bytes(buffer, 1),
        late_bytes=sent_bytes if is_late else 0,
    )


def block_bytes(buffer: GradientBuffer, unit_bytes: int) -> int:
    """Of messages to other ranks in whole units, the smallest if they differ."""
    size = buffer.group.size()
    others = (rank for rank in range(size) if rank != buffer.rank)
    return min((buffer.communicator.block_bytes(rank, unit_bytes) for rank in others), default=1)
