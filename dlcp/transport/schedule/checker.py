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

Not checked: speed. `cost` counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from dlcp.errors import DlcpError
from dlcp.transport.schedule.layout import REDUCING, Layout, layout
from dlcp.transport.schedule.operations import Chunk, Combine, Operation, RankSchedule, Receive, Send, Space
from dlcp.transport.schedule.program import MAX_MESSAGES


class ScheduleError(DlcpError, ValueError):
    """A schedule that is wrong: names the rank, the operation and what is wrong with it."""


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


def check(schedules: Sequence[RankSchedule], collective: str, root: int = 0) -> None:
    """Raises ScheduleError unless `schedules`, one per rank, are right."""
    graph = _Graph(schedules, collective, root)
    _check_values(graph)
    _check_overwriting(graph)


def cost(schedules: Sequence[RankSchedule], collective: str, root: int = 0) -> Cost:
    """What `schedules` cost. They have to be right as far as messages pair up and nothing waits for itself."""
    graph = _Graph(schedules, collective, root)
    depth = [0] * len(graph.operations)
    for step in graph.order:
        needed = max((depth[earlier] for earlier in graph.needs[step]), default=0)
        depth[step] = needed + (type(graph.operations[step]) is Receive)
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


class _Graph:
    """All operations of all ranks, and what each needs before it runs.

    Operations are numbered across ranks, rank by rank. A *source* is what an operand holds when it is read: the
    number of the operation that wrote it, or ~rank for the contribution of `rank` that was there at the start.
    """

    def __init__(self, schedules: Sequence[RankSchedule], collective: str, root: int) -> None:
        if not 0 <= root < len(schedules):
            raise ScheduleError(f"root {root} is not below the number of schedules, {len(schedules)}")
        self.world_size = len(schedules)
        self.collective = collective
        parts = schedules[0].output_chunks
        self.layouts = [
            layout(collective, self.world_size, rank, root, parts) for rank in range(self.world_size)
        ]
        self.operations: list[Operation] = []
        self.sources: list[list[int]] = []
        self.part: list[int] = []  # what the operation reads or writes a version of
        self.match: list[int] = []  # of a send its receive, and the reverse
        self.overwritten: list[
            tuple[int, Chunk, list[int]]
        ] = []  # writer, where, earlier readers and writers
        self.results: list[
            list[int | None]
        ] = []  # per rank and output chunk the source of what is there at the end
        self.first: list[int] = []  # per rank the number of its first operation
        self._sends: list[dict[int, dict[int, int]]] = []  # per rank, by peer and message
        self._receives: list[dict[int, dict[int, int]]] = []
        for rank, schedule in enumerate(schedules):
            self._add_rank(rank, schedule, self.layouts[rank])
        self._pair_messages()
        self.needs = [[source for source in sources if source >= 0] for sources in self.sources]
        for step, operation in enumerate(self.operations):
            if type(operation) is Receive:
                self.needs[step].append(self.match[step])
        self.order = self._sort()

    def fail(self, step: int, what: str) -> NoReturn:
        """Raises ScheduleError about one operation."""
        raise ScheduleError(f"{self.name(step)}: {what}")

    def name(self, step: int) -> str:
        """Where an operation stands and what it does."""
        rank = bisect_right(self.first, step) - 1
        return f"rank {rank}, operation {step - self.first[rank]} ({_describe(self.operations[step])})"

    def _add_rank(self, rank: int, schedule: RankSchedule, given: Layout) -> None:
        wanted = (len(given.inputs), len(given.outputs))
        if (schedule.input_chunks, schedule.output_chunks) != wanted:
            raise ScheduleError(
                f"rank {rank}: has {schedule.input_chunks} input and {schedule.output_chunks} output chunks; "
                f"{self.collective} has {wanted[0]} and {wanted[1]} there"
            )
        scratch: list[int] = []
        parts = [[role.part for role in given.inputs], [role.part for role in given.outputs], scratch]
        for index, like in enumerate(schedule.scratch):
            if like.space is Space.SCRATCH or not 0 <= like.index < wanted[like.space]:
                raise ScheduleError(
                    f"rank {rank}: scratch {index} is to be as large as {_where(like)}, not there"
                )
            scratch.append(parts[like.space][like.index])
        # What each chunk holds now, and who has read it since it holds that.
        holds: list[list[int | None]] = [
            [~rank if role.holds is not None else None for role in given.inputs],
            [~rank if role.holds is not None else None for role in given.outputs],
            [None] * len(schedule.scratch),
        ]
        readers: list[list[list[int]]] = [[[] for _ in chunks] for chunks in parts]
        writers: list[list[int]] = [[] for _ in given.outputs]
        sends: dict[int, dict[int, int]] = {}
        receives: dict[int, dict[int, int]] = {}
        self.first.append(len(self.operations))
        self._sends.append(sends)
        self._receives.append(receives)
        for step, operation in enumerate(schedule.operations, len(self.operations)):
            self.operations.append(operation)
            self.match.append(-1)
            target: Chunk | None = None
            operands: tuple[Chunk, ...] = ()
            if type(operation) is Send:
                self._note_message(step, rank, operation, sends)
                operands = (operation.source,)
            elif type(operation) is Receive:
                self._note_message(step, rank, operation, receives)
                target = operation.target
                if operation.operand is not None:
                    operands = (operation.operand,)
            elif type(operation) is Combine:
                target = operation.target
                operands = operation.operands
                if not operands:
                    self.fail(step, "combines nothing")
                if target in operands[1:]:
                    self.fail(
                        step, "its target is an operand other than the first, and would be overwritten unread"
                    )
            else:
                self.fail(step, "is no operation")
            part = -1
            sources = []
            for chunk in operands:
                space, index = chunk
                if not 0 <= index < len(parts[space]):
                    self.fail(step, f"reads {_where(chunk)}, which is not there")
                if part not in (-1, parts[space][index]):
                    self.fail(step, f"{_where(chunk)} is of another size than what it is combined with")
                part = parts[space][index]
                source = holds[space][index]
                if source is None:
                    self.fail(step, f"reads {_where(chunk)}, where nothing has been written")
                sources.append(source)
                readers[space][index].append(step)
            if target is not None:
                space, index = target
                if space is Space.INPUT:
                    self.fail(step, "writes to the input")
                if not 0 <= index < len(parts[space]):
                    self.fail(step, f"writes {_where(target)}, which is not there")
                if part not in (-1, parts[space][index]):
                    self.fail(step, f"{_where(target)} is of another size than what becomes it")
                part = parts[space][index]
                earlier = readers[space][index]
                before = holds[space][index]
                if before is not None and before >= 0:
                    earlier.append(before)
                if earlier:
                    self.overwritten.append((step, target, earlier))
                readers[space][index] = []
                holds[space][index] = step
                if space is Space.OUTPUT:
                    writers[index].append(step)
            self.sources.append(sources)
            self.part.append(part)
        self.results.append(holds[Space.OUTPUT])
        if given.in_place is not None:
            read, written = given.in_place
            self._note_in_place(Chunk(Space.INPUT, read), readers[Space.INPUT][read], writers[written])

    def _note_message(
        self, step: int, rank: int, operation: Send | Receive, messages: dict[int, dict[int, int]]
    ) -> None:
        peer, message = operation.peer, operation.message
        if not 0 <= peer < self.world_size or peer == rank:
            self.fail(step, f"peer {peer} is not another rank below {self.world_size}")
        if not 0 <= message < MAX_MESSAGES:
            self.fail(step, f"message {message} is out of range: 0 to {MAX_MESSAGES - 1}")
        numbered = messages.setdefault(peer, {})
        if message in numbered:
            self.fail(step, f"message {message} is also that of {self.name(numbered[message])}")
        numbered[message] = step

    def _note_in_place(self, shared: Chunk, readers: list[int], writers: list[int]) -> None:
        """Where an input chunk and an output chunk may be one memory, that input is overwritten after all."""
        for writer in writers:
            operation = self.operations[writer]
            if isinstance(operation, Combine) and operation.operands == (shared,):
                continue  # onto itself: changes nothing
            self.overwritten.append((writer, shared, [reader for reader in readers if reader != writer]))

    def _pair_messages(self) -> None:
        for rank in range(self.world_size):
            for peer, sent in self._sends[rank].items():
                received = self._receives[peer].get(rank, {})
                for message, step in sent.items():
                    other = received.get(message)
                    if other is None:
                        self.fail(step, f"rank {peer} does not receive it")
                    if message >= len(sent):
                        self.fail(
                            step,
                            f"messages to rank {peer} are not numbered densely: it is one of {len(sent)}",
                        )
                    if self.part[step] != self.part[other]:
                        self.fail(step, f"is received into another size: {self.name(other)}")
                    self.match[step], self.match[other] = other, step
            for peer, received in self._receives[rank].items():
                for message, step in received.items():
                    if message not in self._sends[peer].get(rank, {}):
                        self.fail(step, f"rank {peer} does not send it")

    def _sort(self) -> list[int]:
        """An order in which every operation follows what it needs."""
        waits = [len(needed) for needed in self.needs]
        feeds: list[list[int]] = [[] for _ in waits]
        for step, needed in enumerate(self.needs):
            for earlier in needed:
                feeds[earlier].append(step)
        order = [step for step, count in enumerate(waits) if count == 0]
        for step in order:  # grows as it is walked
            for later in feeds[step]:
                waits[later] -= 1
                if waits[later] == 0:
                    order.append(later)
        if len(order) < len(waits):
            self._fail_circle({step for step, count in enumerate(waits) if count > 0})
        return order

    def _fail_circle(self, stuck: set[int]) -> NoReturn:
        walked: dict[int, None] = {}
        step = min(stuck)
        while step not in walked:
            walked[step] = None
            step = next(earlier for earlier in self.needs[step] if earlier in stuck)
        circle = list(walked)[list(walked).index(step) :]
        self.fail(step, "waits for itself, through " + ", ".join(self.name(s) for s in circle[1:4]))


def _check_values(graph: _Graph) -> None:
    """What each operation produces, and whether the outputs end with what they should."""
    everyone = (1 << graph.world_size) - 1
    reducing = graph.collective in REDUCING
    # A value is a number; equal numbers are equal bits. ~rank: the contribution of a rank, untouched.
    values: list[int] = [0] * len(graph.operations)
    known: dict[tuple[int, ...], int] = {}
    contributors: list[int] = []  # of a computed value: mask of ranks
    divided: list[bool] = []

    def contributors_of(value: int) -> int:
        return contributors[value] if value >= 0 else 1 << ~value

    for step in graph.order:
        operation = graph.operations[step]
        operands = [values[source] if source >= 0 else source for source in graph.sources[step]]
        if type(operation) is Send:
            values[step] = operands[0]
            continue
        assert not isinstance(operation, Send)
        if type(operation) is Receive:
            operands.append(values[graph.match[step]])
        if len(operands) == 1 and not operation.final:
            values[step] = operands[0]
            continue
        key = (graph.part[step], operation.final, *operands)
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
        values[step] = value

    def fail_result(what: str) -> NoReturn:
        where = f"rank {rank}, {_where(Chunk(Space.OUTPUT, index))}"
        writer = f", written last by {graph.name(source)}" if source is not None and source >= 0 else ""
        raise ScheduleError(f"{where}{writer}: {what}")

    agreed: dict[int, tuple[int, int]] = {}  # by part: value and the rank that has it
    for rank, sources in enumerate(graph.results):
        for index, source in enumerate(sources):
            role = graph.layouts[rank].outputs[index]
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
                fail_result(f"is added up in another order than at rank {owner}")


def _check_overwriting(graph: _Graph) -> None:
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
                    writer, f"may overwrite {_where(where)} before {graph.name(earlier)} is through with it"
                )


def _where(chunk: Chunk) -> str:
    return f"{Space(chunk.space).name} {chunk.index}"


def _describe(operation: Operation) -> str:
    match operation:
        case Send(peer, message, source):
            return f"Send {_where(source)} to {peer}, message {message}"
        case Receive(peer, message, target, operand, final):
            plus = f" + {_where(operand)}" if operand is not None else ""
            return f"Receive from {peer}, message {message}{plus}, into {_where(target)}{', final' * final}"
        case Combine(target, operands, final):
            return f"Combine {' + '.join(map(_where, operands))} into {_where(target)}{', final' * final}"


def _ranks(mask: int) -> str:
    found = [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
    shown = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
    return f"rank{'s' * (len(found) > 1)} {shown}"
