"""Halving and doubling: ⌈log2 n⌉ rounds in which what a rank is responsible for halves, and as many back.

As few bytes as a ring in 2 ⌈log2 n⌉ hops, with as many peers each way: for the middle, in worlds where direct would
connect everybody with everybody. Distances run round the ring of ranks instead of flipping bits of the rank (J. L.
Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024), so any world size will do without a
round for the ranks left over. Invariant after a round with `kept` parts: rank r holds partial sums of the parts
r, r + 1, … r + kept - 1, and all that was contributed to these lies in the hands of such ranks, each once.
"""

from __future__ import annotations

from dlcp.transport.schedule.operations import Chunk, RankSchedule
from dlcp.transport.schedule.program import Program, input_chunk, output_chunk


def all_reduce(world_size: int, rank: int) -> RankSchedule:
    """A reduce-scatter in the output, then an all-gather.

    The sum of a part overwrites what this rank passed on of it, which has arrived then: it is in the sum.
    """
    program = Program(output_chunks=world_size)
    parts = [output_chunk(part) for part in range(world_size)]
    for held, kept in _rounds(world_size):
        _pass_on(program, world_size, rank, held, kept, parts)
        for part in _span(world_size, rank, held - kept):
            program.receive((rank - kept) % world_size, parts[part], parts[part], final=kept == 1)
    _gather(program, world_size, rank, parts)
    return program.schedule()


def reduce_scatter(world_size: int, rank: int) -> RankSchedule:
    """Partial sums of other ranks' parts lie in scratch: the input is the caller's."""
    program = Program(input_chunks=world_size, output_chunks=1)
    if world_size == 1:
        program.combine(output_chunk(0), input_chunk(0), final=True)
    parts = [input_chunk(part) for part in range(world_size)]
    sums: dict[int, Chunk] = {rank: output_chunk(0)}
    for held, kept in _rounds(world_size):
        _pass_on(program, world_size, rank, held, kept, parts)
        for part in _span(world_size, rank, held - kept):
            if part not in sums:
                sums[part] = program.scratch(input_chunk(part))
            program.receive((rank - kept) % world_size, sums[part], parts[part], final=kept == 1)
            parts[part] = sums[part]
    return program.schedule()


def all_gather(world_size: int, rank: int) -> RankSchedule:
    """The way back alone."""
    program = Program(input_chunks=1, output_chunks=world_size)
    parts = [output_chunk(part) for part in range(world_size)]
    parts[rank] = input_chunk(0)
    _gather(program, world_size, rank, parts)
    program.combine(output_chunk(rank), input_chunk(0))
    return program.schedule()


def _rounds(world_size: int) -> list[tuple[int, int]]:
    """(held, kept): parts that a rank is responsible for before and after each round."""
    rounds = []
    held = world_size
    while held > 1:
        kept = (held + 1) // 2
        rounds.append((held, kept))
        held = kept
    return rounds


def _span(world_size: int, first: int, count: int) -> list[int]:
    return [(first + i) % world_size for i in range(count)]


def _pass_on(program: Program, world_size: int, rank: int, held: int, kept: int, parts: list[Chunk]) -> None:
    """Sends what this rank does not keep to the rank that is `kept` on, which keeps it."""
    peer = (rank + kept) % world_size
    for part in _span(world_size, peer, held - kept):
        program.send(peer, parts[part])


def _gather(program: Program, world_size: int, rank: int, parts: list[Chunk]) -> None:
    """Rank r has part r and gets all others: the rounds backwards."""
    for held, kept in reversed(_rounds(world_size)):
        for part in _span(world_size, rank, held - kept):
            program.send((rank - kept) % world_size, parts[part])
        peer = (rank + kept) % world_size
        for part in _span(world_size, peer, held - kept):
            program.receive(peer, parts[part])
