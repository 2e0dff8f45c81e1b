"""Schedules of dlcp.transport.schedule as graphs of messages: what each rank sends, and what each message waits for.

A graph of one algorithm and world size is made once (`template`); collectives.py lays it down for tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.transport.schedule import Combine, Hosts, Receive, Send, Space, build
from dlcp.transport.schedule.layout import layout
from dlcp_sim.workloads.load import Array, When

JOIN_ABOVE = 4
"""A value that waits for more messages than this gets a task of its own, so that edges do not multiply."""


@dataclass(frozen=True)
class Template:
    """A collective's messages and what they wait for. Nodes: messages first, then joins (tasks that take no time)."""

    world_size: int
    source: Array
    """Of each message its sender's rank."""
    destination: Array
    part: Array
    """Which part of the tensor it carries."""
    lossy: Array
    parts: int
    join_rank: Array
    before: Array
    """Edges between nodes: always by delivery."""
    after: Array
    done_before: Array
    """Edges to the end of the collective at a rank …"""
    done_rank: Array
    done_when: Array
    """… When."""

    @property
    def messages(self) -> int:
        """How many."""
        return len(self.source)


@dataclass(frozen=True, eq=False)
class RankProgram:
    """What one rank sends and receives, and what waits for what: the part of a template that is its own.

    The rank's messages have places in the order of its operations, its joins places of their own; where both can stand,
    a join's is negative: -1 is the first.
    """

    messages: Array
    """A column per message: the other rank, the index among the messages between the two, whether this rank sends it,
    which part of the tensor it carries (of those received -1), whether it may lose."""
    edges: Array
    """A column each: what is waited for, by which message."""
    joins: int
    join_waits: Array
    """A column each: what is waited for, by which join."""
    done: Array
    done_when: When

    def rotated(self, by: int, world_size: int) -> RankProgram:
        """The same of the rank `by` further on, in a schedule that treats all ranks alike."""
        peer, index, sends, part, lossy = self.messages
        part = np.where(part < 0, -1, (part + by) % world_size)
        return dataclasses.replace(
            self, messages=np.stack([(peer + by) % world_size, index, sends, part, lossy])
        )

    def equals(self, other: RankProgram) -> bool:
        """Whether both have the same fields."""
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
        )


def rank_program(
    collective: str, algorithm: str, world_size: int, rank: int, root: int = 0, placement: Hosts | None = None
) -> RankProgram:
    """The program of one rank, from its schedule."""
    schedule = build(collective, algorithm, world_size, rank, root, placement)
    given = layout(collective, world_size, rank, root, schedule.output_chunks)
    part_of: dict[tuple[int, int], int] = {}
    for space, roles in ((Space.INPUT, given.inputs), (Space.OUTPUT, given.outputs)):
        part_of |= {(int(space), index): role.part for index, role in enumerate(roles)}
    for index, like in enumerate(schedule.scratch):
        part_of[int(Space.SCRATCH), index] = part_of[int(like[0]), like[1]]
    messages: list[tuple[int, int, bool, int, bool]] = []  # peer, index, sends, part, lossy
    edges: list[tuple[int, int]] = []
    joins: list[tuple[int, ...]] = []
    holds: dict[Any, tuple[int, ...]] = {}  # what a chunk's value waits for; absent: nothing

    def joined(waits: tuple[int, ...]) -> tuple[int, ...]:
        """The same in fewer nodes."""
        if len(waits) <= JOIN_ABOVE:
            return waits
        joins.append(waits)
        return (-len(joins),)

    for operation in schedule.operations:
        if type(operation) is Send:
            # Of an all-to-all every pair of ranks has a part of its own; for its size only the receiver counts.
            part = part_of[int(operation.source[0]), operation.source[1]] % world_size
            waits = holds[operation.source] = joined(holds.get(operation.source, ()))
            edges.extend((wait, len(messages)) for wait in waits)
            messages.append((operation.peer, operation.message, True, part, operation.lossy))
        elif type(operation) is Receive:
            waits = (len(messages),)
            if operation.operand is not None:
                waits = tuple(dict.fromkeys((*holds.get(operation.operand, ()), *waits)))
            holds[operation.target] = waits
            messages.append((operation.peer, operation.message, False, -1, False))
        elif type(operation) is Combine:
            found = (wait for operand in operation.operands for wait in holds.get(operand, ()))
            holds[operation.target] = joined(tuple(dict.fromkeys(found)))
    done = {w for index in range(schedule.output_chunks) for w in holds.get((Space.OUTPUT, index), ())}
    when = When.FINISHED
    if not done:  # nothing comes here: over when what it sent is there
        done, when = {place for place, message in enumerate(messages) if message[2]}, When.ACKNOWLEDGED
    waits_of = [(wait, -place - 1) for place, waits in enumerate(joins) for wait in waits]
    return RankProgram(
        messages=np.array(messages, np.int64).reshape(-1, 5).T,
        edges=np.array(edges, np.int64).reshape(-1, 2).T,
        joins=len(joins),
        join_waits=np.array(waits_of, np.int64).reshape(-1, 2).T,
        done=np.array(sorted(done), np.int64),
        done_when=when,
    )


def rank_programs(
    collective: str, algorithm: str, world_size: int, root: int = 0, placement: Hosts | None = None
) -> list[RankProgram]:
    """The programs of all ranks.

    In a ring, and where all talk to all, ranks do the same with other peers: then three are made and the others
    follow by turning the first, as each of the three does. A test holds this to the schedules of all ranks.
    """

    def of_rank(rank: int) -> RankProgram:
        return rank_program(collective, algorithm, world_size, rank, root, placement)

    probes = sorted({1, world_size // 2, world_size - 1})
    if world_size > len(probes):
        first = of_rank(0)
        if all(of_rank(rank).equals(first.rotated(rank, world_size)) for rank in probes):
            return [first.rotated(rank, world_size) for rank in range(world_size)]
    return [of_rank(rank) for rank in range(world_size)]


@lru_cache(maxsize=64)
def template(
    collective: str, algorithm: str, world_size: int, root: int = 0, placement: Hosts | None = None
) -> Template:
    """The graph of a schedule of dlcp.transport.schedule. Raises ArgumentError for what that does not know.

    `placement`: per rank the number of the group it belongs to, for algorithms that ask which ranks share a host.
    """
    programs = rank_programs(collective, algorithm, world_size, root, placement)
    ranks = np.arange(world_size)
    places = [program.messages.shape[1] for program in programs]
    joins = [program.joins for program in programs]
    peer, index, sends, part_at, lossy_at = np.concatenate([one.messages for one in programs], axis=1)
    sends = sends.astype(bool)
    # Messages have numbers in the order in which ranks, one after the other, name them first.
    at = np.repeat(ranks, places)
    source, destination = np.where(sends, at, peer), np.where(sends, peer, at)
    key = (source * world_size + destination) * (index.max(initial=0) + 1) + index
    _, first, found = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    node = number[found]  # of each place
    messages = len(order)
    first = first[order]
    part, lossy = np.zeros(messages, np.int64), np.zeros(messages, bool)
    part[node[sends]] = part_at[sends]
    lossy[node[sends]] = lossy_at[sends]
    place_start, join_start = np.cumsum([0, *places[:-1]]), np.cumsum([0, *joins[:-1]])

    def nodes(each: Sequence[Array]) -> tuple[Array, Array]:
        """Of places, rank by rank, their nodes, and the rank of each."""
        rank = np.repeat(ranks, [len(one) for one in each])
        place = np.concatenate(each)
        is_join = place < 0
        values = np.empty_like(place)
        values[~is_join] = node[(place + place_start[rank])[~is_join]]
        values[is_join] = messages + (join_start[rank] - place - 1)[is_join]
        return values, rank

    waits = [one.edges for one in programs], [one.join_waits for one in programs]
    done, done_rank = nodes([one.done for one in programs])
    done_when = np.repeat([int(one.done_when) for one in programs], [len(one.done) for one in programs])
    # At a rank what it receives by number, after joins, the last of them first; what it sends as it leaves.
    by_number = np.where(done >= messages, messages - done - 1, done)
    is_sent = done_when == int(When.ACKNOWLEDGED)
    done_order = np.lexsort((np.where(is_sent, np.arange(len(done)), by_number), done_rank))
    output_chunks = build(collective, algorithm, world_size, root, root, placement).output_chunks
    return Template(
        world_size=world_size,
        source=source[first],
        destination=destination[first],
        part=part,
        lossy=lossy,
        parts=_parts(collective, world_size, output_chunks),
        join_rank=np.repeat(ranks, joins),
        before=np.concatenate([nodes([one[0] for one in each])[0] for each in waits]),
        after=np.concatenate([nodes([one[1] for one in each])[0] for each in waits]),
        done_before=done[done_order],
        done_rank=done_rank,
        done_when=done_when,
    )


@lru_cache(maxsize=16)
def coarse_ring(world_size: int, steps: int) -> Template:
    """The graph of a coarse ring: of as many steps as the ring has, the ring's."""
    if not 1 <= steps <= 2 * (world_size - 1):
        raise ArgumentError(f"steps is {steps}; accepted: 1 to {2 * (world_size - 1)}")
    rank, step = (
        grid.reshape(-1) for grid in np.meshgrid(np.arange(world_size), np.arange(steps), indexing="ij")
    )
    message = np.arange(world_size * steps)
    # A message waits for the one of the step before that came from the rank before, and then for what is left out.
    waits = step > 0
    came = ((rank - 1) % world_size * steps + step - 1)[waits]
    joins = world_size * steps + np.arange(waits.sum())
    last = step == steps - 1
    return Template(
        world_size=world_size,
        source=rank,
        destination=(rank + 1) % world_size,
        part=step,
        lossy=np.zeros(len(message), bool),
        parts=steps,
        join_rank=rank[waits],
        before=np.concatenate([came, joins]),
        after=np.concatenate([joins, message[waits]]),
        done_before=message[last],
        done_rank=((rank + 1) % world_size)[last],
        done_when=np.full(world_size, int(When.FINISHED)),
    )


def _parts(collective: str, world_size: int, output_chunks: int) -> int:
    """How many parts the tensor of a collective is cut into."""
    if collective == "all_reduce":
        return output_chunks
    return 1 if collective in ("broadcast", "reduce") else world_size
