"""A worker's end of a group with a hub: it announces each all-reduce to its rack's hub, and starts it.

The group has members that are no ranks of the job, the hubs' cores. It fails as any group does, and the communicator
beside which it stands fails with it. Its collectives have the communicator's numbers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from dlcp import _native, errors
from dlcp.transport.call_options import TRAFFIC_CLASS_MAX, CallOptions, CollectiveKeywords
from dlcp.transport.calls import Calls
from dlcp.transport.element import DataType, Reduction
from dlcp.transport.hub.announcement import Kind
from dlcp.transport.hub.client import Opened
from dlcp.transport.hub.plan import HubPlan, HubPlanner, core_bytes_max, core_loads
from dlcp.transport.hub.rule import Rule
from dlcp.transport.local_memory import scale
from dlcp.transport.membership import Membership
from dlcp.transport.schedule_memory import MAX_MESSAGE_BYTES
from dlcp.transport.span import Span
from dlcp.transport.store import Store, wait_for
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator
    from dlcp.transport.plan import Memory
    from dlcp.transport.schedule.adders import Addition

ANNOUNCEMENT_TAG = 0
# Announcements leave before all data: contributions that a core does not expect yet are kept as copies.
_ANNOUNCING = CallOptions(traffic_class=TRAFFIC_CLASS_MAX)


class HubGroup(Membership):
    """One rank's end. Made by `open_hub_group`; any thread may use it."""

    def __init__(self, beside: Communicator, opened: Opened, store: Store, hubs: tuple[str, ...]) -> None:
        job, workers = beside.job, beside.members
        members = (*workers, *(core.rank for core in opened.cores))
        name = f"{beside.name}.hub"
        rank = beside.rank
        planner = HubPlanner(
            members, rank, opened.number, MAX_MESSAGE_BYTES, opened.shape, opened.memory_bytes
        )
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
        # Per number of weights how many states they have, what each core keeps of both, bytes, and what a collective of
        # their size needs there.
        self._kept: dict[int, tuple[int, list[int], int]] = {}
        self._weights = 0
        self._beside = beside
        self._hubs = hubs
        rack = opened.shape.racks[rank]
        first = len(workers)
        self._listeners = [first + core for core in opened.listeners[rack]]
        cores = opened.cores[rack * opened.shape.cores : (rack + 1) * opened.shape.cores]
        job.connect([core.rank for core in cores])

    def takes(self, addition: Addition) -> bool:
        """As Adder.takes: all-reduces of hub_bytes_min and more."""
        return addition.collective == "all_reduce" and addition.nbytes >= self.job.settings.hub_bytes_min

    def start(self, addition: Addition, inputs: Memory, outputs: Memory, how: CollectiveKeywords) -> Work:
        """As Adder.start. Raises HubError: the hub has no memory for it."""
        del inputs
        _, _, dtype, op, agree, factor, *_ = addition
        return self.all_reduce(cast("Span", outputs), dtype, op, factor, agree, how)

    def all_reduce(
        self,
        data: Span,
        dtype: DataType,
        op: Reduction,
        factor: float | None,
        agree: str,
        how: CollectiveKeywords,
    ) -> Work:
        """As Communicator.all_reduce, under the communicator's next number if `how` brings none. Raises as `start`."""
        plan = self._plan(None, agree, self._calls.all_reduce, data[1], dtype, op, factor is not None)
        assert isinstance(plan, HubPlan)
        options = self._options(dict(how))
        self._check_open(plan.words, plan.operation)
        if self._kept:
            beside = core_bytes_max(self._shape, data[1], plan.type)
            self._hub_planner.check_memory(f"{plan.words} beside weights", _busiest(self._kept) + beside)
        if factor is not None:
            scale(data, data, dtype, factor)
        return self._begin(plan, data, options)

    # ---- weights at the hub ----

    def take_weights(self, count: int) -> int:
        """Takes the next `count` numbers of weights, the first of which it returns. All ranks take the same ones."""
        with self._lock:
            first = self._weights
            self._weights = first + count
        return first

    def load(self, weights: int, data: Span, rule: Rule, how: CollectiveKeywords, *, part: int = 0) -> Work:
        """Has the cores keep float32 weights under a number, of which all workers bring the same values.

        `rule`: says how much state they have, zeros at first. `part`: 0; or i to replace the i-th array of the state of
        weights that are there. They stay until the number is loaded again or the group is closed. Raises HubError: the
        hub has not the memory for them; ArgumentError: no such part.
        """
        plan = self._weights_plan(data, Reduction.MAX)
        loads = core_loads(self._shape, data[1], DataType.f32)
        if part:
            self._check_part(weights, part)
        kept = dict(self._kept)
        needed = core_bytes_max(self._shape, data[1], DataType.f32)
        kept[weights] = rule.states, [load * (1 + rule.states) for load in loads], needed
        self._hub_planner.check_memory(
            f"load of weights {weights}, {data[1]} bytes",
            _busiest(kept) + max(needed for _, _, needed in kept.values()),
        )
        self._kept = kept
        named = self._hub_planner.as_kind(plan, Kind.LOAD, weights, rule=rule, part=part)
        return self._begin(named, data, self._options(dict(how)))

    def step(
        self, weights: int, data: Span, rule: Rule, step: int, *, average: bool, how: CollectiveKeywords
    ) -> Work:
        """Makes the optimizer's step `step` (from 1) at the cores; `data`, this rank's gradient, becomes the weights.

        The gradient is the sum of all workers', or their mean. Raises ArgumentError: the weights are not there, or have
        another number of states; a hyperparameter is out of range.
        """
        self.check_rule(weights, rule)
        plan = self._weights_plan(data, Reduction.AVG if average else Reduction.SUM)
        named = self._hub_planner.as_kind(plan, Kind.STEP, weights, step=step, rule=rule)
        return self._begin(named, data, self._options(dict(how)))

    def check_rule(self, weights: int, rule: Rule) -> None:
        """Raises ArgumentError: what `step` would, of weights that are not there and of hyperparameters."""
        self._check_part(weights, 0)
        try:
            found = rule.states
        except ValueError as error:
            raise errors.ArgumentError(str(error)) from None
        if (states := self._kept[weights][0]) != found:
            raise errors.ArgumentError(f"{rule} has {found} arrays of state; accepted: {states}, as loaded")

    def fetch(self, weights: int, data: Span, how: CollectiveKeywords, *, part: int) -> Work:
        """Brings into `data`, zeros until then, the weights (part 0) or the i-th array of their state.

        Raises ArgumentError: there are none.
        """
        plan = self._weights_plan(data, Reduction.SUM)
        self._check_part(weights, part)
        named = self._hub_planner.as_kind(plan, Kind.FETCH, weights, part=part)
        return self._begin(named, data, self._options(dict(how)))

    def _weights_plan(self, data: Span, op: Reduction) -> HubPlan:
        plan = self._plan(None, "", self._calls.all_reduce, data[1], DataType.f32, op, False)
        assert isinstance(plan, HubPlan)
        return plan

    def _check_part(self, weights: int, part: int) -> None:
        if weights not in self._kept:
            raise errors.ArgumentError(f"weights {weights} are not loaded; accepted: {sorted(self._kept)}")
        if part > (states := self._kept[weights][0]):
            raise errors.ArgumentError(
                f"part is {part}; accepted: 0 to {states}, the states of weights {weights}"
            )

    # ---- helpers ----

    def _begin(self, plan: HubPlan, data: Span, options: CallOptions) -> Work:
        self._check_open(plan.words, plan.operation)
        if options.sequence is None:
            options = options._replace(sequence=self._beside.reserve(1))
        assert options.sequence is not None
        self._announce(plan, options.sequence, options.traffic_class)
        return self._start(plan, None, data, options)

    def _announce(self, plan: HubPlan, sequence: int, traffic_class: int) -> None:
        said = plan.announcement._replace(sequence=sequence, traffic_class=traffic_class).pack()
        content = np.frombuffer(bytearray(said), np.uint8)
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
            self.job.hub_client.close_group(*arguments)
        else:
            # An abort does not wait, also not for a hub that hangs.
            threading.Thread(target=self.job.hub_client.close_group, args=arguments, daemon=True).start()

    def _explain(self, work: Work, result: _native.CollectiveResult) -> errors.CollectiveError:
        error = super()._explain(work, result)
        if self._failed is not None:
            self._beside.fail_with(self._failed)
        return error


def _busiest(kept: Mapping[int, tuple[int, list[int], int]]) -> int:
    """What the core with most of the weights keeps, bytes."""
    cores: Iterable[tuple[int, ...]] = zip(*(keeps for _, keeps, _ in kept.values()), strict=True)
    return max(map(sum, cores))


def open_hub_group(beside: Communicator, store: Store, timeout_s: float) -> HubGroup:
    """The group with hubs of a communicator's ranks. All of them call it.

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
            opened = job.hub_client.open(workers, number, beside.name, hubs)
        except errors.DlcpError as error:
            store.set("hub", json.dumps({"refusal": str(error)}))
            raise
        store.set("hub", opened.to_json())
    job.add_cards(opened.cores)
    return HubGroup(beside, opened, store, hubs)
