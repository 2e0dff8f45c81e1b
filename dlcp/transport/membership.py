"""A rank's place in a group: it starts operations, and fails and ends once.

What the ranks call, and with what memory, is the business of those that derive from it; here a call is a Plan. A group
fails as a whole: the first failure ends what is under way on every member, and later calls raise GroupFailedError.
Closing waits a few seconds for operations under way; it is no barrier, and does not depend on other ranks.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dlcp import _native, errors
from dlcp.checks import integer
from dlcp.kept import keep
from dlcp.transport.bounded import LossRules
from dlcp.transport.call_log import CallLog
from dlcp.transport.call_options import CallOptions, CollectiveKeywords, call_options
from dlcp.transport.calls import Call, Calls, check_span
from dlcp.transport.coded import CodedRules
from dlcp.transport.diagnosis import Diagnosis
from dlcp.transport.failures import group_failed, is_of_the_group
from dlcp.transport.local_memory import copy
from dlcp.transport.logger import RankLogger, logger
from dlcp.transport.plan import Memory, Plan, Planner, check_aligned, lay_out
from dlcp.transport.schedule_memory import MAX_MESSAGE_BYTES
from dlcp.transport.span import Span
from dlcp.transport.store import Store
from dlcp.transport.work import ManyWorks, MessageWords, Work, WorkGroup

if TYPE_CHECKING:
    from dlcp.transport.job_ranks import JobRanks
    from dlcp.transport.schedule.adders import Adder, Addition

# Plans kept per group; beyond it all are made again, which costs some 50 us each.
_PLANS_MAX = 4096
# So many members' addresses are read when the group first communicates, so that later errors can name them. The first
# members: the store is usually served on their host, and is lost with it.
_LOOKED_UP_MAX = 16
# How long close() waits for operations under way.
_CLOSE_S = 5.0
# How often, and at what interval, to retry opening a number while the previous group with it is still closing.
_OPEN_TRIES = 100
_OPEN_PAUSE_S = 0.01


class Membership:
    """This rank's end of a group, without the calls. Any thread may use it."""

    def __init__(
        self,
        job: JobRanks,
        name: str,
        members: tuple[int, ...],
        number: int | None,
        store: Store,
        timeout_s: float,
        *,
        limit_bytes: int = MAX_MESSAGE_BYTES,
        calls: Calls | None = None,
        planner: Planner | None = None,
    ) -> None:
        """`calls`, `planner`: of a group with members that call nothing; None: of one in which all call."""
        self.job = job
        """The job it belongs to."""
        self.name = name
        """Its name, the same on all members."""
        self.members = members
        """Ranks in the job, by rank in the group."""
        self.rank = members.index(job.rank)
        """This rank in the group."""
        self.size = len(members)
        """How many members there are."""
        self.number = number
        """The group's number in message tags; None: it has one member."""
        self.timeout_s = timeout_s
        """Default timeout of operations, seconds. May be changed."""
        self.in_background = False
        """Whether its operations may leave in the lowest traffic class while the job keeps others out of it."""
        self.adders: tuple[Adder, ...] = ()
        """Who adds for the members, in the order in which they are asked. Set when the group is opened."""
        self._runtime = job.endpoint.runtime
        self._calls = calls or Calls(name, members, self.rank, limit_bytes)
        self._planner = planner or Planner(
            members,
            self.rank,
            number,
            job.settings.algorithm,
            limit_bytes,
            lambda: job.network_of(members, timeout_s),
            lambda: job.is_crowded(members, timeout_s),
            RankLogger(job.rank, name).info if self.rank == 0 and logger.isEnabledFor(logging.INFO) else None,
        )
        self._limit_bytes = limit_bytes
        self._plans: dict[tuple[Any, ...], Plan] = {}
        # Of sums that are waited for at once, by bytes and type: found in less time.
        self._sums: dict[tuple[int, _native.DataType], Plan] = {}
        self._log = CallLog()
        self._recorder = job.recorder
        self._record = job.recorder.open_group(name, members)
        self._diagnosis = Diagnosis(job, name, members, store, self._log)
        self._group = WorkGroup(
            name, self.rank, self._explain, self._diagnosis.wait_timeout, job.endpoint.dispatcher.add
        )
        self._lock = threading.Lock()
        self._native = _native.GroupCalls(self._runtime, self._recorder, self._record, self._log.calls)
        # Of calls that say nothing, and what they were made of.
        self._defaults = CallOptions()
        self._defaults_asked: tuple[float, int, bool] | None = None
        self._messages = 0
        self._failed: errors.DlcpError | None = None
        self._failure_lock = threading.Lock()
        self._reason = ""
        self._closed = False
        if number is not None:
            self._open(number)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ", failed" if self._failed is not None else ""
        return f"<{type(self).__name__} {self.name!r}: rank {self.rank} of {self.size}{state}>"

    @property
    def sequence(self) -> int:
        """How many collectives this rank has started; single messages are not counted."""
        return self._native.sequence

    @property
    def failed(self) -> errors.DlcpError | None:
        """The first failure of the group that this rank has seen, or None."""
        return self._failed

    @property
    def under_way(self) -> int:
        """How many operations of this rank are not over."""
        own = len(self._recorder.held(self._record))
        return own + sum(adder.under_way for adder in self.adders)

    def reserve(self, count: int) -> int:
        """Takes the next `count` numbers of collectives, the first of which it returns, for the argument `sequence`.

        All ranks call it at the same place among their collectives. Each number is used once, for the same collective
        on all ranks, but in whatever order each rank likes.
        """
        return self._native.take(integer("count", count, 0))

    # ---- ending ----

    def fail_with(self, error: errors.DlcpError) -> None:
        """Has later calls raise GroupFailedError, for a failure of what the group depends on."""
        with self._failure_lock:
            if self._failed is None:
                self._failed = error

    def abort(self, reason: str = "") -> None:
        """Gives up everything under way, here and on the other members; later calls raise GroupFailedError.

        Waiters raise CollectiveAbortedError. Members still finish the collectives that this rank has finished.
        Does not block. Again, or of a closed group: nothing.
        """
        with self._failure_lock:
            if self._closed:
                return
            self._closed = True
            self._reason = reason
            if self._failed is None:
                error = errors.CollectiveAbortedError(
                    f"group {self.name} was aborted by this rank{f': {reason}' if reason else ''}"
                )
                error.group = self.name
                error.culprit = self.job.rank
                self._failed = error
        for adder in self.adders:
            adder.abort(reason)
        self._leave(tell=True)

    def close(self) -> None:
        """Leaves the group. Again: nothing.

        Waits a few seconds for operations under way, so that other ranks receive what they still expect from this one.
        Operations that are not over then end with CollectiveAbortedError, here and on the other members. A rank with
        nothing under way sends nothing: the others may still work on what this rank has finished.
        """
        for adder in self.adders:
            adder.close()
        with self._failure_lock:
            if self._closed:
                return
            self._closed = True
        end = time.monotonic() + _CLOSE_S
        orderly = True
        with contextlib.suppress(errors.ClosedError, errors.ForkError):
            for collective in self._recorder.held(self._record):
                left_s = max(0.0, end - time.monotonic()) if self._failed is None else 0.0
                orderly = collective.wait(left_s) and orderly
        if not orderly:
            self._reason = "close() with operations under way"
        self._leave(tell=not orderly)

    def withdraw(self) -> None:
        """Leaves the group at once and tells nobody. What is under way here is given up. Again: nothing.

        For a member of which nobody expects anything any more, though it waits itself: a service, for its next request.
        """
        with self._failure_lock:
            if self._closed:
                return
            self._closed = True
        for adder in self.adders:
            adder.withdraw()
        self._leave(tell=False)

    def _leave(self, *, tell: bool) -> None:
        self._recorder.close_group(self._record)
        if self.number is None:
            return
        with contextlib.suppress(errors.ClosedError, errors.ForkError):
            self._runtime.close_group(self.number, tell)
        self.job.release_number(self.number)

    # ---- starting ----

    def _open(self, number: int) -> None:
        """Opens the native group. A closed group that had the number may hold it for another moment."""
        for _ in range(_OPEN_TRIES):
            if self._runtime.open_group(number, list(self.members), self.rank):
                return
            time.sleep(_OPEN_PAUSE_S)
        raise errors.LimitError(f"group number {number} of {self.name!r} is taken on rank {self.job.rank}")

    def _options(self, how: Any, traffic_class: int = 0) -> CallOptions:
        options = call_options(how, self.timeout_s, traffic_class)
        if options.traffic_class < self.job.traffic_class_min and not self.in_background:
            return options._replace(traffic_class=self.job.traffic_class_min)
        return options

    def _add(
        self, addition: Addition, inputs: Memory, outputs: Memory, how: CollectiveKeywords
    ) -> Work | None:
        """Has the first adder that takes a call start it; None: nobody takes it."""
        if how.get("sequence") is not None:
            addition = addition._replace(numbered=True)
        adder = next((each for each in self.adders if each.takes(addition)), None)
        if adder is None:
            return None
        self._check_open(addition.collective, addition.collective)
        if how.get("timeout_s") is None:
            how["timeout_s"] = self.timeout_s
        return adder.start(addition, inputs, outputs, how)

    def _start(
        self,
        plan: Plan,
        inputs: Memory,
        outputs: Memory,
        options: CallOptions,
        loss: LossRules | None = None,
        starts: Sequence[int] = (),
        coded: CodedRules | None = None,
        followed: _native.Collective | None = None,
    ) -> Work:
        """Starts what is planned. `starts`: of a bounded collective, where each rank's part of the input begins.

        `followed`: what the flight recorder follows in its place.
        """
        if self._failed is not None or self._closed:
            self._check_open(plan.words, plan.operation)
        if not plan.connected:
            if plan.command is None:
                return self._finish_alone(plan, inputs, outputs, options)
            self.job.connect(plan.peers, options.timeout_s)
            self.job.look_up(self.members[:_LOOKED_UP_MAX])
            plan.connected = True
        if plan.alignment_bytes > 1:
            if inputs is not None:
                check_aligned(inputs, plan.alignment_bytes)
            if outputs is not None:
                check_aligned(outputs, plan.alignment_bytes)
        keep = (options.keep, inputs, outputs)
        if plan.input_parts is not None or plan.output_parts is not None:
            inputs = lay_out(inputs, plan.input_parts, plan.even_inputs, plan.type)
            outputs = lay_out(outputs, plan.output_parts, plan.even_outputs, plan.type)
        sequence = self._native.take(1) if options.sequence is None else options.sequence
        started_s = time.monotonic()
        assert plan.command is not None
        collective = self._native.start(
            plan.command,
            plan.words,
            plan.recorded,
            sequence,
            inputs,
            outputs,
            options,
            keep,
            None if loss is None else loss.native(),
            None if coded is None else coded.native(),
            followed,
        )
        return Work(self._group, collective, plan, sequence, started_s, options.label, starts)

    def _run(self, plan: Plan, data: Span, keep: object) -> None:
        """Carries out what is planned in place, with the defaults of a call: _start and wait, without a Work.

        `keep`: what owns the memory. Raises what those raise.
        """
        asked = self.timeout_s, self.job.traffic_class_min, self.in_background
        if asked != self._defaults_asked:
            self._defaults = self._options({"wait_follows": True})
            self._defaults_asked = asked
        options = self._defaults
        if (
            self._failed is not None
            or self._closed
            or not plan.connected
            or plan.output_parts is not None
            or data[0] % plan.alignment_bytes
        ):
            self._start(plan, None, data, options._replace(keep=keep)).wait()
            return
        assert plan.command is not None
        started_s = time.monotonic()
        failed = self._native.run(plan.command, plan.words, plan.recorded, data, options, keep)
        if failed is not None:
            sequence, collective = failed
            Work(self._group, collective, plan, sequence, started_s, None).wait()

    def _finish_alone(self, plan: Plan, inputs: Memory, outputs: Memory, options: CallOptions) -> Work:
        """Completes a collective that needs no other rank, or moves no bytes."""
        self._check_open(plan.words, plan.operation)
        if isinstance(inputs, list) and isinstance(outputs, list):
            copy(outputs[0], inputs[0])
        sequence = self._native.take(1) if options.sequence is None else options.sequence
        self._log.note(sequence, plan.words)
        facts = self._recorder.facts(self._record, sequence, plan.operation, label=options.label)
        self._recorder.record(facts).complete()
        return Work(self._group, None, plan, sequence, time.monotonic(), options.label)

    def _message(self, operation: str, data: Span, peer: int | None, tag: int, options: CallOptions) -> Work:
        check_span("data", data)
        words = self._calls.message(operation, data[1], peer, tag)
        self._check_open(words, operation)
        if self.size == 1:
            raise errors.ArgumentError(f"{words} in a group of one: there is nobody else")
        if options.sequence is not None:
            raise errors.ArgumentError(f"sequence is {options.sequence}; accepted: only collectives have one")
        if peer is None:
            if data[1] > self._limit_bytes:
                raise errors.MessageTooLongError(
                    f"data has {data[1]} bytes; accepted: up to {self._limit_bytes} from anyone; name the source"
                )
        else:
            self.job.connect((self.members[peer],), options.timeout_s)
        assert self.number is not None
        said, works = MessageWords(operation, words), []
        for at in range(0, max(data[1], 1), self._limit_bytes):
            with self._lock:
                number = self._messages
                self._messages = number + 1
            piece = Span(data[0] + at, min(self._limit_bytes, data[1] - at))
            collective = self._runtime.start_message(
                self.number, operation == "send", peer, tag, piece, options, (options.keep, data)
            )
            facts = self._recorder.message_facts(
                self._record,
                operation,
                peer,
                piece.nbytes,
                tag=tag,
                timeout_s=options.timeout_s,
                label=options.label,
            )
            self._recorder.follow(facts, collective, collective)
            works.append(
                Work(self._group, collective, said, number, time.monotonic(), options.label, numbered=False)
            )
        return works[0] if len(works) == 1 else ManyWorks(works)

    def _plan(self, algorithm: str | None, agree: str, call: Callable[..., Call], *arguments: Any) -> Plan:
        """The plan of `call(*arguments, agree)`: made for the first of its kind, and kept for the others."""
        key = (call.__name__, algorithm, agree, arguments)
        try:
            plan = self._plans.get(key)
        except TypeError:
            plan = None  # an argument that is no key is none that the call accepts
        if plan is None:
            plan = keep(self._plans, key, self._planner.plan(call(*arguments, agree), algorithm), _PLANS_MAX)
        return plan

    def _check_open(self, words: str, operation: str) -> None:
        if self.job.endpoint.closed:
            raise errors.ClosedError(f"{words} on group {self.name}: {self.job!r}")
        if self._failed is not None:
            raise group_failed(operation, words, self.name, self._failed)
        if self._closed:
            raise errors.ClosedError(f"{words} on group {self.name}, which is closed")

    # ---- failures ----

    def _explain(self, work: Work, result: _native.CollectiveResult) -> errors.CollectiveError:
        """The exception of a work that has failed; the group has failed with it, unless it is one message's own."""
        with self._failure_lock:
            error = self._diagnosis.explain(work, result, self._reason)
            if self._failed is None and is_of_the_group(result, single=not work.numbered):
                self._failed = error
                trace = self._recorder.group_failed(self._record, str(error))
                if trace is not None:
                    error.args = (f"{error} The last operations of this rank are in {trace}.",)
        return error
