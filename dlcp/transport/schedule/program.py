"""Writes one rank's program: operations in order, messages numbered as they are named.

Both ends count their messages to and from each other in program order, so a schedule is right when sender and
receiver name them in the same order; nothing here checks that (checker.py does).
"""

from __future__ import annotations

from dlcp.errors import ArgumentError
from dlcp.transport.schedule.operations import Chunk, Combine, Operation, RankSchedule, Receive, Send, Space

MAX_MESSAGES = 1 << 12
"""Messages from one rank to another within a collective: the number is part of the tag (schedule.hpp)."""


def input_chunk(index: int) -> Chunk:
    """The caller's input `index`."""
    return Chunk(Space.INPUT, index)


def output_chunk(index: int) -> Chunk:
    """The caller's output `index`."""
    return Chunk(Space.OUTPUT, index)


class Program:
    """What one rank does, while it is being written."""

    def __init__(self, *, input_chunks: int = 0, output_chunks: int = 0) -> None:
        self._input_chunks = input_chunks
        self._output_chunks = output_chunks
        self._scratch: list[Chunk] = []
        self._operations: list[Operation] = []
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}

    def scratch(self, like: Chunk) -> Chunk:
        """A new scratch chunk, as large as `like`."""
        self._scratch.append(like)
        return Chunk(Space.SCRATCH, len(self._scratch) - 1)

    def send(self, peer: int, source: Chunk, *, lossy: bool = False) -> None:
        """`source` goes to `peer`."""
        self._operations.append(Send(peer, _next_message(self._sent, peer), source, lossy))

    def receive(
        self,
        peer: int,
        target: Chunk,
        operand: Chunk | None = None,
        *,
        final: bool = False,
        lossy: bool = False,
    ) -> None:
        """The next message from `peer`, combined with `operand` if given, becomes `target`."""
        message = _next_message(self._received, peer)
        self._operations.append(Receive(peer, message, target, operand, final, lossy))

    def combine(self, target: Chunk, *operands: Chunk, final: bool = False) -> None:
        """The operands, combined in this order, become `target`; a single one is copied."""
        self._operations.append(Combine(target, operands, final))

    def schedule(self) -> RankSchedule:
        """What has been written."""
        return RankSchedule(
            self._input_chunks, self._output_chunks, tuple(self._scratch), tuple(self._operations)
        )


def _next_message(counted: dict[int, int], peer: int) -> int:
    message = counted.get(peer, 0)
    if message >= MAX_MESSAGES:
        raise ArgumentError(
            f"this world is too large for this algorithm: it needs more than {MAX_MESSAGES} messages "
            "between two ranks; choose another algorithm"
        )
    counted[peer] = message + 1
    return message
