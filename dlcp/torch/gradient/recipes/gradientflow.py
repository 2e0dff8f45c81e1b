"""The recipe "gradientflow": chunks of values that all ranks agree on, packed, in one sum.

Sun et al., "Optimizing Network Performance for Distributed DNN Training on GPU Clusters: ImageNet/AlexNet Training in
1.5 Minutes" (GradientFlow), arXiv 1902.06855: coarse-grained sparse communication, lazy all-reduce, momentum correction
of what waits, half precision, a dense warm-up. All ranks choose the same chunks (flow/chunks.py), so that they are
summed on the way and no indices travel: what a rank sends does not grow with the number of ranks. Otherwise than
published: the importance of a chunk is one byte; a chunk that has waited long travels in any case; and what half
precision leaves of values and sums is kept, at sender and owner, not lost.

Lazy: torch cuts gradients into buckets, and each comes by itself; theta joins those of a step (flow/batch.py) where the
caller says which one is the last, as DistributedDataParallel's hook does. Elsewhere, and in a reduce-scatter, each
buffer's sums start at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dlcp.kept import keep
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.exact_part import ExactPart, account_exact
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.later_work import LaterWork
from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.gradient.flow.batch import FlowBatch
from dlcp.torch.gradient.flow.chunks import NOT_FINITE, ChunkAgreement, ChunkTable
from dlcp.torch.gradient.flow.packing import FlowPlan, Packing, checked_codes, fingerprint, pack
from dlcp.torch.gradient.residual.saved import Rename
from dlcp.torch.gradient.sparse.density import Density
from dlcp.torch.gradient.sparse.memory import SparseMemory, SparseValues, names_of
from dlcp.torch.gradient.sparse.pipeline import reshard_sparse
from dlcp.torch.gradient.sparse.stream import put_stream, stream_plan
from dlcp.torch.tensors import readable, span
from dlcp.transport.coded import GROUP_VALUES, CodedRules, codec_traits, decode_runs, encode_runs
from dlcp.transport.communicator import DataType, Reduction
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual.report import ResidualReport

DENSITY = 0.15
"""If the options give none."""
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBuffer(PreparedBuffer):
    """A prepared buffer with its chunks. `memory` is the gradient."""

    plan: FlowPlan
    packing: Packing
    values: SparseValues
    total: Tensor
    """float32: the sum of the stream; of a reduce-scatter all of it too, of which this rank's part counts."""
    coded: Tensor
    importance: Tensor
    exact_part: ExactPart

    @property
    def exact(self) -> Tensor:
        """As flow.batch.Member."""
        return self.exact_part.values


class FlowPipeline:
    """Buffers of one state, of which chunks travel; see buffer/pipeline.py."""

    sequences = 3
    wants_norm = False

    def __init__(self, account: Account) -> None:
        options = self._options = account.options
        self._account = account
        self._codec = codec_traits(options.codec or "fp16")
        self._density = Density(options, DENSITY)
        self._chunks = ChunkAgreement(options.chunk_numel, options.age_max)
        self.residual = SparseMemory(options.momentum)
        """What was not sent, which waits for the next step."""
        self._plans: dict[Hashable, FlowPlan] = {}
        # Buffers of this step that wait for others, by what they must have in common.
        self._open: dict[Hashable, tuple[FlowBatch, list[LaterWork]]] = {}

    # --- a step ---------------------------------------------------------------------------------------------

    def begin_step(self, loss_scale: float) -> None:
        self.residual.begin_step(loss_scale)

    def cancel(self, key: Hashable) -> None:
        pass

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        self._open.clear()
        age = self._chunks.end_step(applied=applied)
        return dataclasses.replace(self.residual.end_step(applied=applied), age=age)

    # --- a buffer -------------------------------------------------------------------------------------------

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        with torch.no_grad():
            prepared = self._prepare(buffer)
        if buffer.scattered:
            works, values = self._start_scattered(buffer, prepared)
            return PendingBuffer(prepared, works, lambda: self._finish_part(buffer, prepared, works, values))
        call = buffer.call
        if self._options.theta_bytes and call.last_of_step is not None and call.sequence is None:
            return self._start_later(buffer, prepared)
        batch = FlowBatch(self._account, self._codec)
        batch.add(prepared)
        works = batch.start(buffer)
        return PendingBuffer(prepared, works, lambda: self._finish(buffer, prepared, batch, 0))

    def _start_later(self, buffer: GradientBuffer, prepared: FlowBuffer) -> PendingBuffer:
        """With others of the step, once there are theta bytes, or no more to come."""
        key = (buffer.group, id(buffer.communicator), buffer.values.dtype, buffer.call.average)
        with self._account.lock:
            batch, waiting = self._open.setdefault(key, (FlowBatch(self._account, self._codec), []))
            number = batch.add(prepared)
            work = LaterWork("coded_all_reduce", lambda: self._begin(key, batch, buffer))
            waiting.append(work)
        full = batch.coded_bytes >= self._options.theta_bytes
        for one in list(self._open) if buffer.call.last_of_step else [key] if full else []:
            for each in self._open[one][1] if one in self._open else ():
                each.begin()
        return PendingBuffer(prepared, [work], lambda: self._finish(buffer, prepared, batch, number))

    def _begin(self, key: Hashable, batch: FlowBatch, buffer: GradientBuffer) -> Work:
        """Starts a batch, and opens another one for what is to come."""
        with self._account.lock:
            if key in self._open and self._open[key][0] is batch:
                del self._open[key]
        return batch.start_as_one(buffer)

    def _prepare(self, buffer: GradientBuffer) -> FlowBuffer:
        account, plan = self._account, self._plan(buffer)
        memory = readable(buffer.values, "gradients")
        with account.lock:
            values = self.residual.open_values(buffer, plan.layout)
            total = account.buffers.take(plan.layout.groups, torch.float32, _CPU)
            mask = self._chunks.chosen(plan.table, self._density.of(buffer.step), buffer.step)
            opened = account.buffers.output(buffer)
        # Without the lock: it reads everything, and other buffers are settled meanwhile.
        values.load(memory, plan.layout)
        values.add_kept()
        codes = torch.from_numpy(plan.table.codes(values.values, self.residual.scale))
        packing = pack(plan, mask, buffer.scattered)
        coded = self._encode(values, packing)
        values.write_off()
        return FlowBuffer.of(
            buffer,
            memory,
            opened,
            plan=plan,
            packing=packing,
            values=values,
            total=total,
            coded=coded,
            importance=torch.cat([codes, fingerprint(mask)]),
            exact_part=ExactPart(memory, plan.layout.exact, plan.layout.exact_counts),
        )

    def _encode(self, values: SparseValues, packing: Packing) -> Tensor:
        """The chosen chunks, coded: uint8 [groups · group_bytes]; what the codes leave is kept."""
        coded = torch.empty(packing.groups * self._codec.group_bytes, dtype=torch.uint8)
        if packing.groups:
            left = torch.zeros(packing.groups * GROUP_VALUES)
            encode_runs(
                self._codec.codec,
                values.values.data_ptr(),
                packing.runs,
                coded.data_ptr(),
                left.data_ptr(),
                left.data_ptr(),
            )
            values.leave(packing.elements, left[packing.places])
        return coded

    def _plan(self, buffer: GradientBuffer) -> FlowPlan:
        plan = self._plans.get(buffer.key)
        if plan is None:
            layout = stream_plan(self._account, buffer)
            made = FlowPlan(layout, ChunkTable(layout.stream, self._options.chunk_numel))
            plan = keep(self._plans, buffer.key, made)
        return plan

    # --- the end of an all-reduce ---------------------------------------------------------------------------

    def _finish(
        self, buffer: GradientBuffer, prepared: FlowBuffer, batch: FlowBatch, number: int
    ) -> float | None:
        """All that comes after the collectives, before the result goes where the caller wants it."""
        with torch.no_grad():
            packing = prepared.packing
            batch.hand_back(number)
            if packing.groups:
                codes = checked_codes(prepared.importance)
                prepared.total.zero_()
                decode_runs(
                    self._codec.codec,
                    batch.summed(number).data_ptr(),
                    packing.runs,
                    prepared.total.data_ptr(),
                )
                self._keep_of_sum(buffer, prepared, batch, number)
                self._learn(prepared, codes)
                put_stream(buffer, prepared.plan.layout, prepared.total, prepared.output)
            prepared.exact_part.put(prepared.output, buffer)
            # The batch is entered once.
            account_exact(self._account, buffer, prepared.name, batch.works if number == 0 else ())
            return self._account.note_result(prepared, buffer.group)

    def _keep_of_sum(
        self, buffer: GradientBuffer, prepared: FlowBuffer, batch: FlowBatch, number: int
    ) -> None:
        """What the code of this rank's sum left is kept as if it were its own gradient's."""
        first, end = ((group - batch.group_of(number)) * GROUP_VALUES for group in batch.own)
        places = prepared.packing.places
        own = (places >= first) & (places < end)
        unit = buffer.group.size() if buffer.call.average else 1
        prepared.values.values.index_add_(
            0, prepared.packing.elements[own], batch.left[places[own] - first], alpha=unit
        )

    def _learn(self, prepared: FlowBuffer, codes: NDArray[np.uint8]) -> None:
        """All ranks know the importance of all chunks now, and where a value of one that waits is not finite."""
        table, mask = prepared.plan.table, prepared.packing.mask
        for chunk in np.flatnonzero((codes == NOT_FINITE) & ~mask).tolist():
            begin = int(table.begin[chunk])
            prepared.total[begin : begin + int(table.count[chunk])] = torch.nan
        with self._account.lock:
            self._chunks.note(table, mask, codes)

    # --- a reduce-scatter -----------------------------------------------------------------------------------

    def _start_scattered(self, buffer: GradientBuffer, prepared: FlowBuffer) -> tuple[Sequence[Work], Tensor]:
        """Its works, and where the sum of this rank's part goes: float32, group by group."""
        works, account, packing = [], self._account, prepared.packing
        begin, end = packing.parts[buffer.rank] if packing.parts else (0, 0)
        values = torch.zeros((end - begin) * GROUP_VALUES)
        if packing.groups:
            unit = self._codec.group_bytes
            inputs = [span(prepared.coded).part(at * unit, (to - at) * unit) for at, to in packing.parts]
            keep = prepared, values
            with account.starting(buffer, "coded_reduce_scatter", keep) as (communicator, how):
                rules = CodedRules(self._codec.name, values=span(values))
                works.append(communicator.coded_reduce_scatter(inputs, rules, buffer.op, **how))
            with account.starting(buffer, "all_reduce", prepared, place=1) as (communicator, how):
                importance = span(prepared.importance)
                works.append(communicator.all_reduce(importance, DataType.u8, Reduction.MAX, **how))
        if len(prepared.exact_part) or not works:
            works.append(prepared.exact_part.start(account, buffer, prepared, place=2))
        return works, values

    def _finish_part(
        self, buffer: GradientBuffer, prepared: FlowBuffer, works: Sequence[Work], values: Tensor
    ) -> float | None:
        with torch.no_grad():
            plan, packing = prepared.plan.layout, prepared.packing
            if packing.groups:
                codes = checked_codes(prepared.importance)
                prepared.total.zero_()
                first, end = (group * GROUP_VALUES for group in packing.parts[buffer.rank])
                own = (packing.places >= first) & (packing.places < end)
                prepared.total[packing.elements[own]] = values[packing.places[own] - first]
                self._learn(prepared, codes)
                begin, to = plan.parts[buffer.rank]
                put_stream(buffer, plan, prepared.total[begin:to], prepared.output)
            prepared.exact_part.put(prepared.output, buffer)
            account_exact(self._account, buffer, prepared.name, works)
            return self._account.note_result(prepared, buffer.group)

    # --- what outlives the run ------------------------------------------------------------------------------

    def reset(self, names: Iterable[str] | None) -> None:
        self.residual.reset(names)

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual.state_dict(), "chunks": self._chunks.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._chunks.load_state_dict(state["chunks"])
        self.residual.load_state_dict(state["residual"])

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        state["chunks"]
        return names_of(state["residual"])


def reshard_flow(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Rename
) -> list[dict[str, Any]]:
    """As of every sparse recipe, and chunks under their parameters' new names."""

    def chunks(state: Mapping[str, Any]) -> dict[str, Any]:
        segments = [one | {"name": rename(one["name"])} for one in state["chunks"]["segments"]]
        return dict(state["chunks"]) | {"segments": [one for one in segments if one["name"] is not None]}

    made = reshard_sparse(states, size, average, rename)
    return [state | {"chunks": chunks(state)} for state in made]
