"""From a schedule to what native code runs: compiled, and its chunks laid over the caller's memory.

Mostly that is one pass over the operations. Where a chunk is too large for one message (4 GiB), it is cut into pieces
and every operation on it into one per piece: the collective stays one, with one sequence number, and the pieces are
as independent as the chunks were. Both ends of a message know its length, so they cut it alike; nothing else has to
be agreed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from dlcp import _native
from dlcp.errors import LimitError
from dlcp.transport.schedule import (
    MAX_MESSAGES,
    Chunk,
    Combine,
    Operation,
    RankSchedule,
    Receive,
    Send,
    Space,
)
from dlcp.transport.span import Span

# What one message carries at most: its length has 32 bits (native/collective/executor.hpp, most_chunk_bytes).
MAX_MESSAGE_BYTES = (1 << 32) - 64
# Pieces begin at whole cache lines, so at whole elements of every type.
_ALIGNMENT_BYTES = 64

Part = tuple[int, int, int]
"""Index of the caller's chunk, first byte, length: where one chunk of a cut schedule lies."""


def compile_schedule(schedule: RankSchedule, world_size: int, rank: int) -> _native.Schedule:
    """The schedule as native code runs it."""
    builder = _native.ScheduleBuilder(world_size, rank, schedule.input_chunks, schedule.output_chunks)
    for like in schedule.scratch:
        builder.scratch(like)
    for operation in schedule.operations:
        match operation:
            case Send(peer, message, source, lossy):
                builder.send(peer, message, source, lossy)
            case Receive(peer, message, target, operand, final, lossy):
                builder.receive(peer, message, target, operand, final, lossy)
            case Combine(target, operands, final):
                builder.combine(target, operands, final)
    return builder.build()


def even_parts(span: Span, parts: int, dtype: _native.DataType) -> list[Span]:
    """Memory in `parts` parts as native code partitions it (native/collective/partition.hpp)."""
    lengths = _native.part_bytes(span.nbytes, parts, dtype)
    begins = accumulate(lengths, initial=span.address)
    return [Span(begin, nbytes) for begin, nbytes in zip(begins, lengths, strict=False)]


class Cut:
    """A schedule of which no chunk is longer than `limit_bytes`, and where its chunks lie.

    `inputs`, `outputs`: bytes of the caller's chunks. Raises LimitError: more pieces than messages can be numbered.
    """

    def __init__(
        self, schedule: RankSchedule, inputs: Sequence[int], outputs: Sequence[int], limit_bytes: int
    ) -> None:
        limit_bytes -= limit_bytes % _ALIGNMENT_BYTES
        lengths = {Chunk(Space.INPUT, i): nbytes for i, nbytes in enumerate(inputs)}
        lengths |= {Chunk(Space.OUTPUT, i): nbytes for i, nbytes in enumerate(outputs)}
        lengths |= {Chunk(Space.SCRATCH, i): lengths[like] for i, like in enumerate(schedule.scratch)}
        pieces = {chunk: max(1, -(-nbytes // limit_bytes)) for chunk, nbytes in lengths.items()}
        # Ranks that use more than one message between them know all lengths, so they arrive at the same number here.
        self._messages = max(pieces.values(), default=1)
        first: dict[Chunk, int] = {}
        for space in Space:
            at = 0
            for chunk in (chunk for chunk in pieces if chunk.space is space):
                first[chunk] = at
                at += pieces[chunk]
        self._pieces, self._first = pieces, first
        self.inputs = self._parts(Space.INPUT, lengths, limit_bytes)
        """Where each input chunk of the cut schedule lies."""
        self.outputs = self._parts(Space.OUTPUT, lengths, limit_bytes)
        """Where each output chunk of the cut schedule lies."""
        self.schedule = RankSchedule(
            len(self.inputs),
            len(self.outputs),
            tuple(self._piece(like, i) for like in schedule.scratch for i in range(pieces[like])),
            tuple(piece for operation in schedule.operations for piece in self._operations(operation)),
        )
        """The schedule of the pieces."""
        most = max(
            (each.message for each in self.schedule.operations if not isinstance(each, Combine)), default=0
        )
        if most >= MAX_MESSAGES:
            raise LimitError(
                f"{max(lengths.values())} bytes for one message of this schedule are more than its {MAX_MESSAGES}"
                f" message numbers can carry in pieces of {limit_bytes}; use another algorithm, or smaller tensors"
            )

    def _piece(self, chunk: Chunk, number: int) -> Chunk:
        return Chunk(chunk.space, self._first[chunk] + number)

    def _parts(self, space: Space, lengths: dict[Chunk, int], limit_bytes: int) -> list[Part]:
        return [
            (chunk.index, at, min(limit_bytes, nbytes - at))
            for chunk, nbytes in lengths.items()
            if chunk.space is space
            for at in range(0, max(nbytes, 1), limit_bytes)
        ]

    def _operations(self, operation: Operation) -> list[Operation]:
        match operation:
            case Send(source=source):
                return [
                    operation._replace(
                        message=operation.message * self._messages + i, source=self._piece(source, i)
                    )
                    for i in range(self._pieces[source])
                ]
            case Receive(target=target, operand=operand):
                return [
                    operation._replace(
                        message=operation.message * self._messages + i,
                        target=self._piece(target, i),
                        operand=None if operand is None else self._piece(operand, i),
                    )
                    for i in range(self._pieces[target])
                ]
            case Combine(target=target, operands=operands):
                return [
                    operation._replace(
                        target=self._piece(target, i),
                        operands=tuple(self._piece(each, i) for each in operands),
                    )
                    for i in range(self._pieces[target])
                ]
