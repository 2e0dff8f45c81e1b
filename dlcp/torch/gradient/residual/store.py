"""Kept values, by parameter and offset: sparse batches, and a store that finds those of a buffer.

Every parameter has a stretch of one address space (its number · 2^40 + the element's offset). So runs of many
parameters are one sorted list of integers and meet a buffer's layout in one operation. A batch is what one buffer gave
up in one step: runs, and their values one after the other in one tensor. Batches never change, so that a step is taken
back by forgetting it; what happens to all values alike (decay, the loss scale) is a factor beside them. The store
applies no rule.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dlcp.torch.gradient.element_runs import Indices, add, distinct, gather, intersect, starts
from dlcp.torch.gradient.layout import Layout

# A parameter of 2^40 elements fits no machine; 2^23 names fit the numbers.
OFFSET_BITS = 40
# How many layouts are remembered: the buffers of a step, of a model with as many. A forgotten one is worked out again.
_LAYOUTS = 512


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Runs of kept values. Runs ascend by address and are apart."""

    begin: Indices
    """Address of each run's first element."""
    count: Indices
    age: Indices
    """Steps that the oldest part of each run has waited."""
    values: Tensor
    """1-D, float32 or float64, finite: run after run; the kept values are factor · values."""
    velocities: Tensor | None
    """As values, of momentum correction; factor does not apply."""
    factor: float
    element_bytes: int
    """Of the buffer that it came from."""
    square: float
    """Sum of squares of values."""

    @property
    def end(self) -> Indices:
        """One past each run's last element."""
        return self.begin + self.count

    @property
    def elements(self) -> int:
        """How many values."""
        return self.values.numel()

    @property
    def energy(self) -> float:
        """Sum of squares of what is kept."""
        return self.factor * self.factor * self.square

    def names(self) -> NDArray[np.int64]:
        """Numbers of the parameters, each once."""
        return distinct(self.begin >> OFFSET_BITS)

    def part(self, runs: Indices, begin: Indices, end: Indices) -> Batch | None:
        """Stretches of runs as a batch of their own; None if there are none. Ascending and apart."""
        if not len(runs):
            return None
        count = end - begin
        at = starts(self.count)[runs] + begin - self.begin[runs]
        values = gather(self.values, at, count)
        velocities = None if self.velocities is None else gather(self.velocities, at, count)
        return replace(
            self,
            begin=begin,
            count=count,
            age=self.age[runs],
            values=values,
            velocities=velocities,
            square=square_of(values),
        )

    def select(self, which: NDArray[np.bool_]) -> Batch | None:
        """Some of the runs; itself if all, None if none."""
        if which.all():
            return self
        runs = np.flatnonzero(which)
        return self.part(runs, self.begin[runs], self.end[runs])


def square_of(values: Tensor) -> float:
    """Sum of squares; not finite if a value is not, or if it is beyond what the type's squares can hold."""
    square = float(torch.dot(values, values))
    return square if math.isfinite(square) else float(values.double().square().sum())


class Spares:
    """Memory of batches that are gone, for those to come: fresh memory costs more in page faults than the copy into it.

    Of a CPU alone; torch keeps that of other devices itself. Holds what the last step gave back, no more.
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []

    def refill(self, batches: Iterable[Batch]) -> None:
        """Replaces the pool with the memory of batches that are no longer read."""
        self._tensors = [batch.values for batch in batches if batch.values.device.type == "cpu"]

    def take(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Memory for so many values on the CPU, fresh if there is none that would be used to a half."""
        for index, tensor in enumerate(self._tensors):
            # What a batch kept before is the storage's size, of which its values may be a part.
            whole = tensor.untyped_storage().nbytes() // tensor.element_size()
            if tensor.dtype == dtype and elements <= whole <= 2 * elements:
                del self._tensors[index]
                return tensor.as_strided((elements,), (1,), 0)
        # An eighth more, since the next step abandons about as much, seldom just as much.
        return torch.empty(elements + elements // 8, dtype=dtype)[:elements]


class SegmentPlaces(NamedTuple):
    """A layout's segments that are not empty, as addresses, ascending; `order` lists them by place in the buffer."""

    begin: Indices
    end: Indices
    to_buffer: Indices
    """Place in the buffer less address, of each segment."""
    names: tuple[int, ...]
    by_buffer: Indices
    buffer_begin: Indices
    """By place in the buffer."""
    buffer_end: Indices


class Names:
    """Numbers for parameter names, and where layouts lie in the address space."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._places: OrderedDict[Layout, SegmentPlaces] = OrderedDict()

    def number(self, name: str) -> int:
        """A name's number, the same ever after."""
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def name(self, number: int) -> str:
        """The name that has a number."""
        return self._names[number]

    def known(self, name: str) -> int | None:
        """A name's number if it has one."""
        return self._numbers.get(name)

    def place(self, layout: Layout) -> SegmentPlaces:
        """Where a layout's segments lie. Raises ValueError: elements of a parameter are in the buffer twice."""
        place = self._places.get(layout)
        if place is not None:
            self._places.move_to_end(layout)
            return place
        place = self._places[layout] = self._work_out(layout)
        if len(self._places) > _LAYOUTS:
            self._places.popitem(last=False)
        return place

    def _work_out(self, layout: Layout) -> SegmentPlaces:
        segments = [segment for segment in layout.segments if segment.count]
        rows = np.array(
            [
                (self.number(segment.name) << OFFSET_BITS, segment.offset, segment.begin, segment.count)
                for segment in segments
            ],
            np.int64,
        ).reshape(-1, 4)
        base, offset, begin, count = rows.T
        if len(rows) and (offset.min() < 0 or (offset + count).max() > 1 << OFFSET_BITS):
            raise ValueError(
                f"a segment ends beyond 2^{OFFSET_BITS} elements of its parameter, or has no begin"
            )
        address = base + offset
        order = np.argsort(address, kind="stable")
        by_buffer = np.argsort(order, kind="stable")
        low, high = address[order], (address + count)[order]
        over = np.flatnonzero(low[1:] < high[:-1])
        if len(over):
            one, other = segments[order[over[0]]], segments[order[over[0] + 1]]
            raise ValueError(f"{one} and {other} overlap; accepted: each element of a parameter once")
        return SegmentPlaces(
            low,
            high,
            begin[order] - low,
            tuple(dict.fromkeys((base >> OFFSET_BITS).tolist())),
            by_buffer,
            np.ascontiguousarray(begin),
            begin + count,
        )


class ResidualStore:
    """Batches, found by parameter."""

    def __init__(self, batches: Iterable[Batch] = ()) -> None:
        self._batches: dict[int, Batch] = {}
        # By batch, its parameters.
        self._names: dict[int, frozenset[int]] = {}
        self._next = 0
        for batch in batches:
            self.put(batch)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches.values())

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, batch: Batch | None) -> None:
        """One more. What is there already at the same place stays beside it."""
        if batch is None:
            return
        key, self._next = self._next, self._next + 1
        self._batches[key] = batch
        self._names[key] = frozenset(batch.names().tolist())

    def touching(self, names: Iterable[int]) -> list[Batch]:
        """Batches with something of these parameters, oldest first."""
        return [self._batches[key] for key in self._keys(names)]

    def take(self, names: Iterable[int], begin: Indices, end: Indices) -> list[Batch]:
        """What of these parameters lies in runs of addresses, taken out, oldest first; the rest of a batch stays."""
        taken = []
        for key in self._keys(names):
            batch = self._batches[key]
            inside, outside = split(batch, begin, end)
            if inside is None:
                continue
            self._remove(key)
            self.put(outside)
            taken.append(inside)
        return taken

    def take_names(self, names: Sequence[int]) -> list[Batch]:
        """All that is of these parameters, taken out."""
        taken = []
        for key in self._keys(names):
            batch = self._batches[key]
            these = np.isin(batch.begin >> OFFSET_BITS, names)
            self._remove(key)
            self.put(batch.select(~these))
            gone = batch.select(these)
            if gone is not None:
                taken.append(gone)
        return taken

    def _keys(self, names: Iterable[int]) -> list[int]:
        wanted = frozenset(names)
        return [key for key, those in self._names.items() if not those.isdisjoint(wanted)]

    def _remove(self, key: int) -> None:
        del self._batches[key], self._names[key]


def split(batch: Batch, begin: Indices, end: Indices) -> tuple[Batch | None, Batch | None]:
    """What of a batch lies in runs of addresses, ascending and apart, and what does not."""
    inside = intersect(batch.begin, batch.end, begin, end)
    if int((inside.end - inside.begin).sum()) == batch.elements:
        if len(inside.begin) != len(batch.begin):
            # Whole, but over several segments in a row: then runs are cut where a segment ends.
            count = inside.end - inside.begin
            batch = replace(batch, begin=inside.begin, count=count, age=batch.age[inside.first])
        return batch, None
    if not len(inside.begin):
        return None, batch
    edges = np.concatenate(
        ([np.iinfo(np.int64).min], np.stack((begin, end), 1).ravel(), [np.iinfo(np.int64).max])
    )
    outside = intersect(batch.begin, batch.end, edges[::2], edges[1::2])
    return (
        batch.part(inside.first, inside.begin, inside.end),
        batch.part(outside.first, outside.begin, outside.end),
    )


def renumbered(batch: Batch, numbers: Mapping[int, int]) -> Batch | None:
    """A batch under other numbers of its parameters; runs of parameters without one are left out."""
    own = batch.begin >> OFFSET_BITS
    known = np.isin(own, list(numbers))
    kept = batch.select(known)
    if kept is None:
        return None
    own = kept.begin >> OFFSET_BITS
    new = np.array([numbers[number] for number in own.tolist()], np.int64)
    begin = (new << OFFSET_BITS) + (kept.begin & ((1 << OFFSET_BITS) - 1))
    order = np.argsort(begin, kind="stable")
    at, count = starts(kept.count)[order], kept.count[order]
    velocities = None if kept.velocities is None else gather(kept.velocities, at, count)
    return replace(
        kept,
        begin=begin[order],
        count=count,
        age=kept.age[order],
        values=gather(kept.values, at, count),
        velocities=velocities,
    )


def common(address: Indices, count: Indices, batch: Batch) -> tuple[Indices, Indices, Indices]:
    """What runs have in common with a batch: places in the runs' values, elements, places in the batch's."""
    both = intersect(address, address + count, batch.begin, batch.end)
    at = starts(count)[both.first] + both.begin - address[both.first]
    there = starts(batch.count)[both.second] + both.begin - batch.begin[both.second]
    return at, both.end - both.begin, there


def joined(batch: Batch, older: Batch) -> Batch:
    """The sum of two batches, the second within the first, whose memory is used."""
    older = moved(older, batch.values.device)
    at, many, there = common(batch.begin, batch.count, older)
    add(batch.values, at, many, older.values, there, older.factor / batch.factor)
    if batch.velocities is not None and older.velocities is not None:
        add(batch.velocities, at, many, older.velocities, there)
    begin, count, age = cut(batch.begin, batch.count, batch.age, [older])
    return replace(batch, begin=begin, count=count, age=age, square=square_of(batch.values))


def cut(
    address: Indices, count: Indices, age: Indices, batches: Iterable[Batch]
) -> tuple[Indices, Indices, Indices]:
    """Runs of these ages, cut so that each lies in a run of a batch or in none, as old then as the older of both."""
    for batch in batches:
        both = intersect(address, address + count, batch.begin, batch.end)
        if not len(both.begin):
            continue
        end = address + count
        begin = distinct(np.sort(np.concatenate((address, both.begin, both.end))))
        run = np.searchsorted(address, begin, "right") - 1
        # Where a run ends and none begins, no run is cut.
        inside = begin < end[run]
        begin, run = begin[inside], run[inside]
        count = np.minimum(end[run], np.append(begin[1:], np.iinfo(np.int64).max)) - begin
        age = age[run]
        old = np.searchsorted(both.begin, begin, "right") - 1
        again = (old >= 0) & (begin < both.end[old])
        age[again] = np.maximum(age[again], batch.age[both.second[old[again]]])
        address = begin
    return address, count, age


def moved(batch: Batch, device: torch.device) -> Batch:
    """A batch on a device."""
    if batch.values.device == device:
        return batch
    velocities = None if batch.velocities is None else batch.velocities.to(device)
    return replace(batch, values=batch.values.to(device), velocities=velocities)
