"""Which chunks of values travel: a set that all ranks agree on, from what they told each other a step ago.

A parameter is cut into *chunks* of equal length. Each rank gives each chunk a code of one byte, by the mean of |x|; the
largest code of all ranks is the chunk's importance in the next step. There the most important chunks travel, as many as
the density says, among them those that have waited longest, or whose importance nobody knows. All of this follows from
what all ranks have, so they agree without a message more.

    code   0       all values are 0
           1–254   a quarter of an octave each, from 2^-40 on
           255     a value is not finite
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.errors import ArgumentError
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.sparse.density import count_of

NOT_FINITE = 255
_STEPS_PER_OCTAVE = 4
_CODE_OF_ONE = 160
"""The code of a mean of 1."""

Codes = NDArray[np.uint8]
Ages = NDArray[np.int32]
Mask = NDArray[np.bool_]
Key = tuple[str, int, int]
"""Parameter, first element in it, elements."""


class ChunkRow(NamedTuple):
    """The chunks of one segment of a stream."""

    key: Key
    first: int
    """Its first chunk, in the table."""
    chunks: int


class ChunkTable:
    """The chunks of a stream, in order; they cover it."""

    def __init__(self, stream: Layout, chunk_numel: int) -> None:
        rows, edges, at = [], [], 0
        for segment in stream.segments:
            # Cut where the parameter is cut, wherever the segment begins.
            cuts = range(
                segment.offset // chunk_numel * chunk_numel, segment.offset + segment.count, chunk_numel
            )
            begins = [max(cut, segment.offset) - segment.offset + segment.begin for cut in cuts]
            rows.append(ChunkRow((segment.name, segment.offset, segment.count), at, len(begins)))
            edges += begins
            at += len(begins)
        self.rows: Sequence[ChunkRow] = rows
        self.begin: NDArray[np.int64] = np.array(edges, np.int64)
        """First element of each chunk, in the stream."""
        self.count: NDArray[np.int64] = np.diff(np.append(self.begin, stream.numel))
        """Elements of each chunk."""

    def __len__(self) -> int:
        return len(self.begin)

    def codes(self, values: torch.Tensor, loss_scale: float) -> Codes:
        """How important this rank's values are. `values`: float32, the stream's."""
        sums = np.add.reduceat(values.abs().numpy(), self.begin, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            octaves = np.log2(sums / (self.count * loss_scale))
            codes = np.clip(np.rint(_STEPS_PER_OCTAVE * octaves) + _CODE_OF_ONE, 1, NOT_FINITE - 1)
        codes[sums == 0] = 0
        codes[~np.isfinite(sums)] = NOT_FINITE
        bytes_: Codes = codes.astype(np.uint8)
        return bytes_


class ChunkAgreement:
    """What all ranks know of all chunks. Not thread-safe.

    `age_max`: no chunk waits longer than so many steps; None: some may.
    """

    def __init__(self, chunk_numel: int, age_max: int | None) -> None:
        self._chunk_numel = chunk_numel
        self._age_max = age_max
        self._known: dict[Key, tuple[Codes, Ages]] = {}
        # Of the step under way.
        self._next: dict[Key, tuple[Codes, Ages]] = {}

    def chosen(self, table: ChunkTable, density: float, step: int) -> Mask:
        """The chunks that travel: bool [chunks]."""
        codes, must, ages = np.zeros(len(table), np.int64), np.zeros(len(table), bool), self.ages(table)
        for row in table.rows:
            chunks = slice(row.first, row.first + row.chunks)
            if row.key in self._known:
                codes[chunks] = self._known[row.key][0]
            else:
                must[chunks] = True
        if self._age_max is not None:
            must |= ages >= self._age_max
            # In age_max steps as many of the oldest as there are chunks: so none gets too old, and no step has to send
            # all those that were last sent together.
            due = (step + 1) * len(table) // self._age_max - step * len(table) // self._age_max
            must[np.lexsort((-codes, -ages))[:due]] = True
        order = np.argsort(-(codes + 256 * must), kind="stable")
        mask = must.copy()
        mask[order[: count_of(density, len(table))]] = True
        return mask

    def ages(self, table: ChunkTable) -> Ages:
        """Steps that each chunk has waited: int32 [chunks]."""
        ages = np.zeros(len(table), np.int32)
        for row in table.rows:
            if row.key in self._known:
                ages[row.first : row.first + row.chunks] = self._known[row.key][1]
        return ages

    def note(self, table: ChunkTable, mask: Mask, codes: Codes) -> None:
        """These chunks of a buffer travelled in this step, and all ranks have these codes."""
        ages = np.where(mask, 0, self.ages(table) + 1).astype(np.int32)
        for row in table.rows:
            chunks = slice(row.first, row.first + row.chunks)
            self._next[row.key] = codes[chunks].copy(), ages[chunks]

    def end_step(self, *, applied: bool) -> int:
        """A skipped step never was. The steps that some chunk has waited."""
        if applied:
            self._known |= self._next
        self._next = {}
        return max((int(ages.max(initial=0)) for _, ages in self._known.values()), default=0)

    def state_dict(self) -> dict[str, Any]:
        """Between steps; the same on all ranks."""
        return {
            "chunk_numel": self._chunk_numel,
            "segments": [
                {
                    "name": name,
                    "offset": offset,
                    "numel": numel,
                    "codes": torch.from_numpy(codes.copy()),
                    "ages": torch.from_numpy(ages.copy()),
                }
                for (name, offset, numel), (codes, ages) in self._known.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with what state_dict() returned. Raises ArgumentError: of other chunks."""
        if state["chunk_numel"] != self._chunk_numel:
            raise ArgumentError(
                f"the state has chunks of {state['chunk_numel']} values; accepted: {self._chunk_numel}, this one's"
            )
        self._known = {
            (one["name"], one["offset"], one["numel"]): (
                one["codes"].numpy().copy(),
                one["ages"].numpy().copy(),
            )
            for one in state["segments"]
        }
        self._next = {}
