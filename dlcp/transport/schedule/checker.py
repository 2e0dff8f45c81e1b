"""Proves that the schedules of all ranks together are a collective, by running them on symbols.

Proved, for every order in which packets may arrive: that each output ends with every contribution that belongs in it,
exactly once, of the right part and divided once where an average is taken; that all ranks get the same bits, since
equal results are computed once and copied or computed in the same order; that messages pair up; that nothing waits
for itself; that the input is never written; and that no byte is overwritten that somebody still has to read.

The last rests on what the executor promises, no more: an operation waits for the operations that produced its
operands, byte by byte, and a message's bytes are read until the receiver has them. So an overwriting is safe if it
depends, through operands and messages, on all that read or wrote there before; and a message counts as read
when its receiver's operation has run. Bytes depend only on bytes of the same offset and part, so
what is proved of whole chunks holds of any cut into blocks.

A block of a lossy message may come or be abandoned, each apart from the others. Two things are proved for all these
cases at once. First, a block carries one rank's contribution and nothing else, which its sender still has at the end.
So a loss takes this one contribution out of a sum, and nobody's memory of it is lost. Second, ranks that end with the
same part end with the same bits, since what a lossy message left counts as a value of its own, which nothing but a copy
is equal to.

Not checked: speed. `cost` counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from dlcp.transport.schedule.graph import Graph, ScheduleError, chunk_name
from dlcp.transport.schedule.hub import Hub
from dlcp.transport.schedule.layout import BOUNDED, REDUCING
from dlcp.transport.schedule.operations import Chunk, Combine, RankSchedule, Receive, Send, Space


@dataclass(frozen=True, slots=True)
class Cost:
    """What a collective asks for, whatever the sizes."""

    steps: int
    """Messages on the longest chain of those that need one another: hops in which a first block goes through."""
    messages: int
    """Messages that the busiest rank sends, a chunk each."""
    sent_ratio: float
    """What the busiest rank sends, in units of the whole tensor, cut into equal chunks."""
    received_ratio: float
    """What the busiest rank receives, likewise."""
    scratch_ratio: float
    """What the busiest rank keeps in scratch, likewise."""
    peers: int
    """Ranks that the busiest rank exchanges messages with."""


def check(schedules: Sequence[RankSchedule], collective: str, root: int = 0, hub: Hub | None = None) -> None:
    """Raises ScheduleError unless `schedules`, one per rank, are right. `hub`: some ranks are its cores."""
    graph = Graph(schedules, collective, root, hub)
    _check_lossy_ends(graph)
    _check_values(graph)
    _check_kept(graph)
    _check_overwriting(graph)


def cost(schedules: Sequence[RankSchedule], collective: str, root: int = 0, hub: Hub | None = None) -> Cost:
    """What `schedules` cost. They have to be right as far as messages pair up and nothing waits for itself."""
    graph = Graph(schedules, collective, root, hub)
    depth = [0] * len(graph.operations)
    for step in graph.order:
        depth[step] = max((depth[earlier] for earlier in graph.needs[step]), default=0)
        if type(graph.operations[step]) is Receive:
            # An operand is there or awaited; only the message itself is a hop.
            depth[step] = max(depth[step], depth[graph.match[step]] + 1)
    chunks = max(max(s.input_chunks, s.output_chunks) for s in schedules)
    sent = [sum(type(op) is Send for op in s.operations) for s in schedules]
    received = [sum(type(op) is Receive for op in s.operations) for s in schedules]
    return Cost(
        steps=max(depth, default=0),
        messages=max(sent),
        sent_ratio=max(sent) / chunks,
        received_ratio=max(received) / chunks,
        scratch_ratio=max(len(s.scratch) for s in schedules) / chunks,
        peers=max(len({op.peer for op in s.operations if not isinstance(op, Combine)}) for s in schedules),
    )


def _check_lossy_ends(graph: Graph) -> None:
    """That a collective may lose at all, that both ends of a message know it, and that the receiver can tell."""
    for step, operation in enumerate(graph.operations):
        if isinstance(operation, Combine) or not operation.lossy:
            continue
        if graph.collective not in BOUNDED:
            graph.fail(step, f"is lossy; {graph.collective} may lose nothing")
        other = graph.operations[graph.match[step]]
        if isinstance(other, Combine) or not other.lossy:
            graph.fail(step, f"is lossy, but {graph.name(graph.match[step])} is not")
        if isinstance(operation, Receive) and any(source >= 0 for source in graph.sources[step]):
            graph.fail(step, "is lossy, but its operand is not there at the start")


def _check_kept(graph: Graph) -> None:
    """That the sender of a lossy message still holds what it carried when its loss is known."""
    for step, operation in enumerate(graph.operations):
        if isinstance(operation, Send) and operation.lossy:
            space, index = operation.source
            in_place = graph.layouts[graph.rank_of(step)].in_place
            if space is not Space.INPUT or any(read == index for read, _ in in_place):
                graph.fail(
                    step, f"is lossy, but {chunk_name(operation.source)} may be gone when its loss is known"
                )


def _check_values(graph: Graph) -> None:
    """What each operation produces, and whether the outputs end with what they should."""
    everyone = (1 << graph.contributors) - 1
    reducing = graph.collective in REDUCING
    # A value is a number; equal numbers are equal bits. ~rank: the contribution of a rank, untouched.
    values: list[int] = [0] * len(graph.operations)
    known: dict[tuple[int, ...], int] = {}
    contributors: list[int] = []  # of a computed value: mask of ranks
    divided: list[bool] = []
    lossy: dict[int, frozenset[int]] = {}  # of a computed value: the lossy receives that are in it

    def contributors_of(value: int) -> int:
        return contributors[value] if value >= 0 else 1 << ~value

    for step in graph.order:
        operation = graph.operations[step]
        operands = [values[source] if source >= 0 else source for source in graph.sources[step]]
        if type(operation) is Send:
            if operation.lossy and operands[0] != ~graph.rank_of(step):
                graph.fail(
                    step,
                    f"is lossy, but carries the contribution of {_ranks(contributors_of(operands[0]))}"
                    f"{', computed' * (operands[0] >= 0)}: a loss may cost the sender's own alone",
                )
            values[step] = operands[0]
            continue
        assert not isinstance(operation, Send)
        if type(operation) is Receive:
            operands.append(values[graph.match[step]])
        came = type(operation) is Receive and operation.lossy
        if len(operands) == 1 and not operation.final and not came:
            values[step] = operands[0]
            continue
        # What came of a lossy message is equal to nothing else, not even to what another rank got of the same one.
        key = (graph.part[step], operation.final, *operands, *((~step,) if came else ()))
        value = known.get(key)
        if value is None:
            value = known[key] = len(contributors)
            mask = 0
            for operand in operands:
                added = contributors_of(operand)
                if mask & added:
                    graph.fail(step, f"adds the contribution of {_ranks(mask & added)} twice")
                if operand >= 0 and divided[operand]:
                    graph.fail(step, "adds to, or divides, what was final")
                mask |= added
            if not reducing:
                graph.fail(step, f"computes; {graph.collective} only moves")
            if operation.final and mask != everyone:
                graph.fail(step, f"is final but lacks the contribution of {_ranks(everyone & ~mask)}")
            contributors.append(mask)
            divided.append(operation.final)
            if graph.collective in BOUNDED:
                lossy[value] = _lossy_in(graph, step, operands, lossy) | (
                    frozenset((step,)) if came else frozenset()
                )
        values[step] = value

    def fail_result(what: str) -> NoReturn:
        result = f"rank {rank}, {chunk_name(Chunk(Space.OUTPUT, index))}"
        writer = f", written last by {graph.name(source)}" if source is not None and source >= 0 else ""
        raise ScheduleError(f"{result}{writer}: {what}")

    agreed: dict[int, tuple[int, int]] = {}  # by part: value and the rank that has it
    for rank, sources in enumerate(graph.results):
        for index, source in enumerate(sources):
            role = graph.layouts[rank].outputs[index]
            if role.wants == 0:
                continue
            if source is None:
                fail_result("nothing is written there")
            value = values[source] if source >= 0 else source
            mask = contributors_of(value)
            if mask != role.wants:
                if missing := role.wants & ~mask:
                    fail_result(f"lacks the contribution of {_ranks(missing)}")
                fail_result(f"holds the contribution of {_ranks(mask & ~role.wants)}")
            if reducing and graph.world_size > 1 and not (value >= 0 and divided[value]):
                fail_result("no operation on its way is final, so an average is not divided")
            other, owner = agreed.setdefault(role.part, (value, rank))
            if other != value:
                apart = lossy.get(value, frozenset()) ^ lossy.get(other, frozenset())
                if apart:
                    fail_result(f"differs from rank {owner}'s if a block is lost of {graph.name(min(apart))}")
                fail_result(f"is added up in another order than at rank {owner}")


def _lossy_in(
    graph: Graph, step: int, operands: Sequence[int], lossy: Mapping[int, frozenset[int]]
) -> frozenset[int]:
    """The lossy receives that are in what a combination makes of its operands.

    Only the final combination that reads what a lossy receive wrote knows how much of it came.
    """
    operation = graph.operations[step]
    found: frozenset[int] = frozenset()
    for position, operand in enumerate(operands):
        origins = lossy.get(operand)
        if not origins:
            continue
        origin = min(origins)
        completes = isinstance(operation, Combine) and operation.final
        if not (completes and graph.sources[step][position] == origin):
            graph.fail(
                step, f"computes with what came of {graph.name(origin)}, but is not the one to complete it"
            )
        found |= origins
    return found


def _check_overwriting(graph: Graph) -> None:
    """That whoever overwrites comes after all that read or wrote there before."""
    # Operations of one part alone depend on each other, so bits are numbered per part: masks stay short.
    bits = [0] * len(graph.operations)
    counted: dict[int, int] = {}
    for step, part in enumerate(graph.part):
        count = counted.get(part, 0)
        bits[step] = 1 << count
        counted[part] = count + 1
    past = [0] * len(graph.operations)  # an operation and all that come before it in every run
    for step in graph.order:
        mask = bits[step]
        for earlier in graph.needs[step]:
            mask |= past[earlier]
        past[step] = mask
    for writer, where, earlier_steps in graph.overwritten:
        for earlier in earlier_steps:
            # A message has been read when its receiver has run.
            over = graph.match[earlier] if type(graph.operations[earlier]) is Send else earlier
            if not past[writer] & bits[over]:
                graph.fail(
                    writer,
                    f"may overwrite {chunk_name(where)} before {graph.name(earlier)} is through with it",
                )


def _ranks(mask: int) -> str:
    found = [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
    shown = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
    return f"rank{'s' * (len(found) > 1)} {shown}"
