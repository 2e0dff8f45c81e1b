"""Memory for a collective, and what has to be in it at the end: told by the layout, whatever the algorithm."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.transport.schedule import ALGORITHMS, ROOTED, RankSchedule, build
from dlcp.transport.schedule.layout import REDUCING, layout

Array = npt.NDArray[Any]

PAIRS = [(collective, algorithm) for collective, serving in ALGORITHMS.items() for algorithm in serving]
"""Every collective with every algorithm that serves it."""


def build_all(collective: str, algorithm: str, world_size: int, root: int = 0) -> list[RankSchedule]:
    """The schedules of all ranks."""
    return [build(collective, algorithm, world_size, rank, root) for rank in range(world_size)]


def roots(collective: str, world_size: int) -> list[int]:
    """A few roots: the first, one amid and the last; 0 where there is none."""
    return sorted({0, world_size // 2, world_size - 1}) if collective in ROOTED else [0]


@dataclass
class Memory:
    """Per rank and chunk what goes in, what comes out, and what has to come out for a sum."""

    inputs: list[list[Array]]
    outputs: list[list[Array]]
    wanted: list[list[Array]]


def make_memory(
    schedules: list[RankSchedule],
    collective: str,
    root: int,
    *,
    seed: int,
    dtype: npt.DTypeLike = np.int64,
    elements_max: int = 9,
    in_place: bool = False,
) -> Memory:
    """Contributions drawn by `seed`; parts differ in size, and some are empty.

    `in_place`: an output lies in the input where the layout allows it. Integers are drawn from the whole range.
    """
    world_size = len(schedules)
    draw = np.random.default_rng(seed)

    @functools.cache
    def contribution(part: int, rank: int) -> Array:
        elements = elements_of(part)
        if np.issubdtype(dtype, np.integer):
            info = np.iinfo(np.dtype(dtype))
            return draw.integers(info.min, info.max, elements, dtype=dtype, endpoint=True)  # type: ignore[arg-type]
        return draw.standard_normal(elements).astype(dtype)

    @functools.cache
    def elements_of(part: int) -> int:
        return int(draw.integers(0, elements_max, endpoint=True))

    memory = Memory([], [], [])
    for rank, schedule in enumerate(schedules):
        given = layout(collective, world_size, rank, root, schedule.output_chunks)
        inputs = [contribution(role.part, rank).copy() for role in given.inputs]
        outputs = []
        wanted = []
        for role in given.outputs:
            if role.holds is not None:
                outputs.append(contribution(role.part, role.holds).copy())
            else:
                outputs.append(np.full(elements_of(role.part), 77, dtype=dtype))
            ranks = [r for r in range(world_size) if role.wants >> r & 1]
            assert len(ranks) == 1 or collective in REDUCING
            total = contribution(role.part, ranks[0])
            for r in ranks[1:]:
                total = total + contribution(role.part, r)
            wanted.append(total)
        for read, written in given.in_place if in_place else ():
            outputs[written] = inputs[read]
        memory.inputs.append(inputs)
        memory.outputs.append(outputs)
        memory.wanted.append(wanted)
    return memory
