"""The plan of a collective over a hub: what a worker and a core both derive from sizes alone.

Keys are the even parts of the buffer, so a worker's memory needs no list of them; a core keeps those that it owns in
memory of its own. Of coded values a key is whole groups, the same ones whatever the codec: what a core keeps of a key's
sum stays where it is when the codec changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from dlcp import _native
from dlcp.kept import keep
from dlcp.transport.calls import Arithmetic, Call
from dlcp.transport.coded import GROUP_VALUES, group_parts
from dlcp.transport.element import ELEMENT_BYTES
from dlcp.transport.hub.announcement import Announcement, AnnouncementKind
from dlcp.transport.hub.buffer import Buffer
from dlcp.transport.hub.coded import CodedTerms
from dlcp.transport.hub.rule import OptimizerRule
from dlcp.transport.plan import Plan, Planner, Recorded
from dlcp.transport.schedule.hub import (
    KEYS_MAX,
    Hub,
    all_reduce,
    coded_all_reduce,
    coded_reduce_scatter,
    hub_of,
    key_count,
    reduce_scatter,
)
from dlcp.transport.schedule.layout import SCATTERED
from dlcp.transport.schedule_memory import compile_schedule
from dlcp.transport.signature import signature_of


class HubShape(NamedTuple):
    """Workers and cores of a group with a hub, by their ranks in the group: see schedule.hub.Hub."""

    racks: tuple[int, ...]
    cores: int

    @property
    def workers(self) -> int:
        """How many ranks contribute."""
        return len(self.racks)

    def contributions(self, rack: int) -> int:
        """How many contributions a core of this rack may have to keep of a key."""
        return self.racks.count(rack) + max(self.racks)


OBJECT_BYTES = 1024
"""Of what stays at a core from one collective to the next: what Python has of it beside its bytes."""
KEY_ALIGNMENT_BYTES = 64
"""A key at a core begins on a cache line."""
KEY_GROUPS = 512
"""Of coded values in a key, at most: of int8 they are hardly more than KEY_BYTES."""


# By whether sums are coded, and scattered.
_SCHEDULES = {
    (False, False): all_reduce,
    (True, False): coded_all_reduce,
    (False, True): reduce_scatter,
    (True, True): coded_reduce_scatter,
}
_KINDS = {
    "all_reduce": AnnouncementKind.ALL_REDUCE,
    "coded_all_reduce": AnnouncementKind.CODED,
    "reduce_scatter": AnnouncementKind.REDUCE_SCATTER,
    "coded_reduce_scatter": AnnouncementKind.CODED_REDUCE_SCATTER,
}
# Plans of all-reduces with a deadline that a worker keeps: one per size, and deadline.
_BY_DEADLINE_MAX = 256


class KeyPlan(NamedTuple):
    """What one rank of the group does with a buffer."""

    schedule: _native.Schedule
    peers: tuple[int, ...]
    """Ranks in the group that it exchanges messages with."""
    sizes: tuple[int, ...]
    """Bytes of its chunks: of a worker all keys, of a core those that it takes."""

    @property
    def nbytes(self) -> int:
        """Memory of the plan itself: some, and two steps of 150 bytes per key and peer."""
        return 1024 + 300 * len(self.sizes) * len(self.peers)


@lru_cache(maxsize=256)
def _packed(shape: HubShape, buffer: Buffer) -> tuple[Hub, tuple[int, ...]]:
    """Who owns which key, and how long the keys are."""
    parts = shape.workers if buffer.scattered else 1
    unit_bytes = 1 if buffer.codec is None else buffer.group_bytes
    units, rest = divmod(buffer.nbytes, parts * unit_bytes)
    if rest:
        raise ValueError(
            f"{buffer.nbytes} bytes are no {parts} equal parts of whole units, of {unit_bytes} bytes"
        )
    most = max(1, shape.cores * KEYS_MAX // parts)
    if buffer.codec is None:
        lengths = _native.part_bytes(units, min(key_count(units, shape.cores), most), buffer.type)
    else:
        groups = group_parts(units, min(-(-units // KEY_GROUPS), most))
        lengths = [end - begin for begin, end in groups]
    if buffer.signed:
        lengths = [*lengths, shape.workers * ELEMENT_BYTES[buffer.type]]
    wanted_by = tuple(worker for worker in range(parts) for _ in lengths) if buffer.scattered else ()
    shared: dict[int, int] = {}  # there are two sizes at most, and up to thousands of keys
    lengths = list(map(shared.setdefault, lengths, lengths)) * parts
    sizes = [length * unit_bytes for length in lengths]
    # Of coded values by groups: keys stay where they are when the codec changes.
    return hub_of(shape.racks, shape.cores, tuple(lengths), wanted_by), tuple(
        map(shared.setdefault, sizes, sizes)
    )


def key_plan(shape: HubShape, rank: int, buffer: Buffer, absent: tuple[int, ...] = ()) -> KeyPlan:
    """The plan of the group's rank `rank`. Raises ValueError: there is none for such a buffer.

    `absent`: of an all-reduce, workers that are not in the sum.
    """
    hub, sizes = _packed(shape, buffer)
    hub = hub._replace(absent=absent)
    write = _SCHEDULES[buffer.codec is not None, buffer.scattered]
    compiled = compile_schedule(write(rank, hub), hub.world_size, rank)
    own = sizes if rank < hub.workers else tuple(sizes[key] for key in hub.keys_of(rank))
    return KeyPlan(compiled, tuple(compiled.peers), own)


def core_bytes(shape: HubShape, rack: int, buffer: Buffer, sizes: Sequence[int]) -> int:
    """Memory that a core may need for keys of these sizes: one contribution is in place, the others may come early.

    Of coded values all are beside the sum.
    """
    return sum(sizes) * (shape.contributions(rack) + (buffer.codec is not None))


def _core_loads(shape: HubShape, buffer: Buffer, alignment_bytes: int = 1) -> list[int]:
    """Per core of a rack the bytes of the keys that it takes, each of them rounded up."""
    hub, sizes = _packed(shape, buffer)
    loads = [0] * hub.cores
    for owner, size in zip(hub.owners, sizes, strict=True):
        loads[owner % hub.cores] += -(-size // alignment_bytes) * alignment_bytes
    return loads


@lru_cache(maxsize=256)
def core_bytes_max(shape: HubShape, buffer: Buffer) -> int:
    """Of the busiest core."""
    busiest = max(_core_loads(shape, buffer))
    return max(core_bytes(shape, rack, buffer, (busiest,)) for rack in range(max(shape.racks) + 1))


def weight_loads(shape: HubShape, buffer: Buffer, states: int) -> list[int]:
    """Per core the bytes of weights and so many arrays of state, as it counts them (dlcp.hub.memory)."""
    loads = _core_loads(shape, buffer, KEY_ALIGNMENT_BYTES)
    return [(1 + states) * (load + KEY_ALIGNMENT_BYTES + OBJECT_BYTES) for load in loads]


def residual_loads(shape: HubShape, buffer: Buffer) -> list[int]:
    """Per core the bytes of what it keeps of a coded sum, two arrays of f32, as it counts them."""
    loads = _core_loads(shape, buffer)
    return [load // buffer.group_bytes * GROUP_VALUES * 8 + OBJECT_BYTES for load in loads]


@dataclass(slots=True)
class HubPlan(Plan):
    """A worker's plan, and what it announces."""

    schedule: _native.Schedule = field(kw_only=True)
    sizes: tuple[int, ...] = field(kw_only=True)
    """Bytes of the keys."""
    arithmetic: Arithmetic = field(kw_only=True)
    terms: str = field(kw_only=True)
    """What ranks compare."""
    announcement: Announcement = field(kw_only=True)
    """With number 0."""


class HubPlanner(Planner):
    """Makes a worker's plans. `members`: ranks in the job, workers and then cores."""

    def __init__(
        self,
        members: Sequence[int],
        rank: int,
        number: int,
        limit_bytes: int,
        shape: HubShape,
    ) -> None:
        super().__init__(members, rank, number, None, limit_bytes, lambda: None, lambda: False)
        self._shape = shape
        # Of all-reduces with a deadline: by plan and deadline.
        self._by_deadline: dict[tuple[str, Arithmetic, int, int], HubPlan] = {}

    def plan(self, call: Call, algorithm: str | None) -> HubPlan:
        """A plan."""
        del algorithm
        type_ = call.arithmetic.type
        scattered = call.operation in SCATTERED
        buffer = Buffer(call.nbytes, type_, call.codec, scattered)
        plan = key_plan(self._shape, self._rank, buffer)
        terms = f"{call.terms} hub {self._shape}"
        signature = signature_of(call.operation, terms, *call.arithmetic, call.codec)
        return HubPlan(
            call.operation,
            call.words,
            self._command(plan.schedule, signature, call.arithmetic),
            [self._members[peer] for peer in plan.peers],
            type_,
            "hub",
            None,
            None,
            Recorded(
                call.operation,
                call.nbytes,
                call.nbytes // self._shape.workers if scattered else call.nbytes,
                type_,
                None,
            ),
            0,
            len(plan.sizes),
            ELEMENT_BYTES[type_],
            schedule=plan.schedule,
            sizes=plan.sizes,
            arithmetic=call.arithmetic,
            terms=terms,
            announcement=Announcement(
                0,
                call.nbytes,
                signature,
                call.arithmetic.average_over,
                0,
                type_,
                call.arithmetic.op,
                _KINDS[call.operation],
                coded=None if call.codec is None else CodedTerms(call.codec),
            ),
        )

    def as_kind(
        self,
        plan: HubPlan,
        kind: AnnouncementKind,
        weights: int,
        *,
        step: int = 0,
        rule: OptimizerRule | None = None,
        part: int = 0,
    ) -> HubPlan:
        """The plan of another kind with the buffer of an all-reduce. Ranks that say different things are found."""
        terms = f"{plan.terms} {kind.name} {weights} {step} {rule!r} {part}"
        signature = signature_of(plan.operation, terms, *plan.arithmetic)
        numel = plan.announcement.nbytes // ELEMENT_BYTES[plan.type]
        numbered = f" {step}" if kind is AnnouncementKind.STEP else ""
        what = f"part {part}" if kind is AnnouncementKind.FETCH else str(rule)
        return replace(
            plan,
            words=f"hub {kind.name.lower()}{numbered}({numel} weights, number {weights}, {what})",
            command=self._command(plan.schedule, signature, plan.arithmetic),
            announcement=plan.announcement._replace(
                signature=signature, kind=kind, weights=weights, step=step, rule=rule, part=part
            ),
        )

    def by_deadline(self, plan: HubPlan, deadline_us: int) -> HubPlan:
        """The plan of an all-reduce that is made, so long after the first announcement, of those that are there."""
        key = plan.terms, plan.arithmetic, plan.announcement.nbytes, deadline_us
        if (known := self._by_deadline.get(key)) is not None:
            return known
        announcement = plan.announcement._replace(deadline_us=deadline_us)
        keys = key_plan(self._shape, self._rank, announcement.buffer)
        signature = signature_of(plan.operation, f"{plan.terms} deadline {deadline_us}", *plan.arithmetic)
        made = replace(
            plan,
            command=self._command(keys.schedule, signature, plan.arithmetic),
            peers=[self._members[peer] for peer in keys.peers],
            schedule=keys.schedule,
            sizes=keys.sizes,
            announcement=announcement._replace(signature=signature),
        )
        return keep(self._by_deadline, key, made, _BY_DEADLINE_MAX)

    def as_coded(self, plan: HubPlan, terms: CodedTerms) -> HubPlan:
        """The plan of one coded sum. Ranks that say different things of what the hub keeps are found."""
        kept = "" if not terms.kept else f" kept {terms.kept} {terms.before} {terms.factor!r}"
        signature = signature_of(plan.operation, plan.terms + kept, *plan.arithmetic, terms.codec)
        return replace(
            plan,
            command=self._command(plan.schedule, signature, plan.arithmetic),
            announcement=plan.announcement._replace(signature=signature, coded=terms),
        )

    def _command(
        self, schedule: _native.Schedule, signature: int, arithmetic: Arithmetic
    ) -> _native.CollectiveCommand:
        assert self._number is not None
        return _native.CollectiveCommand(schedule, self._number, signature, *arithmetic, copies_short=False)
