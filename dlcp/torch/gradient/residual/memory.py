"""Keeps a sender's abandoned values, and adds them to the next step's gradients.

    memory.add_to(buffer, layout)              # before the collective: what is kept of these parameters goes along
    memory.keep(buffer, layout, ranges)        # after it: what was abandoned of the buffer, old and new, is kept
    memory.end_step()                          # after the optimizer's step: what is kept has waited one step more

Invariant, per element and rank: inputs = what the collectives took + what is kept + what was written off, where only
these are written off: the share that decay takes, what has waited too long, what is not finite, what the user drops.
All in the unit of the buffer, unscaled, before any division by the number of ranks. It does not decide what is lost.

*A step* is what lies between two calls of end_step. Parameters that are in no buffer of a step wait, and age.
*Gradient accumulation*: backward passes without exchange never come here; torch adds them up, and the exchanged pass
brings the sum. Several exchanged passes in one step are several buffers: what the first abandoned goes along with the
second, and has waited no step. *Clipping* the averaged gradient comes after: kept values are as backward made them, and
are clipped with the step they arrive in. *A skipped step* (overflow under a loss scale) never was: end_step(False)
brings back what was kept before it, as it was, and drops what the step abandoned, since its gradient is thrown away.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dlcp.torch.gradient.element_runs import Indices, add, gather, intersect, merged, starts
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.residual import saved
from dlcp.torch.gradient.residual.report import ResidualReport, WriteOffs
from dlcp.torch.gradient.residual.rule import ResidualRule
from dlcp.torch.gradient.residual.store import (
    OFFSET_BITS,
    Batch,
    Names,
    ResidualStore,
    SegmentPlaces,
    Spares,
    common,
    cut,
    joined,
    moved,
    split,
    square_of,
)
from dlcp.torch.tensors import FLOATING_DTYPES


@dataclass(frozen=True, slots=True)
class _Added:
    """What add_to put where something was abandoned again; as the values abandoned, in the unit of the buffer."""

    values: Tensor
    """All of it."""
    velocities: Tensor | None
    """Of that, momentum · velocity."""


class ResidualMemory:
    """The residuals of one rank. Sparse: costs memory for what was abandoned alone. Any thread may call.

    Values wait on the device that they come from, as float32, or float64 for float64 buffers; work is queued on the
    current stream, and a caller with several streams orders them.

    With `rule.momentum` m there is a velocity u beside each kept value v, and for an element of gradient g, while it
    waits,

        u' = m·u + g        v' = decay·v + u'        v' is what add_to makes of g, and what is sent

    and both are 0 again as soon as it was delivered: momentum correction and factor masking (Deep Gradient Compression,
    Lin et al., ICLR 2018, sections 3.1 and 3.2; RedSync, arXiv 1808.04357). Presumed is an optimizer that steps along
    what it is given, SGD with momentum 0; one with momentum counts that of late values twice. What is delivered at once
    has no velocity then, so this is for runs that abandon most. The accounting gets a fourth term: m·u is made, not
    given.

    For an optimizer with momentum m, decay = m without rule.momentum is what keeps its velocity: a value that arrives k
    steps late then adds m^k·g, just what it would have been worth by then. What is lost is the displacement of the k
    steps.
    """

    def __init__(self, rule: ResidualRule) -> None:
        self.rule = rule
        self._lock = threading.Lock()
        self._names = Names()
        self._spares = Spares()
        self._kept = ResidualStore()
        # What add_to took in this step, to be told apart from the step's own gradient when it is abandoned again.
        self._taken = ResidualStore()
        # What was kept when the step began.
        self._before: tuple[Batch, ...] = ()
        self._under_way = False
        self._scale = 1.0
        self._step = WriteOffs()
        self._last = WriteOffs()
        self._total = WriteOffs()
        self._skipped = 0

    # ---- a step ----

    @property
    def scale(self) -> float:
        """The loss scale that the gradients in the next buffers carry; kept values carry none. 1 without a scaler."""
        return self._scale

    @scale.setter
    def scale(self, scale: float) -> None:
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"scale is {scale}; accepted: a finite number above 0")
        self._scale = float(scale)

    @torch.no_grad()
    def add_to(self, buffer: Tensor, layout: Layout) -> None:
        """Buffer += scale · what is kept of its elements, in place; from then on that is the buffer's, not kept.

        A layout may leave parameters of the buffer out: nothing is added then, and what is kept of them waits. In all
        buffers of one step alike.

        `buffer`: 1-D, contiguous, float32, float64, float16 or bfloat16, of layout.numel elements; rounded once, to its
        type. Raises ValueError, TypeError.
        """
        _check(buffer, layout)
        with self._lock:
            self._under_way = True
            place = self._names.place(layout)
            # Of an earlier buffer of this step with the same elements.
            self._taken.take(place.names, place.begin, place.end)
            for batch in self._kept.take(place.names, place.begin, place.end):
                batch = moved(batch, buffer.device)
                at = batch.begin + _shifts(place, batch.begin)
                begin = starts(batch.count)
                add(buffer, at, batch.count, batch.values, begin, self._scale * batch.factor)
                if batch.velocities is not None and self.rule.momentum is not None:
                    add(buffer, at, batch.count, batch.velocities, begin, self._scale * self.rule.momentum)
                self._taken.put(batch)

    @torch.no_grad()
    def keep(
        self, buffer: Tensor, layout: Layout, ranges: Iterable[tuple[int, int]] | NDArray[np.int64]
    ) -> None:
        """Keeps the values in `ranges` of a buffer, which were abandoned.

        What add_to put there is part of it. To what is kept of parameters that were not in add_to's layout, this is
        added.

        `ranges`: begin and end in elements, apart, in any order; or an array of shape [runs, 2]. Padding in them is
        left out. What is not finite is written off, and what had been added to it stays kept. The buffer is read only.
        Raises ValueError, TypeError.
        """
        _check(buffer, layout)
        begin, end = merged(ranges, buffer.numel())
        if not len(begin):
            return
        with self._lock:
            self._under_way = True
            place = self._names.place(layout)
            abandoned = intersect(begin, end, place.buffer_begin, place.buffer_end)
            if not len(abandoned.begin):
                return
            count = abandoned.end - abandoned.begin
            address = abandoned.begin - place.to_buffer[place.by_buffer[abandoned.second]]
            at = abandoned.begin
            if (address[1:] < address[:-1]).any():
                order = np.argsort(address)
                address, at, count = address[order], at[order], count[order]
            wide = torch.float64 if buffer.dtype == torch.float64 else torch.float32
            out = None
            if buffer.device.type == "cpu" and buffer.dtype == wide:
                out = self._spares.take(int(count.sum()), wide)
            values = gather(buffer, at, count, out).to(wide)
            batch = self._batch_of(values, address, count, place, buffer.element_size())
            # Of parameters that were not in add_to's layout: one batch an element, or batches would pile up.
            for older in self._kept.take(place.names, address, address + count):
                batch = joined(batch, older)
            self._kept.put(batch)

    def discard(self, names: Iterable[str]) -> None:
        """The optimizer does not get what came of these parameters: for them the step never was. Before its end."""
        with self._lock:
            numbers = [number for name in names if (number := self._names.known(name)) is not None]
            for store in (self._kept, self._taken):
                store.take_names(numbers)
            for batch in ResidualStore(self._before).take_names(numbers):
                self._kept.put(batch)

    def end_step(self, applied: bool = True) -> None:
        """The optimizer has made its step. `applied` False: it skipped it, and what was kept before is kept again."""
        with self._lock:
            if applied:
                batches = [aged for batch in self._kept if (aged := self._aged(batch)) is not None]
                self._spares.refill(self._taken)
                self._total += self._step
                self._last = self._step
            else:
                batches = list(self._before)
                self._skipped += 1
                self._last = WriteOffs()
            self._begin_step(batches)

    def report(self) -> ResidualReport:
        """What is kept now, and what was written off in the last step that ended and in all."""
        with self._lock:
            batches = list(self._kept)
            return ResidualReport(
                nbytes=sum(batch.elements * batch.element_bytes for batch in batches),
                elements=sum(batch.elements for batch in batches),
                norm=math.sqrt(sum(batch.energy for batch in batches)),
                age=max((int(batch.age.max()) for batch in batches), default=0),
                step=self._last.written_off(),
                total=self._total.written_off(),
                skipped=self._skipped,
            )

    # ---- what outlives the run, and what does not ----

    def state_dict(self) -> dict[str, Any]:
        """All that is kept: names, numbers and tensors; see saved.py. Raises RuntimeError inside a step."""
        with self._lock:
            if self._under_way:
                raise RuntimeError("what is kept is partly in pending buffers; accepted: after end_step()")
            return saved.save(self._kept, self._names)

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device | str | None = None) -> None:
        """Replaces all kept values with those of a state; a step under way is forgotten. Counts restart.

        `device`: where values wait; None: where the state has them. They move to a buffer's device when needed. For
        other numbers of ranks, or other names, see saved.reshard. Raises ValueError.
        """
        with self._lock:
            self._begin_step(saved.load(state, self._names, device))
            self._last, self._total, self._skipped = WriteOffs(), WriteOffs(), 0

    def reset(self, names: Iterable[str] | None = None) -> None:
        """Writes off what is kept of these parameters; None: of all. For parameters that were set anew, or are gone."""
        with self._lock:
            if names is None:
                gone = list(self._kept)
                self._kept, self._taken, self._before = ResidualStore(), ResidualStore(), ()
            else:
                numbers = [number for name in names if (number := self._names.known(name)) is not None]
                gone = self._kept.take_names(numbers)
                self._taken.take_names(numbers)
                before = ResidualStore(self._before)
                before.take_names(numbers)
                self._before = tuple(before)
            self._drop(gone)

    def retain(self, sizes: Mapping[str, int]) -> None:
        """Writes off what is of no parameter in `sizes`, or past its number of elements.

        For a state that was loaded into another model. Raises RuntimeError inside a step.
        """
        with self._lock:
            if self._under_way:
                raise RuntimeError("what is kept is partly in pending buffers; accepted: after end_step()")
            begin = np.sort(
                np.array([self._names.number(name) << OFFSET_BITS for name in sizes], np.int64), kind="stable"
            )
            size = {self._names.number(name): numel for name, numel in sizes.items()}
            end = begin + np.array([size[number] for number in (begin >> OFFSET_BITS).tolist()], np.int64)
            parts = [split(batch, begin, end) for batch in self._kept]
            self._begin_step([inside for inside, _ in parts if inside is not None])
            self._drop([outside for _, outside in parts if outside is not None])

    # ---- within ----

    def _batch_of(
        self, values: Tensor, address: Indices, count: Indices, place: SegmentPlaces, element_bytes: int
    ) -> Batch:
        """Abandoned values, in the unit of the buffer, as a batch; applies and counts the rules."""
        taken = self._taken.touching(place.names)
        address, count, age = cut(address, count, np.zeros_like(address), taken)
        square = square_of(values)
        expired = np.zeros(0, np.bool_)
        if self.rule.age_max is not None:
            expired = age + 1 > self.rule.age_max
        added = None
        if taken and (self.rule.momentum is not None or not math.isfinite(square) or expired.any()):
            added = self._added(values, address, count, taken)
        if not math.isfinite(square):
            finite = torch.isfinite(values)
            values = torch.where(finite, values, 0.0 if added is None else added.values)
            many = values.numel() - int(finite.sum())
            self._step.note_not_finite(many, many * element_bytes)
        velocities = None
        if self.rule.momentum is not None:
            velocities = values.clone()
            if added is not None and added.velocities is not None:
                velocities += added.velocities - added.values
        if expired.any() and added is not None:
            # What had been kept has waited too long; the step's own gradient has not.
            at, width = starts(count)[expired], count[expired]
            gone = gather(added.values, at, width)
            add(values, at, width, gone, starts(width), -1.0)
            if velocities is not None and added.velocities is not None:
                add(velocities, at, width, added.velocities, at, -1.0)
            many = gone.numel()
            self._step.note_expired(many, many * element_bytes, square_of(gone) / self._scale**2)
            age = np.where(expired, 0, age)
        if added is not None or not math.isfinite(square):
            square = square_of(values)
        if velocities is not None:
            velocities /= self._scale
        return Batch(address, count, age, values, velocities, 1.0 / self._scale, element_bytes, square)

    def _added(self, values: Tensor, address: Indices, count: Indices, taken: list[Batch]) -> _Added:
        """What of `taken` was added at these runs, in the unit of the buffer; 0 where nothing was."""
        added = torch.zeros_like(values)
        velocities = None if self.rule.momentum is None else torch.zeros_like(values)
        for batch in taken:
            at, many, there = common(address, count, batch)
            batch = moved(batch, values.device)
            add(added, at, many, batch.values, there, self._scale * batch.factor)
            if velocities is not None and batch.velocities is not None and self.rule.momentum is not None:
                add(velocities, at, many, batch.velocities, there, self._scale * self.rule.momentum)
        if velocities is not None:
            added += velocities
        return _Added(added, velocities)

    def _aged(self, batch: Batch) -> Batch | None:
        """A batch that has waited one step more; what the rules write off is counted."""
        age = batch.age + 1
        if self.rule.age_max is not None and age.max() > self.rule.age_max:
            young = age <= self.rule.age_max
            expired = batch.select(~young)
            assert expired is not None
            self._step.note_expired(
                expired.elements, expired.elements * expired.element_bytes, expired.energy
            )
            left = batch.select(young)
            if left is None:
                return None
            batch, age = left, left.age + 1
        decay = self.rule.decay
        if decay == 0.0:
            self._step.note_expired(batch.elements, batch.elements * batch.element_bytes, batch.energy)
            return None
        if decay < 1.0:
            self._step.note_decayed((1.0 - decay) ** 2 * batch.energy)
        return replace(batch, age=age, factor=batch.factor * decay)

    def _drop(self, gone: Iterable[Batch]) -> None:
        for batch in gone:
            self._total.note_dropped(batch.elements, batch.elements * batch.element_bytes, batch.energy)

    def _begin_step(self, batches: Iterable[Batch]) -> None:
        self._before = tuple(batches)
        self._kept, self._taken = ResidualStore(self._before), ResidualStore()
        self._step = WriteOffs()
        self._under_way = False


def _shifts(place: SegmentPlaces, address: Indices) -> Indices:
    """What leads from addresses within a layout to its buffer."""
    return place.to_buffer[np.searchsorted(place.begin, address, "right") - 1]


def _check(buffer: Tensor, layout: Layout) -> None:
    if buffer.dtype not in FLOATING_DTYPES:
        accepted = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATING_DTYPES)
        raise TypeError(f"buffer is {buffer.dtype}; accepted: {accepted}")
    if buffer.dim() != 1 or not buffer.is_contiguous() or buffer.numel() != layout.numel:
        raise ValueError(
            f"buffer has shape {tuple(buffer.shape)} and strides {buffer.stride()}; accepted: contiguous, 1-D, "
            f"{layout.numel} elements as the layout"
        )
