"""The plan of a collective: algorithm, compiled schedule and native command, made once for all calls of one shape.

Nothing here depends on addresses of memory, so a plan serves every later call with the same arguments. The choice of
the algorithm and the signature depend only on what every rank knows alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlcp import _native
from dlcp.checks import text
from dlcp.errors import ArgumentError
from dlcp.transport.calls import Call, Lengths
from dlcp.transport.element import ELEMENT_BYTES
from dlcp.transport.schedule import ALGORITHMS, PLACED, ROOTED, RankSchedule, algorithms, build
from dlcp.transport.schedule.choose import choose, parse_algorithms
from dlcp.transport.schedule.estimate import RANKS_MAX, Network
from dlcp.transport.schedule.layout import REDUCING
from dlcp.transport.schedule_memory import Cut, Part, compile_schedule, even_parts
from dlcp.transport.signature import signature_of
from dlcp.transport.span import Span
from dlcp.units import plural

Memory = Span | list[Span] | None
"""As native code takes it: split evenly, or chunk by chunk."""


class Recorded(NamedTuple):
    """A call as the flight recorder wants it (flight_recorder.py)."""

    operation: str
    input_nbytes: int
    output_nbytes: int
    dtype: _native.DataType | None
    root: int | None


@dataclass(slots=True)
class Plan:
    """One kind of call."""

    operation: str
    words: str
    """The call with its arguments, for errors and logs."""
    command: _native.CollectiveCommand | None
    """What native code starts, but for memory and options; None: this rank is done without the others, and its own
    memory is all there is to copy."""
    peers: list[int]
    """Ranks in the job that it talks to."""
    type: _native.DataType
    algorithm: str
    input_parts: list[Part] | None
    """Where chunks lie in the caller's memory, if that is not as it was given."""
    output_parts: list[Part] | None
    recorded: Recorded
    """What the flight recorder says of it."""
    even_inputs: int
    """How many even parts the memory is cut into before that; 0: it comes chunk by chunk."""
    even_outputs: int
    alignment_bytes: int
    """What addresses of memory are multiples of: the size of an element; 1: of a call that only moves bytes."""
    connected: bool = field(default=False)
    """Whether all peers are peers of the endpoint."""


class Planner:
    """Makes plans for one group: chooses the algorithm and compiles the schedule.

    `members`: ranks in the job. `number`: the group's; None: it has one member. `algorithm`: the setting of that name:
    one algorithm for whatever it serves, or some by collective, as "all_reduce=ring,broadcast=tree"; None: the quickest
    by estimate. `limit_bytes`: of a message. `network`: answers what is between the ranks of the group; `crowded`:
    whether some of them share a processor. `tell`: is told each algorithm that is chosen, once per collective, and why.
    """

    def __init__(
        self,
        members: Sequence[int],
        rank: int,
        number: int | None,
        algorithm: str | None,
        limit_bytes: int,
        network: Callable[[], Network | None],
        crowded: Callable[[], bool],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._number = number
        self._members = members
        self._rank = rank
        self._overrides = _overrides(algorithm)
        self._limit_bytes = limit_bytes
        self._network = network
        self._crowded = crowded
        self._tell = tell
        self._told: set[tuple[str, str]] = set()
        self._compiled: dict[tuple[str, str, int], tuple[RankSchedule, _native.Schedule]] = {}

    def plan(self, call: Call, algorithm: str | None) -> Plan:
        """A plan. `algorithm`: of the caller's choice; None: the setting's, or by estimate.

        Raises ArgumentError: no such algorithm; LimitError: too large for it; what asking for hosts raises.
        """
        if call.alone:
            return _plan_alone(call)
        collective, root = call.collective or call.operation, call.root
        if algorithm is not None:
            text("algorithm", algorithm, "the name of a schedule, or None")
        else:
            algorithm = choose(
                collective, len(self._members), call.nbytes, self._overrides, self._network, self._crowded
            )
            if self._tell is not None and (collective, algorithm) not in self._told:
                self._told.add((collective, algorithm))
                self._tell(f"{call.words} goes by {algorithm}: {self._reason(collective)}")
        network = self._network() if algorithm in PLACED else None
        hosts = None if network is None else network.hosts
        key = (collective, algorithm, root)
        known = self._compiled.get(key)
        if known is None:
            schedule = build(collective, algorithm, len(self._members), self._rank, root, hosts)
            known = self._compiled[key] = (schedule, self._compile(schedule))
        schedule, compiled = known
        type_, _, _ = call.arithmetic
        inputs, even_inputs = _lengths(call.inputs, schedule.input_chunks, type_)
        outputs, even_outputs = _lengths(call.outputs, schedule.output_chunks, type_)
        input_parts = output_parts = None
        if max([*inputs, *outputs], default=0) > self._limit_bytes:
            cut = Cut(schedule, inputs, outputs, self._limit_bytes)
            compiled, input_parts, output_parts = self._compile(cut.schedule), cut.inputs, cut.outputs
        assert self._number is not None
        # Ranks that see hosts differently would wait for each other's messages.
        placed = "" if hosts is None else f" {hosts}"
        signature = signature_of(
            call.operation, f"{call.terms} {algorithm} {root}{placed}", *call.arithmetic, call.codec
        )
        return Plan(
            call.operation,
            call.words,
            _native.CollectiveCommand(compiled, self._number, signature, *call.arithmetic),
            [self._members[peer] for peer in compiled.peers],
            type_,
            algorithm,
            input_parts,
            output_parts,
            _recorded(call, collective),
            even_inputs,
            even_outputs,
            ELEMENT_BYTES[type_],
        )

    def _reason(self, collective: str) -> str:
        """Why an algorithm was chosen, in words."""
        if collective in self._overrides:
            return "the setting algorithm"
        if len(algorithms(collective)) == 1:
            return "there is one way"
        size = len(self._members)
        network = self._network() if size <= RANKS_MAX else None
        if network is None:
            return plural(size, "rank")
        hosts = len(set(network.hosts))
        ranks = f"{plural(size, 'rank')} on {plural(hosts, 'host')}"
        if collective == "all_reduce" and self._crowded():
            return f"of few messages, since some of the {ranks} share a processor"
        between = (
            f" with links of {network.link_bps / 1e9:g} Gbit/s, {network.hop_ns / 1e3:.0f} us apart"
            if hosts > 1
            else ""
        )
        return f"the quickest by estimate for {ranks}{between}"

    def _compile(self, schedule: RankSchedule) -> _native.Schedule:
        return compile_schedule(schedule, len(self._members), self._rank)


def _plan_alone(call: Call) -> Plan:
    """Of a call that sends nothing. It counts as an operation, of which nobody is told sizes."""
    recorded = Recorded(call.operation, 0, 0, None, None)
    return Plan(call.operation, call.words, None, [], call.arithmetic.type, "", None, None, recorded, 0, 0, 1)


def _recorded(call: Call, collective: str) -> Recorded:
    type_, _, _ = call.arithmetic
    return Recorded(
        f"{call.operation}_v" if call.uneven else call.operation,
        _total(call.inputs) or (call.nbytes if call.operation == "all_reduce" else 0),
        _total(call.outputs),
        None if type_ is _native.DataType.u8 and collective not in REDUCING else type_,
        call.root if collective in ROOTED else None,
    )


def check_aligned(memory: Span | list[Span], alignment_bytes: int) -> None:
    """Raises ArgumentError: memory that does not begin at a whole element."""
    for span in memory if isinstance(memory, list) else (memory,):
        if span[0] % alignment_bytes:
            raise ArgumentError(
                f"memory begins at {span[0]:#x}; accepted: an address that is a multiple of {alignment_bytes}"
            )


def lay_out(memory: Memory, parts: list[Part] | None, even: int, dtype: _native.DataType) -> Memory:
    """The caller's memory as the plan's schedule names it."""
    if parts is None or memory is None:
        return memory
    chunks = even_parts(memory, even, dtype) if isinstance(memory, Span) else memory
    return [Span(chunks[index].address + at, nbytes) for index, at, nbytes in parts]


def _lengths(given: Lengths, chunks: int, dtype: _native.DataType) -> tuple[list[int], int]:
    """Bytes of the chunks; and into how many parts the memory is partitioned, 0: it is not."""
    if isinstance(given, int):
        return _native.part_bytes(given, chunks, dtype), chunks
    return list(given), 0


def _total(given: Lengths) -> int:
    return given if isinstance(given, int) else sum(given)


def _overrides(setting: str | None) -> Mapping[str, str]:
    """Algorithms by collective, from the setting. Raises ArgumentError: no such algorithm, or no such collective."""
    if setting is None:
        return {}
    if "=" in setting:
        return parse_algorithms(setting)
    served = {collective: setting for collective in ALGORITHMS if setting in algorithms(collective)}
    if not served:
        names = sorted({name for known in ALGORITHMS.values() for name in known})
        raise ArgumentError(
            f"algorithm is {setting!r}; accepted: {', '.join(names)}, or some by collective, as"
            " all_reduce=ring,broadcast=tree"
        )
    return served
