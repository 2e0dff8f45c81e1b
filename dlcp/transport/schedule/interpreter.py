"""Runs the schedules of all ranks on arrays, in an order drawn by a seed: what the native executor is held against.

Slow and obvious: one event at a time, a block of a message that arrives or a local combination, drawn from
those that may happen then. It waits for what the executor waits for, and for nothing else; and it reads a message's
bytes as late as may be, when they arrive. So a schedule that relies on luck gives different results by seed. What is
abandoned of a lossy message arrives as such: its receive's operand stays alone, or zeros take its place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.transport.schedule.operations import Chunk, Combine, RankSchedule, Receive, Send

Array = npt.NDArray[Any]
Reduce = Callable[[Array, Array], Array]
Lost = Callable[[int, int, int, int], bool]
"""Of (sender, receiver, message, block): whether this block of a lossy message is abandoned."""


class StuckError(Exception):
    """No operation can run though not all have."""


def run(
    schedules: Sequence[RankSchedule],
    inputs: Sequence[Sequence[Array]],
    outputs: Sequence[Sequence[Array]],
    *,
    reduce: Reduce = np.add,
    finish: Callable[[Array], Array] | None = None,
    lost: Lost | None = None,
    rescale: Callable[[Array, int], Array] | None = None,
    block_elements: int = 4,
    seed: int = 0,
) -> None:
    """Runs a collective; the results are in `outputs`.

    `inputs`, `outputs`: per rank and chunk a one-dimensional array, which may share memory where the layout allows it.
    `reduce`: of two arrays; the first is what stands first in the schedule, and what arrives comes second. `finish`:
    what becomes of final results. `lost`: which blocks of lossy messages are abandoned; None: none. `rescale`: what
    becomes of final results, in place of `finish`, told how many contributions came. Scratch is filled with 0xff
    bytes first. Raises StuckError if operations wait for each other.
    """
    ranks = [
        _Rank(schedule, inputs[rank], outputs[rank], block_elements)
        for rank, schedule in enumerate(schedules)
    ]
    draw = random.Random(seed)
    receives = {
        (rank, operation.peer, operation.message): step
        for rank, schedule in enumerate(schedules)
        for step, operation in enumerate(schedule.operations)
        if isinstance(operation, Receive)
    }
    # (rank, operation, block) whose operands are there.
    ready = [event for rank, state in enumerate(ranks) for event in state.start(rank)]
    arrived: dict[tuple[int, int, int], Array] = {}  # blocks that wait for what they are combined with
    absent: set[tuple[int, int, int]] = set()  # blocks that were abandoned
    left = sum(state.left for state in ranks)
    while left > 0:
        if not ready:
            raise StuckError(f"{left} operations on blocks wait for each other")
        index = draw.randrange(len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        rank, step, block = ready.pop()
        state = ranks[rank]
        operation = state.operations[step]
        if isinstance(operation, Send):
            # It arrives. The receiver's operation runs now, or keeps what came until its operand is there.
            peer = operation.peer
            there = (peer, receives[peer, rank, operation.message], block)
            arrived[there] = state.block(operation.source, block).copy()
            if operation.lossy and lost is not None and lost(rank, peer, operation.message, block):
                absent.add(there)
            ready += ranks[peer].satisfy(*there)
        else:
            operands = [state.block(chunk, block) for chunk in _operands(operation)]
            if isinstance(operation, Receive):
                came = arrived.pop((rank, step, block))
                if (rank, step, block) not in absent:
                    operands.append(came)
                elif not operands:
                    operands.append(np.zeros_like(came))
            value = operands[0]
            for operand in operands[1:]:
                value = reduce(value, operand)
            if operation.final and rescale is not None:
                value = rescale(value, state.contributions(rank, step, block, absent))
            elif operation.final and finish is not None:
                value = finish(value)
            state.block(operation.target, block)[:] = value
        left -= 1
        for consumer in state.consumers[step]:
            ready += state.satisfy(rank, consumer, block)


class _Rank:
    """One rank's memory, and what its operations still wait for."""

    def __init__(
        self, schedule: RankSchedule, inputs: Sequence[Array], outputs: Sequence[Array], block_elements: int
    ) -> None:
        self.operations = schedule.operations
        self.consumers: list[list[int]] = [[] for _ in self.operations]
        self.producers: list[list[int | None]] = []  # of each operand; None: there at the start
        self.left = 0
        self._block_elements = block_elements
        given = (inputs, outputs)
        scratch = [np.empty_like(given[like.space][like.index]) for like in schedule.scratch]
        for memory in scratch:
            memory.view(np.uint8).fill(0xFF)
        self._memory = (*given, scratch)
        self._waits: list[list[int]] = []  # per operation and block, for how many things
        latest: dict[Chunk, int] = {}
        for step, operation in enumerate(self.operations):
            waits = 1 if isinstance(operation, Receive) else 0
            self.producers.append([latest.get(chunk) for chunk in _operands(operation)])
            for chunk in _operands(operation):
                if chunk in latest:
                    self.consumers[latest[chunk]].append(step)
                    waits += 1
            chunk = operation.source if isinstance(operation, Send) else operation.target
            if not isinstance(operation, Send):
                latest[chunk] = step
            blocks = -(-len(self._memory[chunk.space][chunk.index]) // block_elements)
            self._waits.append([waits] * blocks)
            self.left += blocks

    def start(self, rank: int) -> list[tuple[int, int, int]]:
        """What waits for nothing."""
        return [
            (rank, step, block)
            for step, waits in enumerate(self._waits)
            for block, count in enumerate(waits)
            if count == 0
        ]

    def satisfy(self, rank: int, step: int, block: int) -> list[tuple[int, int, int]]:
        """One thing that a block of an operation waited for has come: that block, if it was the last."""
        self._waits[step][block] -= 1
        return [(rank, step, block)] if self._waits[step][block] == 0 else []

    def contributions(self, rank: int, step: int, block: int, absent: set[tuple[int, int, int]]) -> int:
        """How many contributions are in what a final operation makes of lossy receives, or is made by being one."""
        operation = self.operations[step]
        count = sum(
            1 if producer is None else self.contributions(rank, producer, block, absent)
            for producer in self.producers[step]
        )
        return count + (isinstance(operation, Receive) and (rank, step, block) not in absent)

    def block(self, chunk: Chunk, block: int) -> Array:
        """The memory of a block."""
        memory = self._memory[chunk.space][chunk.index]
        return memory[block * self._block_elements : (block + 1) * self._block_elements]


def _operands(operation: Send | Receive | Combine) -> tuple[Chunk, ...]:
    match operation:
        case Send(source=source):
            return (source,)
        case Receive(operand=operand):
            return () if operand is None else (operand,)
        case Combine(operands=operands):
            return operands
