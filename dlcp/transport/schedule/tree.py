"""Binomial tree: ⌈log2 n⌉ hops from or to the root, and as many peers at most; for small data in large worlds.

Ranks are counted from the root. Rank v > 0 hangs below v with its lowest set bit cleared; its subtree is the ranks
that differ from it below that bit. A parent adds its children's sums in a chain, nearest child first: the order of
their arrival does not matter, and nothing but a block that came too early is stored.
"""

from __future__ import annotations

from dlcp.transport.schedule.operations import Chunk, RankSchedule
from dlcp.transport.schedule.program import Program, input_chunk, output_chunk


def all_reduce(world_size: int, rank: int) -> RankSchedule:
    """A reduce to rank 0 and a broadcast from it; one chunk, whatever the world size."""
    program = Program(output_chunks=1)
    parent, children = _place(world_size, rank, 0)
    result = output_chunk(0)
    _add_children(program, children, result, result, final=parent is None)
    if parent is not None:
        program.send(parent, result)
        # Overwrites what was sent to the parent; it has it, since it is in the sum.
        program.receive(parent, result)
    for child in reversed(children):
        program.send(child, result)
    return program.schedule()


def broadcast(world_size: int, rank: int, root: int) -> RankSchedule:
    """The farthest child, which has the most below it, is sent to first."""
    program = Program(output_chunks=1)
    parent, children = _place(world_size, rank, root)
    if parent is not None:
        program.receive(parent, output_chunk(0))
    for child in reversed(children):
        program.send(child, output_chunk(0))
    return program.schedule()


def reduce(world_size: int, rank: int, root: int) -> RankSchedule:
    """Inner ranks add in scratch: the input is the caller's."""
    program = Program(input_chunks=1, output_chunks=int(rank == root))
    parent, children = _place(world_size, rank, root)
    own = input_chunk(0)
    if parent is None:
        if world_size == 1:
            program.combine(output_chunk(0), own, final=True)
        _add_children(program, children, output_chunk(0), own, final=True)
    elif children:
        partial = program.scratch(own)
        _add_children(program, children, partial, own, final=False)
        program.send(parent, partial)
    else:
        program.send(parent, own)
    return program.schedule()


def _place(world_size: int, rank: int, root: int) -> tuple[int | None, list[int]]:
    """The parent of a rank (None: it is the root) and its children, nearest first."""
    place = (rank - root) % world_size
    below = place & -place if place else world_size
    children = []
    distance = 1
    while distance < below and place + distance < world_size:
        children.append((rank + distance) % world_size)
        distance *= 2
    return (root + (place & (place - 1))) % world_size if place else None, children


def _add_children(program: Program, children: list[int], target: Chunk, own: Chunk, *, final: bool) -> None:
    operand = own
    for child in children:
        program.receive(child, target, operand, final=final and child == children[-1])
        operand = target
