"""What a schedule is made of: for each rank a list of operations on named chunks of memory.

A chunk is (space, index): `INPUT` and `OUTPUT` are the caller's memory, `SCRATCH` is the executor's. Operations stand
in program order; one that reads a chunk reads what the latest operation before it in this order wrote there, or what
the chunk held at the start. These dependencies hold block by block: nothing waits for a whole chunk. The native
executor (`native/collective/schedule.hpp`) runs the very same data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Space(IntEnum):
    """Whose memory a chunk lies in."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2


class Chunk(NamedTuple):
    """A named piece of memory."""

    space: Space
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a chunk


class Send(NamedTuple):
    """`source` goes to `peer`, as the `message`-th message of this rank to that one (counted from 0).

    `lossy`, at both ends: blocks of it may be abandoned, if the collective is run with a loss budget.
    """

    peer: int
    message: int
    source: Chunk
    lossy: bool = False


class Receive(NamedTuple):
    """What comes from `peer`, or `operand` op what comes if there is an operand, becomes `target`.

    `final`: this completes a result; an average is divided here. `lossy`: as of the Send. A block that was abandoned
    counts as nothing: the target is the operand alone, or zero. The operand of a lossy receive is there at the start.
    """

    peer: int
    message: int
    target: Chunk
    operand: Chunk | None = None
    final: bool = False
    lossy: bool = False


class Combine(NamedTuple):
    """`operands[0] op operands[1] op …`, in this order, becomes `target`, which may be one of them.

    A single operand is copied.
    """

    target: Chunk
    operands: tuple[Chunk, ...]
    final: bool = False


Operation = Send | Receive | Combine


@dataclass(frozen=True, slots=True)
class RankSchedule:
    """What one rank does.

    `input_chunks`, `output_chunks`: how many chunks the caller brings. `scratch`: per scratch chunk the input or output
    chunk that it is as large as.
    """

    input_chunks: int
    output_chunks: int
    scratch: tuple[Chunk, ...]
    operations: tuple[Operation, ...]
