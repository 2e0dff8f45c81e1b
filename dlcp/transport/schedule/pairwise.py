"""Pairwise: an all-to-all in which, in step t, rank r sends to r + t and receives from r - t.

Nothing waits for the step before; the order is that in which messages join the queues, so that no rank is everyone's
first destination.
"""

from __future__ import annotations

from dlcp.transport.schedule.operations import RankSchedule
from dlcp.transport.schedule.program import Program, input_chunk, output_chunk


def all_to_all(world_size: int, rank: int) -> RankSchedule:
    """Input j of rank i becomes output i of rank j."""
    program = Program(input_chunks=world_size, output_chunks=world_size)
    for distance in range(1, world_size):
        to, source = (rank + distance) % world_size, (rank - distance) % world_size
        program.send(to, input_chunk(to))
        program.receive(source, output_chunk(source))
    program.combine(output_chunk(rank), input_chunk(rank))
    return program.schedule()
