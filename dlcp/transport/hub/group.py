"""A worker's end of a group with a hub: it announces each collective to its rack's hub, and starts it.

The group has members that are no ranks of the job, the hubs' cores. It fails as any group does, and the communicator
beside which it stands fails with it. Its collectives have the communicator's numbers.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from dlcp import _native, errors
from dlcp.transport.call_options import TRAFFIC_CLASS_MAX, CallOptions, CollectiveKeywords
from dlcp.transport.calls import Calls, sizes_of
from dlcp.transport.coded import GROUP_VALUES, CodedRules, codec_traits
from dlcp.transport.element import ELEMENT_BYTES, DataType, Reduction
from dlcp.transport.hub.announcement import Announcement, AnnouncementKind
from dlcp.transport.hub.buffer import Buffer
from dlcp.transport.hub.client import HubClient, Opened
from dlcp.transport.hub.coded import CodedTerms, KeptAtHub
from dlcp.transport.hub.plan import HubPlan, HubPlanner, core_bytes_max, residual_loads, weight_loads
from dlcp.transport.hub.rule import OptimizerRule
from dlcp.transport.local_memory import scale, temporary
from dlcp.transport.logger import RankLogger
from dlcp.transport.membership import Membership
from dlcp.transport.schedule.layout import SCATTERED
from dlcp.transport.schedule_memory import MAX_MESSAGE_BYTES, even_parts
from dlcp.transport.span import Span, overlap_of
from dlcp.transport.store import Store, wait_for
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.transport.plan import Memory
    from dlcp.transport.schedule.adders import Addition

ANNOUNCEMENT_TAG = 0
# Announcements leave before all data: contributions that a core does not expect yet are kept as copies.
_ANNOUNCING = CallOptions(traffic_class=TRAFFIC_CLASS_MAX)
# Of a mark each byte, so that no type of elements takes it for 0: f16 for 2.1, f64 for 32.5.
_MARK = 0x40


class _Held(NamedTuple):
    """What stays at the hub: weights, or what a row of coded sums leaves."""

    loads: list[int]
    """Bytes of it at each core."""
    needed: int
    """Bytes that a collective with it needs at a core beside them."""
    states: int = 0
    """Arrays of an optimizer's state, of weights."""


class HubGroup(Membership):
    """One rank's end. Made by `open_hub_group`; any thread may use it."""

    def __init__(
        self, beside: Membership, opened: Opened, store: Store, hubs: tuple[str, ...], client: HubClient
    ) -> None:
        job, workers = beside.job, beside.members
        members = (*workers, *(core.rank for core in opened.cores))
        name = f"{beside.name}.hub"
        rank = beside.rank
        planner = HubPlanner(members, rank, opened.number, MAX_MESSAGE_BYTES, opened.shape)
        super().__init__(
            job,
            name,
            members,
            opened.number,
            store,
            beside.timeout_s,
            calls=Calls(name, workers, rank, MAX_MESSAGE_BYTES),
            planner=planner,
        )
        self._hub_planner = planner
        self._shape = opened.shape
        self._memory_bytes = opened.memory_bytes
        # Weights by number, and rows of coded sums: all ranks have the same ones at each place in their calls.
        self._kept: dict[int, _Held] = {}
        self._residuals: dict[KeptAtHub, _Held] = {}
        self._held_bytes = 0
        # Numbers of rows that the hub does not know yet to be over.
        self._forgotten: deque[int] = deque()
        # Collectives of which the log has said that there is no room.
        self._short: set[str] = set()
        self._weights = 0
        self._beside = beside
        self._hubs = hubs
        self._client = client
        rack = opened.shape.racks[rank]
        first = len(workers)
        self._listeners = [first + core for core in opened.listeners[rack]]
        self._is_one_hub = len(opened.listeners) == len(self._listeners) == 1
        cores = opened.cores[rack * opened.shape.cores : (rack + 1) * opened.shape.cores]
        job.connect([core.rank for core in cores])

    def takes(self, addition: Addition) -> bool:
        """As Adder.takes: all-reduces, and reduce-scatters of equal parts, of hub_bytes_min and more that have room.

        Also coded ones of which no rank keeps what codes leave; of reduce-scatters those that may have a code as the
        result. Those of which the hub keeps what codes leave have room since `keep` gave it to them.
        """
        nbytes, coded = addition.nbytes, addition.coded
        scattered = addition.collective in SCATTERED
        codec, unit_bytes = None, ELEMENT_BYTES[addition.dtype]
        if coded is not None:
            traits = codec_traits(coded.codec)
            codec, unit_bytes = traits.codec, traits.group_bytes
            is_its = coded.before is None and self.takes_coded(nbytes // unit_bytes)
        else:
            is_its = nbytes >= max(1, self.job.settings.hub_bytes_min)
        if scattered:
            unit_bytes *= self._shape.workers
            is_its = is_its and addition.even and (coded is None or coded.summed is not None)
        if not is_its or nbytes % unit_bytes:
            return False
        if coded is not None and coded.kept is not None:
            return True
        # Ranks may start numbered calls before or after something else that changes what is kept.
        held_bytes = 0 if addition.numbered else self._held_bytes
        signed = addition.deadline_s is not None and self._is_one_hub
        needed = core_bytes_max(self._shape, Buffer(nbytes, addition.dtype, codec, scattered, signed))
        return self._has_room(
            addition.collective, f"{addition.collective} of {nbytes} bytes", held_bytes, needed
        )

    def takes_coded(self, groups: int) -> bool:
        """Whether coded sums of so many groups of float32 values are for the hub. The same on all ranks."""
        return groups * GROUP_VALUES * 4 >= max(1, self.job.settings.hub_bytes_min)

    def start(self, addition: Addition, inputs: Memory, outputs: Memory, how: CollectiveKeywords) -> Work:
        """As Adder.start. Raises HubError: the hub has no memory for a numbered call beside what it keeps."""
        _, _, dtype, op, agree, factor, coded, *_, deadline_s = addition
        if coded is not None:
            assert isinstance(inputs, list)
            assert isinstance(outputs, list)
            if coded.summed is not None:
                outputs = [coded.summed]
            return self.coded_sum(addition.collective, outputs, inputs, coded, op, agree, how)
        if addition.collective == "reduce_scatter":
            assert isinstance(inputs, list)
            assert isinstance(outputs, list)
            return self.reduce_scatter(outputs[0], inputs, dtype, op, factor, agree, how)
        return self.all_reduce(cast("Span", outputs), dtype, op, factor, agree, how, deadline_s)

    def all_reduce(
        self,
        data: Span,
        dtype: DataType,
        op: Reduction,
        factor: float | None,
        agree: str,
        how: CollectiveKeywords,
        deadline_s: float | None = None,
    ) -> Work:
        """As Communicator.all_reduce, under the communicator's next number if `how` brings none. Raises as `start`.

        Several hubs would not be late alike: over them a sum has all ranks' data.
        """
        plan = self._plan(None, agree, self._calls.all_reduce, data[1], dtype, op, factor is not None)
        assert isinstance(plan, HubPlan)
        if deadline_s is not None and self._is_one_hub:
            plan = self._hub_planner.by_deadline(plan, max(1, round(deadline_s * 1e6)))
        options = self._options(dict(how))
        self._check_open(plan.words, plan.operation)
        self._check_room(plan.words, self._held_bytes, core_bytes_max(self._shape, plan.announcement.buffer))
        if factor is not None:
            scale(data, data, dtype, factor)
        if not plan.announcement.deadline_us:
            return self._begin(plan, None, data, options)
        # Where this rank leaves its mark others have zeros: a sum brings it back as it was, and a mean not as 0.
        marks = np.zeros((self._shape.workers, ELEMENT_BYTES[dtype]), np.uint8)
        marks[self.rank] = _MARK
        outputs = [*even_parts(data, len(plan.sizes) - 1, dtype), Span.of(marks)]
        work = self._begin(plan, None, outputs, options._replace(keep=(options.keep, marks)))
        work.marks = marks
        return work

    def reduce_scatter(
        self,
        output: Span,
        parts: Sequence[Span],
        dtype: DataType,
        op: Reduction,
        factor: float | None,
        agree: str,
        how: CollectiveKeywords,
    ) -> Work:
        """As Communicator.reduce_scatter, of equal parts. Raises as `start`."""
        call, sizes = self._calls.reduce_scatter, sizes_of(parts)
        plan = self._plan(None, agree, call, sizes, output[1], dtype, op, factor is not None)
        assert isinstance(plan, HubPlan)
        self._check_open(plan.words, plan.operation)
        self._check_room(plan.words, self._held_bytes, core_bytes_max(self._shape, plan.announcement.buffer))
        if factor is not None:
            given, parts = parts, [temporary(size, how) for size in sizes]
            for scaled, part in zip(parts, given, strict=True):
                scale(scaled, part, dtype, factor)
        keys = len(plan.sizes) // len(parts)
        inputs = [key for part in parts for key in even_parts(part, keys, dtype)]
        return self._begin(plan, inputs, even_parts(output, keys, dtype), self._options(dict(how)))

    # ---- coded values ----

    def coded_sum(
        self,
        collective: str,
        outputs: Sequence[Span],
        inputs: Sequence[Span],
        coded: CodedRules,
        op: Reduction,
        agree: str,
        how: CollectiveKeywords,
    ) -> Work:
        """A coded all-reduce or reduce-scatter, as Communicator's; `coded.kept` says what the hub keeps.

        `inputs` and `outputs`: parts that lie one after the other; of a reduce-scatter the output is one, for the code
        of this rank's part. Raises HubError: the hub has not the memory, for which `keep` was not asked.
        """
        scattered = collective in SCATTERED
        if coded.after is not None or (coded.values is not None and not scattered):
            raise errors.ArgumentError(
                "after or values is given; accepted over a hub: neither, since it keeps what waits"
            )
        sizes = wanted = sizes_of(self._calls.parts(inputs, "inputs"))
        call = self._calls.coded_reduce_scatter if scattered else self._calls.coded_all_reduce
        plan = self._plan(None, agree, call, sizes, coded.codec, op)
        assert isinstance(plan, HubPlan)
        keys = plan.sizes
        if scattered:
            wanted, keys = (sizes[self.rank],), keys[: len(keys) // len(sizes)]
        if sizes_of(outputs) != wanted:
            raise errors.ArgumentError(
                f"outputs have {sizes_of(outputs)} bytes; accepted: {wanted}, as"
                f" {'this rank has of the inputs' if scattered else 'the inputs'}"
            )
        memory = [_in_keys("inputs", inputs, plan.sizes), _in_keys("outputs", outputs, keys)]
        if overlap_of([Span(inputs[0].address, sum(sizes)), Span(outputs[0].address, sum(wanted))]):
            raise errors.ArgumentError(f"{plan.words}: output and input overlap; accepted: memory apart")
        options = self._numbered(plan, self._options(dict(how)))
        assert options.sequence is not None
        traits, kept = codec_traits(coded.codec), coded.kept
        terms = CodedTerms(traits.codec)
        if kept is not None:
            if kept.place != self.number:
                row = self._row_of(coded.codec, sum(sizes) // traits.group_bytes, scattered)
                words = f"{plan.words} with what its code leaves"
                self._check_room(words, *_in_all([*self._all_held(), row]))
                self._give_room(kept, row)
            terms = kept.terms(traits.codec, options.sequence, coded.factor)
        self._check_room(plan.words, self._held_bytes, core_bytes_max(self._shape, plan.announcement.buffer))
        named = self._hub_planner.as_coded(plan, terms)
        work = self._begin(named, memory[0], memory[1], options, CodedRules(coded.codec))
        plan.connected = True
        return work

    def keep(self, kept: KeptAtHub, codec: str, groups: int, scattered: bool) -> bool:
        """Whether the hub keeps what codes leave of a row of sums, each of so many groups, in this codec or a smaller.

        `scattered`: each rank gets an equal part of a sum. If so, the memory is the row's until it is forgotten, and
        its sums have theirs. False: there is too little, and ranks make these sums. All ranks call it at the same place
        among their collectives, and have the same answer.
        """
        if kept.place != self.number:
            row = self._row_of(codec, groups, scattered)
            words = f"a coded sum of {groups} groups of {codec} with what its code leaves"
            if not self._has_room("what codes leave", words, *_in_all([*self._all_held(), row])):
                return False
            self._give_room(kept, row)
        return True

    def _row_of(self, codec: str, groups: int, scattered: bool) -> _Held:
        traits = codec_traits(codec)
        buffer = Buffer(groups * traits.group_bytes, DataType.u8, traits.codec, scattered)
        return _Held(residual_loads(self._shape, buffer), core_bytes_max(self._shape, buffer))

    def _give_room(self, kept: KeptAtHub, row: _Held) -> None:
        assert self.number is not None
        self._residuals[kept] = row
        self._count()
        kept.move_to(self.number)

    def forget(self, kept: KeptAtHub) -> None:
        """Has the hub let go of what it keeps, before it hears of the next collective. Of another group: nothing.

        All ranks call it at the same place among their collectives.
        """
        if self._residuals.pop(kept, None) is not None:
            self._count()
        self.abandon(kept)

    def abandon(self, kept: KeptAtHub) -> None:
        """As forget, on any thread and at any time: so this rank still counts the memory, as all ranks have to."""
        if kept.place == self.number and kept.number:
            self._forgotten.append(kept.number)
        kept.move_to(0)

    # ---- memory of the poorest core ----

    def _all_held(self) -> list[_Held]:
        return [*self._kept.values(), *self._residuals.values()]

    def _count(self) -> None:
        self._held_bytes, _ = _in_all(self._all_held())

    def _shortage(self, words: str, held_bytes: int, needed: int) -> str | None:
        """What to say if a core lacks the memory for something beside what it keeps; None: it has it."""
        if held_bytes + needed <= self._memory_bytes:
            return None
        return (
            f"{words} needs {held_bytes + needed} bytes at a core of the hub, {held_bytes} of them for what it keeps,"
            f" and it has {self._memory_bytes} for this job; start the hub with a larger --job-memory, or more --cores,"
            " or use smaller buffers"
        )

    def _has_room(self, kind: str, words: str, held_bytes: int, needed: int) -> bool:
        """Whether there is the memory. If not, the first member's log says so, once of each kind."""
        if (shortage := self._shortage(words, held_bytes, needed)) is None:
            return True
        if self.rank == 0 and kind not in self._short:
            self._short.add(kind)
            RankLogger(self.job.rank, self._beside.name).warning(
                "ranks add among themselves what the hub has no room for: %s", shortage
            )
        return False

    def _check_room(self, words: str, held_bytes: int, needed: int) -> None:
        """Raises HubError: there is too little memory."""
        if (shortage := self._shortage(words, held_bytes, needed)) is not None:
            raise errors.HubError(shortage)

    # ---- weights at the hub ----

    def take_weights(self, count: int) -> int:
        """Takes the next `count` numbers of weights, the first of which it returns. All ranks take the same ones."""
        with self._lock:
            first = self._weights
            self._weights = first + count
        return first

    def load(
        self, weights: int, data: Span, rule: OptimizerRule, how: CollectiveKeywords, *, part: int = 0
    ) -> Work:
        """Has the cores keep float32 weights under a number, of which all workers bring the same values.

        `rule`: says how much state they have, zeros at first. `part`: 0; or i to replace the i-th array of the state of
        weights that are there. They stay until the number is loaded again or the group is closed. Raises HubError: the
        hub has not the memory for them; ArgumentError: no such part.
        """
        plan = self._weights_plan(data, Reduction.MAX)
        buffer = Buffer(data[1], DataType.f32)
        if part:
            self._check_part(weights, part)
        loads = weight_loads(self._shape, buffer, rule.states)
        own = _Held(loads, core_bytes_max(self._shape, buffer), rule.states)
        others = [each for number, each in self._kept.items() if number != weights]
        words = f"load of weights {weights}, {data[1]} bytes,"
        self._check_room(words, *_in_all([own, *others, *self._residuals.values()]))
        self._kept[weights] = own
        self._count()
        named = self._hub_planner.as_kind(plan, AnnouncementKind.LOAD, weights, rule=rule, part=part)
        return self._begin(named, None, data, self._options(dict(how)))

    def step(
        self,
        weights: int,
        data: Span,
        rule: OptimizerRule,
        step: int,
        *,
        average: bool,
        how: CollectiveKeywords,
    ) -> Work:
        """Makes the optimizer's step `step` (from 1) at the cores; `data`, this rank's gradient, becomes the weights.

        The gradient is the sum of all workers', or their mean. Raises ArgumentError: the weights are not there, or have
        another number of states; a hyperparameter is out of range.
        """
        self.check_rule(weights, rule)
        plan = self._weights_plan(data, Reduction.AVG if average else Reduction.SUM)
        named = self._hub_planner.as_kind(plan, AnnouncementKind.STEP, weights, step=step, rule=rule)
        return self._begin(named, None, data, self._options(dict(how)))

    def check_rule(self, weights: int, rule: OptimizerRule) -> None:
        """Raises ArgumentError: what `step` would, of weights that are not there and of hyperparameters."""
        self._check_part(weights, 0)
        try:
            found = rule.states
        except ValueError as error:
            raise errors.ArgumentError(str(error)) from None
        if (states := self._kept[weights].states) != found:
            raise errors.ArgumentError(f"{rule} has {found} arrays of state; accepted: {states}, as loaded")

    def fetch(self, weights: int, data: Span, how: CollectiveKeywords, *, part: int) -> Work:
        """Brings into `data`, zeros until then, the weights (part 0) or the i-th array of their state.

        Raises ArgumentError: there are none.
        """
        plan = self._weights_plan(data, Reduction.SUM)
        self._check_part(weights, part)
        named = self._hub_planner.as_kind(plan, AnnouncementKind.FETCH, weights, part=part)
        return self._begin(named, None, data, self._options(dict(how)))

    def _weights_plan(self, data: Span, op: Reduction) -> HubPlan:
        plan = self._plan(None, "", self._calls.all_reduce, data[1], DataType.f32, op, False)
        assert isinstance(plan, HubPlan)
        return plan

    def _check_part(self, weights: int, part: int) -> None:
        if weights not in self._kept:
            raise errors.ArgumentError(f"weights {weights} are not loaded; accepted: {sorted(self._kept)}")
        if part > (states := self._kept[weights].states):
            raise errors.ArgumentError(
                f"part is {part}; accepted: 0 to {states}, the states of weights {weights}"
            )

    # ---- helpers ----

    def _begin(
        self,
        plan: HubPlan,
        inputs: list[Span] | None,
        outputs: Span | list[Span],
        options: CallOptions,
        coded: CodedRules | None = None,
    ) -> Work:
        options = self._numbered(plan, options)
        assert options.sequence is not None
        self._announce(plan, options.sequence, options.traffic_class)
        return self._start(plan, inputs, outputs, options, coded=coded)

    def _numbered(self, plan: HubPlan, options: CallOptions) -> CallOptions:
        """With a number, the next one if there is none. Raises if the group is closed or has failed."""
        self._check_open(plan.words, plan.operation)
        if options.sequence is None:
            return options._replace(sequence=self._beside.reserve(1))
        return options

    def _announce(self, plan: HubPlan, sequence: int, traffic_class: int) -> None:
        with self._lock:
            # The memory that a collective needs may be what was let go: the hub hears of that first.
            while self._forgotten:
                self._say(Announcement.to_forget(self._forgotten.popleft()))
            self._say(plan.announcement._replace(sequence=sequence, traffic_class=traffic_class))

    def _say(self, said: Announcement) -> None:
        content = np.frombuffer(bytearray(said.pack()), np.uint8)
        assert self.number is not None
        for core in self._listeners:
            # Short enough to leave from a copy.
            self._runtime.start_message(
                self.number, True, core, ANNOUNCEMENT_TAG, Span.of(content), _ANNOUNCING, content
            )

    def _leave(self, *, tell: bool) -> None:
        super()._leave(tell=tell)
        if self.rank != 0 or self.number is None:
            return
        arguments = (self.number, self._hubs)
        if not tell:
            self._client.close_group(*arguments)
        else:
            # An abort does not wait, also not for a hub that hangs.
            threading.Thread(target=self._client.close_group, args=arguments, daemon=True).start()

    def _explain(self, work: Work, result: _native.CollectiveResult) -> errors.CollectiveError:
        error = super()._explain(work, result)
        if self._failed is not None:
            self._beside.fail_with(self._failed)
        return error


def _in_all(held: Iterable[_Held]) -> tuple[int, int]:
    """What the core that keeps most keeps, and what any one collective with it needs beside it, bytes."""
    held = list(held)
    loads = map(sum, zip(*(each.loads for each in held), strict=True))
    return max(loads, default=0), max((each.needed for each in held), default=0)


def _in_keys(name: str, parts: Sequence[Span], sizes: Sequence[int]) -> list[Span]:
    """The keys of memory. Raises ArgumentError: its parts do not follow one another."""
    at = parts[0].address
    for part in parts:
        if part.address != at and part.nbytes:
            raise errors.ArgumentError(
                f"{name} lie apart; accepted over a hub: parts that follow one another in memory"
            )
        at = part.address + part.nbytes
    begins = accumulate(sizes, initial=parts[0].address)
    return [Span(begin, nbytes) for begin, nbytes in zip(begins, sizes, strict=False)]


def open_hub_group(beside: Membership, store: Store, timeout_s: float, client: HubClient) -> HubGroup:
    """The group with hubs of a communicator's ranks. All of them call it. `client`: of the job.

    Blocks for the other ranks' cards and, on the first member, for the hubs. Raises, on all ranks, HubError: a hub
    cannot be reached or refuses; StoreTimeoutError. SettingsError, on the first member: nothing admits the job.
    """
    job, workers = beside.job, beside.members
    hubs = tuple(job.card_of(rank, timeout_s).hub for rank in workers)
    if beside.rank != 0:
        what = f"the hub's group of {beside.name!r} (rank {workers[0]}, its first member, has not opened it)"
        opened = Opened.from_json(wait_for(store, "hub", timeout_s, what))
    else:
        try:
            number = job.draw_number(len(workers))
            opened = client.open(workers, number, beside.name, hubs)
        except errors.DlcpError as error:
            store.set("hub", json.dumps({"refusal": str(error)}))
            raise
        store.set("hub", opened.to_json())
    job.add_cards(opened.cores)
    return HubGroup(beside, opened, store, hubs, client)
