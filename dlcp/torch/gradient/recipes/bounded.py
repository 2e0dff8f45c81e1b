"""The recipe "dlcp": every bit of a gradient may travel, and the least important blocks may be lost, within a budget.

    fill.before -> marker.mark -> bounded collective -> fill.lost, ledger -> fill.after -> the result

Memory: the fill's (fills/). Selector: the marker (importance/), under the budget, its phase, and patience. Codec:
none. Exchange: bounded all-reduce or reduce-scatter. Each rank adds, marks and keeps on its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.peers import Peers
from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.gradient.fills import FILLS, Fill
from dlcp.torch.gradient.fills.fill import BufferPlan
from dlcp.torch.gradient.importance.marker import Marker
from dlcp.torch.gradient.layout import Range
from dlcp.torch.gradient.loss.budget import StepBudget
from dlcp.torch.gradient.loss.patience import Patience
from dlcp.torch.gradient.loss.phase import Phase
from dlcp.torch.gradient.residual import saved
from dlcp.torch.gradient.residual.saved import Rename
from dlcp.torch.tensors import DATA_TYPES, readable, span
from dlcp.transport.bounded import CRITICAL, CollectiveOutcome, LossRules
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual.memory import ResidualMemory
    from dlcp.torch.gradient.residual.report import ResidualReport

Importance = Sequence[NDArray[np.uint8] | None] | None
"""Of blocks, by the rank that adds them; None: no other rank does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedBuffer(PreparedBuffer):
    """A prepared buffer, with what may be lost of it."""

    importance: Importance
    transformed: Sequence[Range]
    """Ranges of elements of the memory that the fill has transformed."""
    origin: int
    """The element of the memory that the output begins with; not 0 where the result is one part of the buffer."""
    sent_bytes: int
    """Bytes of the buffer that other ranks add: the budget is a fraction of these."""
    critical_bytes: int
    """Of them, bytes that are never abandoned."""
    given_ratio: float
    """Fraction of sent_bytes that may be abandoned, 0 to 1."""
    block_bytes: int
    """Of messages to other ranks, the smallest if they differ."""


class BoundedPipeline:
    """Buffers of one state that may lose blocks; see buffer/pipeline.py."""

    sequences = 1

    def __init__(self, account: Account) -> None:
        self._account = account
        options = self._options = account.options
        self.fill: Fill = FILLS[options.fill](options)
        """The fill: replaces abandoned values."""
        self.marker = Marker(options)
        """The marker: sets the importance of blocks."""
        self._phase = Phase(options.phase)
        self._patience = Patience(options.patience_s)
        self._patient_groups: set[Peers] = set()
        self._budget = StepBudget(loss_cap=options.loss_cap, whole_step=options.budget_scope == "step")

    # --- a step ---------------------------------------------------------------------------------------------

    @property
    def residual(self) -> ResidualMemory | None:
        return self.fill.residual

    @property
    def wants_norm(self) -> bool:
        return self._phase.rule is not None

    def begin_step(self, loss_scale: float) -> None:
        self.marker.scale = loss_scale
        self.fill.begin_step(loss_scale)
        self._patient_groups.clear()

    def cancel(self, key: Hashable) -> None:
        self._budget.settle(key, 0.0)

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        kept = self.fill.end_step(applied)
        self.marker.end_step()
        self._phase.end_step(gradient_norm)
        self._budget.end_step()
        return kept

    # --- a buffer -------------------------------------------------------------------------------------------

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        self._begin_patience(buffer.group)
        prepared = self._prepare(buffer)
        work = self._start_collective(buffer, prepared)
        return PendingBuffer(prepared, [work], lambda: self._finish(prepared, work.outcome, buffer.group))

    def _begin_patience(self, group: Peers) -> None:
        """Once for each group of a step."""
        with self._account.lock:
            if group in self._patient_groups or not self._patience.asks(group.size()):
                return
            self._patient_groups.add(group)
        self._patience.begin_step(group, group.private_communicator("patience"))

    def _prepare(self, buffer: GradientBuffer) -> BoundedBuffer:
        """All that comes before the collective."""
        account, values, parts = self._account, buffer.values, buffer.parts
        itemsize, rules = values.element_size(), account.rules.of(buffer.layout)
        block_bytes = _block_bytes(buffer)
        with torch.no_grad(), account.lock:
            plan = BufferPlan(buffer.layout, rules.critical, parts, buffer.step, buffer.call.unused)
            transformed = self.fill.before(values, plan)
            importance: Importance = None
            if buffer.group.size() > 1:
                importance = self.marker.mark(
                    values, buffer.layout, rules.critical, parts, block_bytes, buffer.rank
                )
            memory = readable(values, "gradients")
            return BoundedBuffer.of(
                buffer,
                memory,
                account.buffers.output(buffer),
                importance=importance,
                transformed=transformed,
                origin=buffer.own[0] if buffer.scattered else 0,
                sent_bytes=buffer.sent_bytes,
                critical_bytes=_critical_bytes(importance, parts, block_bytes, itemsize),
                given_ratio=self._budget.give(
                    buffer.key, buffer.sent_bytes, rules.loss_ratio * self._phase.scale
                ),
                block_bytes=min(block_bytes),
            )

    def _start_collective(self, buffer: GradientBuffer, prepared: BoundedBuffer) -> Work:
        rules = self.fill.rules(prepared.transformed, prepared.step)
        loss = LossRules(
            prepared.given_ratio,
            prepared.importance,
            rules.rescale,
            self._options.deadline_s,
            self._patience.of(buffer.group, prepared.layout.place),
        )
        name = "bounded_reduce_scatter" if buffer.scattered else "bounded_all_reduce"
        keep = prepared.memory, prepared.output
        with self._account.starting(buffer, name, keep, agree=rules.agree) as (communicator, how):
            start = communicator.bounded_all_reduce
            if buffer.scattered:
                start = communicator.bounded_reduce_scatter
            return start(
                span(prepared.output),
                span(prepared.memory),
                DATA_TYPES[prepared.memory.dtype],
                buffer.op,
                loss=loss,
                **how,
            )

    def _finish(self, prepared: BoundedBuffer, outcome: CollectiveOutcome, group: Peers) -> float | None:
        """All that comes after the collective, before its result goes where the caller wants it."""
        with torch.no_grad():
            self._settle(prepared, outcome, group)
            self.fill.after(prepared.output, prepared.transformed, prepared.origin, prepared.step)
            return self._account.note_result(prepared, group)

    def _settle(self, prepared: BoundedBuffer, outcome: CollectiveOutcome, group: Peers) -> None:
        """Passes abandoned values to the fill and to the ledger."""
        runs = [abandoned.runs() for abandoned in outcome.sent]
        with self._account.lock:
            if runs:
                lost = np.concatenate(runs) // prepared.memory.element_size()
                self.fill.lost(prepared.memory, prepared.layout, lost)
            self._budget.settle(prepared.key, outcome.abandoned_bytes)
            self._patience.note(group, prepared.layout.place, outcome.lossy_fastest_s)
            self._account.ledger.enter(
                prepared.name,
                outcome,
                critical_bytes=prepared.critical_bytes,
                budget_bytes=int(prepared.given_ratio * prepared.sent_bytes),
                block_bytes=prepared.block_bytes,
                contributed_bytes=prepared.sent_bytes,
            )

    # --- what outlives the run ------------------------------------------------------------------------------

    def reset(self, names: Iterable[str] | None) -> None:
        self.fill.reset(names)

    def state_dict(self) -> dict[str, Any]:
        return {
            "fill": self._options.fill,
            "residual": self.fill.state_dict(),
            "marker": self.marker.state_dict(),
            "phase": self._phase.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A state of another fill brings no residuals."""
        marker, phase = Marker(self._options), Phase(self._options.phase)
        marker.load_state_dict(state["marker"])
        phase.load_state_dict(state["phase"])
        fill = FILLS[self._options.fill](self._options)
        if state["residual"] is not None:
            fill.load_state_dict(state["residual"])
        # The whole state is valid: take it over.
        self.marker, self._phase, self.fill = marker, phase, fill

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        for key in ("fill", "residual", "phase"):
            state[key]
        names: Iterable[str] = state["marker"]["mean_squares"]
        return names


def _block_bytes(buffer: GradientBuffer) -> list[int]:
    """By rank, of messages to it; this rank's own part, of which only statistics are made, is cut as the others."""
    size = buffer.group.size()
    others = {rank: buffer.communicator.block_bytes(rank) for rank in range(size) if rank != buffer.rank}
    return [others.get(rank, max(others.values(), default=0)) for rank in range(size)]


def _critical_bytes(
    importance: Importance, parts: Sequence[Range], block_bytes: Sequence[int], itemsize: int
) -> int:
    """Bytes of blocks that may not be lost."""
    return sum(
        min(int(np.count_nonzero(marks == CRITICAL)) * size, (end - begin) * itemsize)
        for marks, (begin, end), size in zip(importance or (), parts, block_bytes, strict=False)
        if marks is not None
    )


def reshard_bounded(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Rename
) -> list[dict[str, Any]]:
    """States for another number of ranks: see residual.saved.Reshard."""
    kept = [state["residual"] for state in states if state["residual"] is not None]
    residuals: Sequence[Any] = (
        saved.reshard(kept, size, average=average, rename=rename) if kept else [None] * size
    )
    made = []
    for rank, residual in enumerate(residuals):
        state = states[rank % len(states)]
        named = {rename(name): value for name, value in state["marker"]["mean_squares"].items()}
        named.pop(None, None)
        made.append(dict(state) | {"residual": residual, "marker": state["marker"] | {"mean_squares": named}})
    return made
