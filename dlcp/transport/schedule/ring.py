"""Ring: every rank sends to the next one only, and a block is passed on as soon as it is combined.

Each link carries the least that is possible, 2 (n - 1) / n of the tensor for an all-reduce, and a host with
consecutive ranks has one flow in and one out: for large data. The price is 2 (n - 1) hops. Broadcast and reduce are
chains that end, or begin, behind the root. Nothing of an all-reduce is stored: a block is combined into the output
where it lies. It may be overwritten by the result later, since the result went through whom it had been sent to.
"""

from __future__ import annotations

from dlcp.transport.schedule.operations import RankSchedule
from dlcp.transport.schedule.program import Program, input_chunk, output_chunk


def all_reduce(world_size: int, rank: int) -> RankSchedule:
    """Part i becomes the sum at rank i, then goes round."""
    program = Program(output_chunks=world_size)
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    for hop in range(1, world_size):
        program.send(after, output_chunk((rank - hop) % world_size))
        part = output_chunk((rank - hop - 1) % world_size)
        program.receive(before, part, part, final=hop == world_size - 1)
    for hop in range(world_size - 1):
        program.send(after, output_chunk((rank - hop) % world_size))
        program.receive(before, output_chunk((rank - hop - 1) % world_size))
    return program.schedule()


def reduce_scatter(world_size: int, rank: int) -> RankSchedule:
    """Part i starts at rank i + 1 and ends at rank i; partial sums lie in scratch, the input is the caller's."""
    program = Program(input_chunks=world_size, output_chunks=1)
    if world_size == 1:
        program.combine(output_chunk(0), input_chunk(0), final=True)
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    source = input_chunk(before)
    for hop in range(1, world_size):
        program.send(after, source)
        part = input_chunk((rank - hop - 1) % world_size)
        last = hop == world_size - 1
        source = output_chunk(0) if last else program.scratch(part)
        program.receive(before, source, part, final=last)
    return program.schedule()


def all_gather(world_size: int, rank: int) -> RankSchedule:
    """Every part goes round once."""
    program = Program(input_chunks=1, output_chunks=world_size)
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    source = input_chunk(0)
    for hop in range(1, world_size):
        program.send(after, source)
        source = output_chunk((rank - hop) % world_size)
        program.receive(before, source)
    program.combine(output_chunk(rank), input_chunk(0))
    return program.schedule()


def broadcast(world_size: int, rank: int, root: int) -> RankSchedule:
    """A chain from the root: each rank sends the tensor once, block by block as it comes."""
    program = Program(output_chunks=1)
    place = (rank - root) % world_size
    if place > 0:
        program.receive((rank - 1) % world_size, output_chunk(0))
    if place < world_size - 1:
        program.send((rank + 1) % world_size, output_chunk(0))
    return program.schedule()


def reduce(world_size: int, rank: int, root: int) -> RankSchedule:
    """A chain to the root, begun by the rank after it."""
    program = Program(input_chunks=1, output_chunks=int(rank == root))
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    if world_size == 1:
        program.combine(output_chunk(0), input_chunk(0), final=True)
    elif rank == root:
        program.receive(before, output_chunk(0), input_chunk(0), final=True)
    elif before == root:
        program.send(after, input_chunk(0))
    else:
        partial = program.scratch(input_chunk(0))
        program.receive(before, partial, input_chunk(0))
        program.send(after, partial)
    return program.schedule()
