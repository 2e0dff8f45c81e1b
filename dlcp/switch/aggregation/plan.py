"""The blocks of one all-reduce, in the order in which they are sent.

Integers: block i is the i-th row of values. Floats: for every LANES rows one block of exponent codes (Operation.MAX),
which has to be decided before those rows are sent. The block of a group comes before the values of the group before it,
so that there is something to send while it is pending:

    codes 0 · codes 1 · values 0 … 31 · codes 2 · values 32 … 63 · codes 3 · …

All workers make the same plan from the number and type of elements alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dlcp.switch.aggregation.packet import LANES
from dlcp.switch.aggregation.quantise import block_count


@dataclass(frozen=True)
class PlannedBlock:
    """What one block carries."""

    row: int
    """Of values; of codes: the group's number."""
    is_codes: bool
    needs: int | None
    """Block whose result is needed first."""


@lru_cache(maxsize=64)
def plan(elements: int, floating: bool) -> tuple[PlannedBlock, ...]:
    """The blocks of an all-reduce."""
    rows = block_count(elements)
    if not floating:
        return tuple(PlannedBlock(row, False, None) for row in range(rows))
    groups = block_count(rows)
    blocks: list[PlannedBlock] = []
    place_of_codes: list[int] = []
    for group in range(groups + 1):
        if group < groups:
            place_of_codes.append(len(blocks))
            blocks.append(PlannedBlock(group, True, None))
        for row in range(max(group - 1, 0) * LANES, min(group * LANES, rows)):
            blocks.append(PlannedBlock(row, False, place_of_codes[group - 1]))
    return tuple(blocks)
