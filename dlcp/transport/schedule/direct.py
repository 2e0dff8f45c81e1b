"""Direct: every part goes straight to the rank that needs it, in as few hops as there can be.

An all-reduce is a transpose (part i of all ranks to rank i, which adds them) and its inverse (rank i sends the result
to all): two hops and as few bytes as a ring, but every rank talks to every other, and n - 1 arrive at once at each.
For the middle, and for small worlds. What meets is kept in scratch and added in a fixed order: the owner's own part
first, then by rank. Peers are named from the next rank on, so that no rank is everyone's first destination.

The bounded ones are the same, but what goes to the rank that adds may lose blocks. It goes there in one hop, so a loss
costs one contribution to one block, and who sent it still has it: the input stays as it is. (Transpose all-reduce, as
OptiReduce, NSDI'25, section 3.1; in a ring a lost block holds the contributions of all ranks before.)
"""

from __future__ import annotations

from dlcp.transport.schedule.operations import Chunk, RankSchedule
from dlcp.transport.schedule.program import Program, input_chunk, output_chunk


def all_reduce(world_size: int, rank: int) -> RankSchedule:
    """Rank i adds part i of all, and sends the sum to all.

    The sum overwrites what was sent to rank i before, which rank i has received then: it is in the sum.
    """
    program = Program(output_chunks=world_size)
    own = output_chunk(rank)
    if world_size == 1:
        return program.schedule()
    for peer in _others(world_size, rank):
        program.send(peer, output_chunk(peer))
    _receive_and_add(program, world_size, rank, own, own)
    return _send_sums(program, world_size, rank)


def reduce_scatter(world_size: int, rank: int) -> RankSchedule:
    """Rank i adds part i of all."""
    program = Program(input_chunks=world_size, output_chunks=1)
    for peer in _others(world_size, rank):
        program.send(peer, input_chunk(peer))
    _receive_and_add(program, world_size, rank, output_chunk(0), input_chunk(rank))
    return program.schedule()


def bounded_all_reduce(world_size: int, rank: int) -> RankSchedule:
    """Rank i adds what came of part i of all, and sends the sum to all."""
    program = _lossy_parts(world_size, rank, world_size)
    _receive_lossy_and_add(program, world_size, rank, output_chunk(rank))
    return _send_sums(program, world_size, rank)


def bounded_reduce_scatter(world_size: int, rank: int) -> RankSchedule:
    """Rank i adds what came of part i of all."""
    program = _lossy_parts(world_size, rank, 1)
    _receive_lossy_and_add(program, world_size, rank, output_chunk(0))
    return program.schedule()


def coded_all_reduce(world_size: int, rank: int) -> RankSchedule:
    """Rank i adds what came of part i of all, at once: a sum is coded once, when it is complete."""
    program = _lossy_parts(world_size, rank, world_size)
    _receive_and_combine(program, world_size, rank, output_chunk(rank))
    return _send_sums(program, world_size, rank)


def coded_reduce_scatter(world_size: int, rank: int) -> RankSchedule:
    """Rank i adds what came of part i of all, at once."""
    program = _lossy_parts(world_size, rank, 1)
    _receive_and_combine(program, world_size, rank, output_chunk(0))
    return program.schedule()


def all_gather(world_size: int, rank: int) -> RankSchedule:
    """Everybody sends to everybody."""
    program = Program(input_chunks=1, output_chunks=world_size)
    for peer in _others(world_size, rank):
        program.send(peer, input_chunk(0))
    for peer in _others(world_size, rank):
        program.receive(peer, output_chunk(peer))
    program.combine(output_chunk(rank), input_chunk(0))
    return program.schedule()


def broadcast(world_size: int, rank: int, root: int) -> RankSchedule:
    """The root sends to everybody."""
    program = Program(output_chunks=1)
    if rank == root:
        for peer in _others(world_size, rank):
            program.send(peer, output_chunk(0))
    else:
        program.receive(root, output_chunk(0))
    return program.schedule()


def reduce(world_size: int, rank: int, root: int) -> RankSchedule:
    """Everybody sends to the root, which adds."""
    program = Program(input_chunks=1, output_chunks=int(rank == root))
    if rank == root:
        _receive_and_add(program, world_size, rank, output_chunk(0), input_chunk(0))
    else:
        program.send(root, input_chunk(0))
    return program.schedule()


def gather(world_size: int, rank: int, root: int) -> RankSchedule:
    """Every rank sends to the root. Only the root knows the sizes of all parts, so no other rank forwards them."""
    program = Program(input_chunks=1, output_chunks=world_size if rank == root else 0)
    if rank == root:
        for peer in _others(world_size, rank):
            program.receive(peer, output_chunk(peer))
        program.combine(output_chunk(rank), input_chunk(0))
    else:
        program.send(root, input_chunk(0))
    return program.schedule()


def scatter(world_size: int, rank: int, root: int) -> RankSchedule:
    """The root sends every rank its part. Only it knows the sizes of all parts, so no other rank forwards them."""
    program = Program(input_chunks=world_size if rank == root else 0, output_chunks=1)
    if rank == root:
        for peer in _others(world_size, rank):
            program.send(peer, input_chunk(peer))
        program.combine(output_chunk(0), input_chunk(rank))
    else:
        program.receive(root, output_chunk(0))
    return program.schedule()


def _others(world_size: int, rank: int) -> list[int]:
    return [(rank + distance) % world_size for distance in range(1, world_size)]


def _lossy_parts(world_size: int, rank: int, output_chunks: int) -> Program:
    """A program that begins by sending part i to rank i, where blocks of it may be lost."""
    program = Program(input_chunks=world_size, output_chunks=output_chunks)
    for peer in _others(world_size, rank):
        program.send(peer, input_chunk(peer), lossy=True)
    return program


def _send_sums(program: Program, world_size: int, rank: int) -> RankSchedule:
    """The program with its end: each rank's own part of the output goes to all."""
    for peer in _others(world_size, rank):
        program.send(peer, output_chunk(rank))
    for peer in _others(world_size, rank):
        program.receive(peer, output_chunk(peer))
    return program.schedule()


def _receive_lossy_and_add(program: Program, world_size: int, rank: int, target: Chunk) -> None:
    """As _receive_and_add of the own input, but the first message is added as it comes: the target is apart from it."""
    own = input_chunk(rank)
    if world_size == 1:
        program.combine(target, own, final=True)
        return
    first, *rest = (peer for peer in range(world_size) if peer != rank)
    received = {peer: program.scratch(own) for peer in rest}
    for peer in _others(world_size, rank):
        if peer == first:
            program.receive(peer, target, own, final=not rest, lossy=True)
        else:
            program.receive(peer, received[peer], lossy=True)
    if rest:
        program.combine(target, target, *received.values(), final=True)


def _receive_and_combine(program: Program, world_size: int, rank: int, target: Chunk) -> None:
    """`target` = the own input and what comes of the other ranks' messages, by rank."""
    own = input_chunk(rank)
    operands = {peer: own if peer == rank else program.scratch(own) for peer in range(world_size)}
    for peer in _others(world_size, rank):
        program.receive(peer, operands[peer], lossy=True)
    program.combine(target, *operands.values(), final=True)


def _receive_and_add(program: Program, world_size: int, rank: int, target: Chunk, own: Chunk) -> None:
    """`target` = `own` + the next message of each other rank, by rank."""
    received = {peer: program.scratch(own) for peer in range(world_size) if peer != rank}
    for peer in _others(world_size, rank):
        program.receive(peer, received[peer])
    program.combine(target, own, *received.values(), final=True)
