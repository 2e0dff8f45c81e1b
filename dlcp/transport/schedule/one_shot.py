"""One shot: every rank sends its whole tensor to every other and adds all of them by rank.

One hop, which nothing undercuts, for (n - 1) times the tensor per rank: for what fits a few packets. Every rank adds
the same values in the same order, so all have the same bits. What is sent is a copy: a rank has its result, which
goes where its contribution was, before it can know that its own messages arrived.
"""

from __future__ import annotations

from dlcp.transport.schedule.operations import RankSchedule
from dlcp.transport.schedule.program import Program, output_chunk


def all_reduce(world_size: int, rank: int) -> RankSchedule:
    """One chunk, whatever the world size."""
    program = Program(output_chunks=1)
    if world_size == 1:
        return program.schedule()
    result = output_chunk(0)
    contributions = [program.scratch(result) for _ in range(world_size)]
    program.combine(contributions[rank], result)
    others = [(rank + distance) % world_size for distance in range(1, world_size)]
    for peer in others:
        program.send(peer, contributions[rank])
    for peer in others:
        program.receive(peer, contributions[peer])
    program.combine(result, *contributions, final=True)
    return program.schedule()
