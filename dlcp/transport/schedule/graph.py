"""The operations of all ranks of a collective as one graph: who needs whom, and what lies where at the end.

What cannot be built is refused here: messages that do not pair, memory that is not there, operations that wait for
themselves. What the values are, and whether they are right, is the checker's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NoReturn

from dlcp.errors import DlcpError
from dlcp.transport.schedule.hub import Hub, layouts
from dlcp.transport.schedule.layout import Layout, layout
from dlcp.transport.schedule.operations import Chunk, Combine, Operation, RankSchedule, Receive, Send, Space
from dlcp.transport.schedule.program import MAX_MESSAGES


class ScheduleError(DlcpError, ValueError):
    """A schedule that is wrong: names the rank, the operation and what is wrong with it."""


class Graph:
    """All operations of all ranks, and what each needs before it runs.

    Operations are numbered across ranks, rank by rank. A *source* is what an operand holds when it is read: the
    number of the operation that wrote it, or ~rank for the contribution of `rank` that was there at the start.
    """

    def __init__(
        self, schedules: Sequence[RankSchedule], collective: str, root: int, hub: Hub | None = None
    ) -> None:
        if not 0 <= root < len(schedules):
            raise ScheduleError(f"root {root} is not below the number of schedules, {len(schedules)}")
        self.world_size = len(schedules)
        self.contributors = self.world_size if hub is None else hub.workers
        self.collective = collective
        parts = schedules[0].output_chunks
        self.layouts = (
            [layout(collective, self.world_size, rank, root, parts) for rank in range(self.world_size)]
            if hub is None
            else layouts(hub, collective)
        )
        if len(self.layouts) != self.world_size:
            raise ScheduleError(f"there are {self.world_size} schedules; accepted: {len(self.layouts)}")
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
        rank = self.rank_of(step)
        return f"rank {rank}, operation {step - self.first[rank]} ({describe(self.operations[step])})"

    def rank_of(self, step: int) -> int:
        """Whose operation it is."""
        return bisect_right(self.first, step) - 1

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
                    f"rank {rank}: scratch {index} is to be as large as {chunk_name(like)}, not there"
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
                    self.fail(step, f"reads {chunk_name(chunk)}, which is not there")
                if part not in (-1, parts[space][index]):
                    self.fail(step, f"{chunk_name(chunk)} is of another size than what it is combined with")
                part = parts[space][index]
                source = holds[space][index]
                if source is None:
                    self.fail(step, f"reads {chunk_name(chunk)}, where nothing has been written")
                sources.append(source)
                readers[space][index].append(step)
            if target is not None:
                space, index = target
                if space is Space.INPUT:
                    self.fail(step, "writes to the input")
                if not 0 <= index < len(parts[space]):
                    self.fail(step, f"writes {chunk_name(target)}, which is not there")
                if part not in (-1, parts[space][index]):
                    self.fail(step, f"{chunk_name(target)} is of another size than what becomes it")
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
        for read, written in given.in_place:
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


def chunk_name(chunk: Chunk) -> str:
    """A chunk in words."""
    return f"{Space(chunk.space).name} {chunk.index}"


def describe(operation: Operation) -> str:
    """What an operation does, in words."""
    match operation:
        case Send(peer, message, source, lossy):
            return f"Send {chunk_name(source)} to {peer}, message {message}{', lossy' * lossy}"
        case Receive(peer, message, target, operand, final, lossy):
            plus = f" + {chunk_name(operand)}" if operand is not None else ""
            marks = ", final" * final + ", lossy" * lossy
            return f"Receive from {peer}, message {message}{plus}, into {chunk_name(target)}{marks}"
        case Combine(target, operands, final):
            return f"Combine {' + '.join(map(chunk_name, operands))} into {chunk_name(target)}{', final' * final}"
