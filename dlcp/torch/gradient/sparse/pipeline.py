"""Recipes that send chosen elements: each rank chooses its own, all gather them, and each adds them up.

    v = gradient + kept -> choose -> frames of indices and values -> all-gather; kept = what was not sent
    every rank adds all frames, its own too, in the order of ranks: replicas are bit-identical

A choice of each rank's own cannot be summed on the way, so what a rank receives grows with the number of ranks. For a
reduce-scatter a rank chooses from each part by itself, and a frame goes to the part's owner alone. Where nothing is
left out (density 1, a dense warm-up, or dense is cheaper) values travel by an all-reduce. Of a buffer on CUDA elements
are chosen, kept and added on the device, and frames cross (crossing.py).

Here is what such recipes share; mstopk.py and redsync.py say how they choose. Small parameters and those of one
dimension travel exactly (exact_part.py).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from dlcp.kept import keep
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.crossing import Crossing, crossing_of
from dlcp.torch.gradient.buffer.exact_part import ExactPart, account_exact, start_sum
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.later_work import LaterWork
from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.gradient.coding.plan import CodePlan
from dlcp.torch.gradient.layout import Layout, Range
from dlcp.torch.gradient.residual import saved
from dlcp.torch.gradient.residual.saved import Rename
from dlcp.torch.gradient.sparse.density import Density, count_of
from dlcp.torch.gradient.sparse.frame import Choice, Section, add_frame, counts_of, encode, frame_numel
from dlcp.torch.gradient.sparse.memory import SparseMemory, SparseValues, names_of
from dlcp.torch.gradient.sparse.network_costs import NetworkCosts
from dlcp.torch.gradient.sparse.stream import put_stream, stream_plan
from dlcp.torch.tensors import readable, span
from dlcp.transport.communicator import DataType
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual.report import ResidualReport

_CPU = torch.device("cpu")


class Chooser(Protocol):
    """How a recipe chooses elements of a stream."""

    fixed_length: bool
    """Whether it chooses exactly as many as it is asked for, and shares no values."""
    shares: bool
    """Whether the chosen elements of most sections share one value; the same on all ranks."""

    def sections(self, stream: Layout, begin: int, end: int) -> Sequence[Section]:
        """The sections of a part of a stream: the same on all ranks, but for `shared`."""

    def choose(self, values: Tensor, section: Section, count: int, step: int) -> Choice:
        """What travels of a section. `values`: float32, the section's; `count`: how many elements should."""


@dataclass(frozen=True, slots=True)
class SparsePlan:
    """Where the elements of buffers of one layout lie."""

    layout: CodePlan
    """Which of them may be left out: they form a stream, in groups of one value."""
    sections: Sequence[Sequence[Section]]
    """Of the stream, by the frame that they are in: one frame; of a reduce-scatter: one for each rank."""
    own: Range
    """Of the stream, what this rank wants the sum of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseBuffer(PreparedBuffer):
    """A prepared buffer with its frames. `memory` is the gradient."""

    plan: SparsePlan
    exact: ExactPart
    dense: Tensor | None
    """float32, what travels of the stream if nothing is left out, on the host; None: frames do."""
    total: Tensor
    """float32: the sum of what this rank wants of the stream; where frames are added, or on the host."""
    crossing: Crossing | None
    """Of a buffer in which is chosen on its device; None: on the host."""
    counts: Sequence[Tensor] = ()
    """int32 [sections], by frame: what was chosen (frame.py)."""
    frames: Sequence[Tensor] = ()
    counts_in: list[Tensor] = field(default_factory=list)
    """By rank: the counts of its frame for this rank."""
    frames_in: list[Tensor] = field(default_factory=list)
    """By rank."""

    def frame_in(self, numel: int) -> Tensor:
        """Memory for a rank's frame."""
        return torch.empty(numel, dtype=torch.int32, pin_memory=self.output.is_cuda)


class SparsePipeline:
    """Buffers of one state, of which elements are chosen; see buffer/pipeline.py."""

    wants_norm = False

    def __init__(
        self,
        account: Account,
        chooser: Chooser,
        density: Density,
        momentum: float | None = None,
        costs: NetworkCosts | None = None,
    ) -> None:
        self._account = account
        self._chooser = chooser
        self._density = density
        self._costs = costs
        self.sequences = 2 if chooser.fixed_length else 3
        self._momentum = momentum
        self.residual = SparseMemory(momentum)
        """What was not sent, which waits for the next step."""
        self._plans: dict[Hashable, SparsePlan] = {}

    # --- a step ---------------------------------------------------------------------------------------------

    def begin_step(self, loss_scale: float) -> None:
        self.residual.begin_step(loss_scale)

    def cancel(self, key: Hashable) -> None:
        pass

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        return self.residual.end_step(applied=applied)

    # --- a buffer -------------------------------------------------------------------------------------------

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        if self._costs is not None:
            self._costs.begin_step(buffer)
        with torch.no_grad():
            prepared = self._prepare(buffer)
        works = []
        # First what has memory of its own: if another cannot start, nothing that is used again is under way.
        if len(prepared.exact) or not prepared.plan.layout.groups:
            works.append(prepared.exact.start(self._account, buffer, prepared, place=self.sequences - 1))
        if prepared.dense is not None:
            works.insert(0, self._start_dense(buffer, prepared))
        elif prepared.plan.layout.groups and self._chooser.fixed_length:
            works.insert(0, self._start_frames(buffer, prepared))
        elif prepared.plan.layout.groups:
            works[:0] = self._start_counts_and_frames(buffer, prepared)
        return PendingBuffer(prepared, works, lambda: self._finish(buffer, prepared, works))

    def _prepare(self, buffer: GradientBuffer) -> SparseBuffer:
        account, plan, crossing = self._account, self._plan(buffer), crossing_of(buffer)
        memory = readable(buffer.values, "gradients") if crossing is None else buffer.values
        device = memory.device
        density = self._density.of(buffer.step)
        is_dense = bool(plan.layout.groups) and self._is_dense(buffer, plan, density)
        with account.lock:
            values = self.residual.open_values(buffer, plan.layout, device)
            # What the collective itself sums is on the host.
            where = _CPU if is_dense else device
            total = account.buffers.take(plan.own[1] - plan.own[0], torch.float32, where)
            opened = account.buffers.output(buffer) if crossing is None else crossing.output(account, buffer)
        # Without the lock: it reads everything, and other buffers are settled meanwhile.
        values.load(memory, plan.layout)
        self._clip(buffer, plan, values.values)
        values.add_kept()
        dense = None
        if is_dense:
            dense = values.take_all() if crossing is None else crossing.down(values.take_all())
        prepared = SparseBuffer.of(
            buffer,
            memory,
            opened,
            plan=plan,
            exact=ExactPart(memory, plan.layout.exact, plan.layout.exact_counts, crossing),
            crossing=crossing,
            dense=dense,
            total=total,
        )
        if plan.layout.groups and not is_dense:
            prepared = self._choose(prepared, values, density)
        if crossing is not None:
            crossing.wait()
        return prepared

    def _choose(self, prepared: SparseBuffer, values: SparseValues, density: float) -> SparseBuffer:
        """Frames of what is chosen, which is no longer kept."""
        counts, frames = [], []
        for sections in prepared.plan.sections:
            choices = []
            for section in sections:
                part = values.values[section.begin : section.end]
                choice = self._choose_of(part, section, count_of(density, section.numel), prepared.step)
                values.take(section.begin, choice.indices, choice.values)
                choices.append(choice)
            counts.append(counts_of(sections, choices))
            frame = encode(sections, choices)
            frames.append(frame if prepared.crossing is None else prepared.crossing.down(frame))
        values.write_off()
        return dataclasses.replace(prepared, counts=counts, frames=frames)

    def _choose_of(self, part: Tensor, section: Section, count: int, step: int) -> Choice:
        began_s = time.perf_counter()
        choice = self._chooser.choose(part, section, count, step)
        if self._costs is not None:
            self._costs.note_choice(section.numel, time.perf_counter() - began_s)
        return choice

    def _clip(self, buffer: GradientBuffer, plan: SparsePlan, gradient: Tensor) -> None:
        """What a recipe does to its own gradient, in place, before anything is added."""

    def _is_dense(self, buffer: GradientBuffer, plan: SparsePlan, density: float) -> bool:
        """Whether nothing is left out; the same on all ranks."""
        if density >= 1.0:
            return True
        if self._costs is None:
            return False
        # Ranks may hold different layers for the output layer: it counts as the others, 4 bytes an element too little.
        frame_bytes = sum(
            4 * (1 if self._chooser.shares else 2) * count_of(density, section.numel)
            for sections in plan.sections
            for section in sections
        )
        return self._costs.dense_is_cheaper(buffer, plan.layout.groups, frame_bytes)

    def _plan(self, buffer: GradientBuffer) -> SparsePlan:
        return self._plans.get(buffer.key) or keep(self._plans, buffer.key, self._work_out(buffer))

    def _work_out(self, buffer: GradientBuffer) -> SparsePlan:
        layout = stream_plan(self._account, buffer)
        ranges = layout.parts if buffer.scattered else [(0, layout.groups)]
        return SparsePlan(
            layout,
            [
                self._chooser.sections(layout.stream, begin, end) if end > begin else ()
                for begin, end in ranges
            ],
            layout.parts[buffer.rank] if buffer.scattered else (0, layout.groups),
        )

    # --- its collectives ------------------------------------------------------------------------------------

    def _start_dense(self, buffer: GradientBuffer, prepared: SparseBuffer) -> Work:
        """All values, by a sum on the way."""
        assert prepared.dense is not None
        dense = span(prepared.dense)
        inputs = [dense.part(4 * begin, 4 * (end - begin)) for begin, end in prepared.plan.layout.parts]
        output = span(prepared.total) if buffer.scattered else dense
        return start_sum(self._account, buffer, output, inputs, DataType.f32, prepared)

    def _start_frames(self, buffer: GradientBuffer, prepared: SparseBuffer) -> Work:
        """Frames whose lengths every rank knows beforehand: this rank's."""
        own = buffer.rank if buffer.scattered else 0
        prepared.counts_in.extend([prepared.counts[own]] * buffer.group.size())
        numel = prepared.frames[own].numel()
        prepared.frames_in.extend(prepared.frame_in(numel) for _ in range(buffer.group.size()))
        name = "all_to_all" if buffer.scattered else "all_gather"
        with self._account.starting(buffer, name, prepared) as (communicator, how):
            outputs, inputs = (list(map(span, each)) for each in (prepared.frames_in, prepared.frames))
            if buffer.scattered:
                return communicator.all_to_all(outputs, inputs, **how)
            return communicator.all_gather(outputs, inputs[0], **how)

    def _start_counts_and_frames(self, buffer: GradientBuffer, prepared: SparseBuffer) -> Sequence[Work]:
        """Frames of any lengths: first the ranks tell each other the counts."""
        sections = prepared.plan.sections[buffer.rank if buffer.scattered else 0]
        prepared.counts_in.extend(
            torch.empty(len(sections), dtype=torch.int32) for _ in range(buffer.group.size())
        )
        name = "all_to_all" if buffer.scattered else "all_gather"
        with self._account.starting(buffer, name, prepared) as (communicator, how):
            first = how.pop("sequence", None)
            if first is None:
                first = communicator.reserve(2)

            def send(number: int, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Work:
                into, of = (list(map(span, each)) for each in (outputs, inputs))
                if buffer.scattered:
                    return communicator.all_to_all(into, of, sequence=first + number, **how)
                return communicator.all_gather(into, of[0], sequence=first + number, **how)

            def send_frames() -> Work:
                for counts in prepared.counts_in:
                    numel = frame_numel(counts.tolist())
                    prepared.frames_in.append(prepared.frame_in(numel))
                return send(1, prepared.frames_in, prepared.frames)

            counts = send(0, prepared.counts_in, prepared.counts)
            return counts, LaterWork(name, send_frames, after=counts)

    # --- its end --------------------------------------------------------------------------------------------

    def _finish(self, buffer: GradientBuffer, prepared: SparseBuffer, works: Sequence[Work]) -> float | None:
        """All that comes after the collectives, before the result goes where the caller wants it."""
        crossing = prepared.crossing
        with torch.no_grad(), nullcontext() if crossing is None else crossing.up(prepared.total):
            plan = prepared.plan
            if plan.layout.groups:
                put_stream(buffer, plan.layout, self._sum(buffer, prepared), prepared.output)
            prepared.exact.put(prepared.output, buffer)
            account_exact(self._account, buffer, prepared.name, works)
            return self._account.note_result(prepared, buffer.group)

    def _sum(self, buffer: GradientBuffer, prepared: SparseBuffer) -> Tensor:
        """The sum or mean of what this rank wants of the stream."""
        total, device = prepared.total, prepared.output.device
        if prepared.dense is not None:
            return (total if buffer.scattered else prepared.dense).to(device, non_blocking=True)
        total.zero_()
        sections = prepared.plan.sections[buffer.rank if buffer.scattered else 0]
        for frame, counts in zip(prepared.frames_in, prepared.counts_in, strict=True):
            add_frame(total, frame.to(device, non_blocking=True), sections, counts.tolist())
        if buffer.call.average:
            # By a tensor of its device: CUDA multiplies by the reciprocal of a number of the host, which rounds twice.
            total.div_(torch.tensor(buffer.group.size(), dtype=total.dtype, device=total.device))
        return total

    # --- what outlives the run ------------------------------------------------------------------------------

    def reset(self, names: Iterable[str] | None) -> None:
        self.residual.reset(names)

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.residual.load_state_dict(state["residual"])

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        return names_of(state["residual"])


def reshard_sparse(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Rename
) -> list[dict[str, Any]]:
    """States for another number of ranks: see residual.saved.Reshard.

    Only senders kept something; velocities are part of it.
    """
    sides = {
        side: saved.reshard(
            [state["residual"][side] for state in states], size, average=average, rename=rename
        )
        for side in states[0]["residual"]
    }
    return [
        dict(states[rank % len(states)]) | {"residual": {side: made[rank] for side, made in sides.items()}}
        for rank in range(size)
    ]
