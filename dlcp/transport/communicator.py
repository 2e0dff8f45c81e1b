"""A group of ranks and its collectives, on raw memory of the CPU.

    with Job(store, rank, size) as job:
        group = job.open_communicator("all")
        group.all_reduce(Span.of(gradient), DataType.f32).wait()

Every method starts one operation and returns its Work at once. The memory belongs to the operation until it is over.
Plain collectives are exact and reliable: all ranks end with the same bits, in every run, whatever was lost on the way.

All members call the same collectives in the same order. The transport compares what must be equal (kind, type,
reduction, root and sizes): it names a rank that calls something else, and sums nothing. A group fails as a whole: the
first failure ends what is under way on every member, and later calls raise GroupFailedError.

After an error memory that was to be filled may hold old values, new ones or partial sums; memory that is only read
never changes. Closing waits a few seconds for operations under way; it is no barrier, and does not depend on other
ranks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Unpack

from dlcp import _native, errors
from dlcp.checks import integer, refusal
from dlcp.transport.bounded import LossRules
from dlcp.transport.call_log import CallLog
from dlcp.transport.call_options import (
    TRAFFIC_CLASS_MAX,
    CallOptions,
    CollectiveKeywords,
    MessageKeywords,
    call_options,
)
from dlcp.transport.calls import Call, Calls, check_span, sizes_of
from dlcp.transport.coded import CodedRules, codec_traits
from dlcp.transport.diagnosis import Diagnosis
from dlcp.transport.element import DataType, Reduction
from dlcp.transport.failures import group_failed, is_of_the_group
from dlcp.transport.local_memory import copy, scale, temporary
from dlcp.transport.plan import Memory, Plan, Planner, check_aligned, lay_out
from dlcp.transport.schedule_memory import MAX_MESSAGE_BYTES, even_parts
from dlcp.transport.span import Span
from dlcp.transport.store import Store
from dlcp.transport.work import ManyWorks, Work, WorkGroup

if TYPE_CHECKING:
    from dlcp.transport.job import Job

__all__ = ["Communicator", "DataType", "Reduction", "Span", "Work"]

# Plans kept per group; beyond it all are made again, which costs some 50 us each.
_PLANS_MAX = 4096
# The native sequence number has 32 bits, of which a tag carries 20.
_SEQUENCE_MASK = (1 << 32) - 1
# So many members' addresses are read when the group first communicates, so that later errors can name them. The first
# members: the store is usually served on their host, and is lost with it.
_LOOKED_UP_MAX = 16
# Above this number of remembered operations, those that are over are dropped, even behind an older pending one.
_SWEEP_AT = 1024
# How long close() waits for operations under way.
_CLOSE_S = 5.0
# How often, and at what interval, to retry opening a number while the previous group with it is still closing.
_OPEN_TRIES = 100
_OPEN_PAUSE_S = 0.01


class Communicator:
    """This rank's end of a group. Made by Job.open_communicator; any thread may use it.

    Keyword arguments of all operations: see CallOptions. Of all collectives also: `algorithm`: a name of
    dlcp.transport.schedule, the same on all ranks (None: by size). `agree`: a text of anything else that must be equal
    on all ranks, such as a shape; it is compared as the sizes are.

    They raise ArgumentError: memory, type, root or tag that does not fit; GroupFailedError; ClosedError; ForkError; and
    on first use of a peer what Job.connect raises. They do not block but for that.
    """

    def __init__(
        self,
        job: Job,
        name: str,
        members: tuple[int, ...],
        number: int | None,
        store: Store,
        timeout_s: float,
        *,
        limit_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
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
        self._runtime = job.endpoint.runtime
        self._calls = Calls(name, members, self.rank, limit_bytes)
        self._planner = Planner(members, self.rank, number, job.settings.algorithm, limit_bytes)
        self._limit_bytes = limit_bytes
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._log = CallLog()
        self._recorder = job.recorder
        self._record = job.recorder.open_group(name, members)
        self._diagnosis = Diagnosis(job, name, members, store, self._log)
        self._group = WorkGroup(
            name, self.rank, self._explain, self._diagnosis.wait_timeout, job.endpoint.dispatcher.add
        )
        self._lock = threading.Lock()
        self._sequence = 0
        self._messages = 0
        self._under_way: deque[_native.Collective] = deque()
        self._sweep_at = _SWEEP_AT
        self._failed: errors.DlcpError | None = None
        self._failure_lock = threading.Lock()
        self._reason = ""
        self._closed = False
        if number is not None:
            self._open(number)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ", failed" if self._failed is not None else ""
        return f"<Communicator {self.name!r}: rank {self.rank} of {self.size}{state}>"

    @property
    def sequence(self) -> int:
        """How many collectives this rank has started; single messages are not counted."""
        return self._sequence

    @property
    def failed(self) -> errors.DlcpError | None:
        """The first failure of the group that this rank has seen, or None."""
        return self._failed

    @property
    def under_way(self) -> int:
        """How many operations of this rank are not over."""
        with self._lock:
            return sum(not collective.over for collective in self._under_way)

    # ---- reducing ----

    def all_reduce(
        self,
        data: Span,
        dtype: DataType,
        op: Reduction = Reduction.SUM,
        *,
        factor: float | None = None,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The reduction of all ranks' `data`, in place on each of them.

        `factor`: this rank's values are multiplied by it first, and then summed (PREMUL_SUM); only with SUM.
        """
        check_span("data", data)
        _check_factor(factor, op)
        calls = self._calls
        plan = self._plan(algorithm, agree, calls.all_reduce, data[1], dtype, op, factor is not None)
        options = self._options(how)
        if factor is not None:
            self._check_open(plan.words, plan.operation)
            scale(data, data, dtype, factor)
        return self._start(plan, None, data, options)

    def reduce(
        self,
        data: Span,
        dtype: DataType,
        op: Reduction = Reduction.SUM,
        root: int = 0,
        *,
        factor: float | None = None,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The reduction of all ranks' `data`, in place on the group's rank `root`; the others' data stays as it is.

        `factor`: as for all_reduce.
        """
        check_span("data", data)
        _check_factor(factor, op)
        calls = self._calls
        plan = self._plan(algorithm, agree, calls.reduce, data[1], dtype, op, root, factor is not None)
        source = data
        if factor is not None:
            self._check_open(plan.words, plan.operation)
            if self.rank != root:
                source = temporary(data[1], how)
            scale(source, data, dtype, factor)
        return self._start(plan, [source], [data] if self.rank == root else None, self._options(how))

    def reduce_scatter(
        self,
        output: Span,
        inputs: Span | Sequence[Span],
        dtype: DataType,
        op: Reduction = Reduction.SUM,
        *,
        factor: float | None = None,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The reduction of all ranks' part number `rank` of the inputs, in `output`.

        `inputs`: one memory, split evenly among the ranks, or one per rank, of any sizes that are equal on all ranks.
        They stay as they are; `output` may be this rank's part of them. `factor`: as for all_reduce.
        """
        check_span("output", output)
        _check_factor(factor, op)
        calls = self._calls
        parts = calls.parts(inputs, "inputs")
        sizes = sizes_of(parts)
        plan = self._plan(
            algorithm, agree, calls.reduce_scatter, sizes, output[1], dtype, op, factor is not None
        )
        if factor is not None:
            self._check_open(plan.words, plan.operation)
            given, parts = parts, [temporary(size, how) for size in sizes]
            for scaled, part in zip(parts, given, strict=True):
                scale(scaled, part, dtype, factor)
        return self._start(plan, parts, [output], self._options(how))

    # ---- reducing, within a loss budget ----

    def bounded_all_reduce(
        self,
        output: Span,
        input: Span,  # noqa: A002
        dtype: DataType,
        op: Reduction = Reduction.SUM,
        *,
        loss: LossRules,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The sum or average of what arrived of all `input`s, in each rank's `output`; the same bits on all ranks.

        Only messages to the rank that adds a part lose anything, as `loss` allows; Work.outcome says what was lost.
        `output` and `input` are apart and of one size; `input` stays as it is. Also raises ArgumentError: importance
        that does not fit the blocks.
        """
        _check_bounded(output, input, loss)
        calls = self._calls
        plan = self._plan(
            algorithm, agree, calls.bounded_all_reduce, output[1], input[1], dtype, op, loss.rescale
        )
        if self.size == 1:
            return self._start(plan, [input], [output], self._options(how))
        inputs = even_parts(input, self.size, dtype)
        return self._start_bounded(plan, inputs, even_parts(output, self.size, dtype), loss, how)

    def bounded_reduce_scatter(
        self,
        output: Span,
        input: Span,  # noqa: A002
        dtype: DataType,
        op: Reduction = Reduction.SUM,
        *,
        loss: LossRules,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The sum or average of what came of all ranks' part number `rank` of `input`, in `output`.

        `input`: one equal part per rank; it stays as it is. Loss as of bounded_all_reduce.
        """
        _check_bounded(output, input, loss)
        calls = self._calls
        plan = self._plan(
            algorithm, agree, calls.bounded_reduce_scatter, output[1], input[1], dtype, op, loss.rescale
        )
        if self.size == 1:
            return self._start(plan, [input], [output], self._options(how))
        step = output[1]
        parts = [Span(input[0] + i * step, step) for i in range(self.size)]
        return self._start_bounded(plan, parts, [output], loss, how)

    # ---- reducing, coded ----

    def coded_all_reduce(
        self,
        outputs: Sequence[Span],
        inputs: Sequence[Span],
        coded: CodedRules,
        op: Reduction = Reduction.SUM,
        *,
        loss: LossRules | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The coded sum or average of what arrived of all `inputs`, in each rank's `outputs`; the same on all ranks.

        `inputs` and `outputs`: one part per rank, whole groups of coded values, memory apart; inputs stay as they are.
        `coded`: the codec, and what this rank keeps as the owner of its part; that memory is in use until the work is
        over. `loss`: as of bounded_all_reduce, in blocks of block_bytes(rank, group_bytes); None: all arrives.
        """
        return self._start_coded(self._calls.coded_all_reduce, outputs, inputs, coded, op, loss, agree, how)

    def coded_reduce_scatter(
        self,
        inputs: Sequence[Span],
        coded: CodedRules,
        op: Reduction = Reduction.SUM,
        *,
        loss: LossRules | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The sum or average of what arrived of this rank's part of all `inputs`, in `coded.values`, as f32.

        The rest as of coded_all_reduce.
        """
        if coded.values is None:
            raise errors.ArgumentError("values is None; accepted: memory for the sum")
        own = [inputs[self.rank]]
        return self._start_coded(self._calls.coded_reduce_scatter, own, inputs, coded, op, loss, agree, how)

    def _start_coded(
        self,
        call: Callable[..., Call],
        outputs: Sequence[Span],
        inputs: Sequence[Span],
        coded: CodedRules,
        op: Reduction,
        loss: LossRules | None,
        agree: str,
        how: CollectiveKeywords,
    ) -> Work:
        inputs = self._calls.parts(inputs, "inputs")
        plan = self._plan(None, agree, call, sizes_of(inputs), coded.codec, op)
        coded.check(inputs[self.rank].nbytes)
        if self.size == 1:
            self._check_open(plan.words, plan.operation)
            if coded.values is None and sizes_of(outputs) != sizes_of(inputs):
                raise errors.ArgumentError(
                    f"outputs have {sizes_of(outputs)} bytes; accepted: {sizes_of(inputs)}, as the inputs"
                )
            coded.sum_alone(inputs[0], None if coded.values else outputs[0])
            return self._start(plan, None, None, self._options(how))
        return self._start_bounded(plan, inputs, list(outputs), loss, how, coded)

    def parts(self, nbytes: int, dtype: DataType) -> list[tuple[int, int]]:
        """First byte and end of the part of `nbytes` that each rank adds in a bounded_all_reduce, by rank.

        Equal if `nbytes` divides into whole elements; else parts begin at multiples of 64 bytes, and the last ones may
        be shorter, or empty.
        """
        return [(part[0], part[0] + part[1]) for part in even_parts(Span(0, nbytes), self.size, dtype)]

    def block_bytes(self, rank: int, unit_bytes: int = 1) -> int:
        """Bytes that one packet carries to the group's rank `rank`: of a block, but for a message's last.

        `unit_bytes`: a block of the message holds a whole number of such units, as of groups of coded values.

        Connects to it if there is no session yet: then it blocks for the handshake. Raises what connecting raises, and
        PeerFailedError after the group's timeout.
        """
        self._calls.check_other("rank", rank)
        member = self.members[rank]
        if not self._runtime.established(member):
            self.job.connect((member,), self.timeout_s)
            if not self._runtime.wait_established(member, self.timeout_s):
                raise errors.PeerFailedError(
                    f"rank {member} of group {self.name} did not answer within {self.timeout_s:g} s"
                )
        return self._runtime.block_bytes(member, unit_bytes)

    def reserve(self, count: int) -> int:
        """Takes the next `count` numbers of collectives, the first of which it returns, for the argument `sequence`.

        All ranks call it at the same place among their collectives. Each number is used once, for the same collective
        on all ranks, but in whatever order each rank likes.
        """
        return self._take(integer("count", count, 0))

    def _take(self, count: int) -> int:
        with self._lock:
            first = self._sequence
            self._sequence = first + count
        return first

    # ---- moving ----

    def all_gather(
        self,
        outputs: Span | Sequence[Span],
        input: Span,  # noqa: A002
        *,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """All ranks' `input`, in part i of `outputs` that of rank i.

        `outputs`: one memory, split evenly, or one per rank, of any sizes that are equal on all ranks. `input` may be
        this rank's part of them.
        """
        check_span("input", input)
        parts = self._calls.parts(outputs, "outputs")
        plan = self._plan(algorithm, agree, self._calls.all_gather, sizes_of(parts), input[1])
        return self._start(plan, [input], parts, self._options(how))

    def broadcast(
        self,
        data: Span,
        root: int = 0,
        *,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The `data` of the group's rank `root`, in every rank's `data`."""
        check_span("data", data)
        plan = self._plan(algorithm, agree, self._calls.broadcast, data[1], root)
        return self._start(plan, None, [data], self._options(how))

    def gather(
        self,
        outputs: Span | Sequence[Span] | None,
        input: Span,  # noqa: A002
        root: int = 0,
        *,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """All ranks' `input`, in part i of the root's `outputs` that of rank i.

        `outputs`: at the root one memory, split evenly, or one per rank; elsewhere None. Sizes may differ by rank.
        """
        check_span("input", input)
        parts = self._calls.root_parts(outputs, "outputs", root)
        plan = self._plan(algorithm, agree, self._calls.gather, sizes_of(parts), input[1], root)
        return self._start(plan, [input], parts, self._options(how))

    def scatter(
        self,
        output: Span,
        inputs: Span | Sequence[Span] | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """Part `rank` of the root's `inputs`, in `output`.

        `inputs`: at the root one memory, split evenly, or one per rank; elsewhere None. Sizes may differ by rank.
        """
        check_span("output", output)
        parts = self._calls.root_parts(inputs, "inputs", root)
        plan = self._plan(algorithm, agree, self._calls.scatter, sizes_of(parts), output[1], root)
        return self._start(plan, parts, [output], self._options(how))

    def all_to_all(
        self,
        outputs: Span | Sequence[Span],
        inputs: Span | Sequence[Span],
        *,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """Part j of this rank's `inputs` goes to rank j; part i of `outputs` comes from rank i.

        Each: one memory, split evenly, or one per rank, of any sizes on which the two ranks concerned agree. Inputs and
        outputs do not overlap.
        """
        out_parts = self._calls.parts(outputs, "outputs")
        in_parts = self._calls.parts(inputs, "inputs")
        plan = self._plan(algorithm, agree, self._calls.all_to_all, sizes_of(out_parts), sizes_of(in_parts))
        return self._start(plan, in_parts, out_parts, self._options(how))

    def barrier(
        self,
        *,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """Over when every rank has called it. Its default traffic class is the highest."""
        plan = self._plan(algorithm, agree, self._calls.barrier)
        return self._start(plan, None, temporary(1, how), self._options(how, TRAFFIC_CLASS_MAX))

    # ---- single messages ----

    def send(
        self,
        data: Span,
        destination: int,
        tag: int = 0,
        **how: Unpack[MessageKeywords],
    ) -> Work:
        """`data` to the group's rank `destination`, whose receive of the same tag it pairs with, in order.

        `tag`: 0 to 2^32 - 1. Over when it has been received, or, if it is short, when it has left a copy.
        """
        self._calls.check_other("destination", destination)
        return self._message("send", data, destination, tag, self._options(how))

    def receive(
        self,
        data: Span,
        source: int | None,
        tag: int = 0,
        **how: Unpack[MessageKeywords],
    ) -> Work:
        """A message of exactly the length of `data` from the group's rank `source`; None: from whoever sends first.

        Messages of one tag from one rank come in order. A message of another length fails with MismatchError on both
        sides; it does not fail the group. From anyone: less than 4 GiB.
        """
        if source is not None:
            self._calls.check_other("source", source)
        return self._message("receive", data, source, tag, self._options(how))

    # ---- ending ----

    def abort(self, reason: str = "") -> None:
        """Gives up everything under way, here and on the other members; later calls raise GroupFailedError.

        Waiters raise CollectiveAbortedError. Does not block. Again, or of a closed group: nothing.
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
        self._leave(tell=True)

    def close(self) -> None:
        """Leaves the group. Again: nothing.

        Waits a few seconds for operations under way, so that other ranks receive what they still expect from this one.
        Operations that are not over then end with CollectiveAbortedError, here and on the other members. A rank with
        nothing under way sends nothing: the others may still work on what this rank has finished.
        """
        with self._failure_lock:
            if self._closed:
                return
            self._closed = True
        end = time.monotonic() + _CLOSE_S
        with self._lock:
            under_way = list(self._under_way)
        orderly = True
        with contextlib.suppress(errors.ClosedError, errors.ForkError):
            for collective in under_way:
                left_s = max(0.0, end - time.monotonic()) if self._failed is None else 0.0
                orderly = collective.wait(left_s) and orderly
        if not orderly:
            self._reason = "close() with operations under way"
        self._leave(tell=not orderly)

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
        return call_options(how, self.timeout_s, traffic_class)

    def _start(
        self,
        plan: Plan,
        inputs: Memory,
        outputs: Memory,
        options: CallOptions,
        loss: LossRules | None = None,
        starts: Sequence[int] = (),
        coded: CodedRules | None = None,
    ) -> Work:
        """Starts what is planned. `starts`: of a bounded collective, where each rank's part of the input begins."""
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
        sequence = self._take(1) if options.sequence is None else options.sequence
        self._log.note(sequence, plan.words)
        operation, input_nbytes, output_nbytes, dtype, root = plan.recorded
        entry = self._recorder.record(
            self._record,
            sequence,
            operation,
            input_nbytes,
            output_nbytes,
            dtype,
            root=root,
            timeout_s=options.timeout_s,
            label=options.label,
        )
        started_s = time.monotonic()
        assert plan.command is not None
        collective = self._runtime.start_collective(
            plan.command,
            sequence & _SEQUENCE_MASK,
            inputs,
            outputs,
            options,
            keep,
            None if loss is None else loss.native(),
            None if coded is None else coded.native(),
        )
        entry.follow(collective)
        work = Work(
            self._group,
            collective,
            plan.operation,
            plan.words,
            sequence,
            started_s,
            options.label,
            starts=starts,
        )
        self._track(collective)
        return work

    def _start_bounded(
        self,
        plan: Plan,
        inputs: list[Span],
        outputs: list[Span],
        loss: LossRules | None,
        how: CollectiveKeywords,
        coded: CodedRules | None = None,
    ) -> Work:
        first, last, begin = inputs[0], inputs[-1], outputs[0][0]
        scattered = coded is not None and coded.values is not None  # its output is not written
        if not scattered and first[0] < outputs[-1][0] + outputs[-1][1] and begin < last[0] + last[1]:
            raise errors.ArgumentError(f"{plan.words}: output and input overlap; accepted: memory apart")
        if loss is not None:
            messages = {peer: part[1] for peer, part in enumerate(inputs) if peer != self.rank}
            unit_bytes = 1 if coded is None else codec_traits(coded.codec).group_bytes
            loss.check(messages, self.size, lambda rank: self.block_bytes(rank, unit_bytes))
        starts = [part[0] - first[0] for part in inputs]
        return self._start(plan, inputs, outputs, self._options(how), loss, starts, coded)

    def _finish_alone(self, plan: Plan, inputs: Memory, outputs: Memory, options: CallOptions) -> Work:
        """Completes a collective that needs no other rank, or moves no bytes."""
        self._check_open(plan.words, plan.operation)
        if isinstance(inputs, list) and isinstance(outputs, list):
            copy(outputs[0], inputs[0])
        sequence = self._take(1) if options.sequence is None else options.sequence
        self._log.note(sequence, plan.words)
        self._recorder.record(self._record, sequence, plan.operation, label=options.label).complete()
        return Work(self._group, None, plan.operation, plan.words, sequence, time.monotonic(), options.label)

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
        works = []
        for at in range(0, max(data[1], 1), self._limit_bytes):
            with self._lock:
                number = self._messages
                self._messages = number + 1
            piece = Span(data[0] + at, min(self._limit_bytes, data[1] - at))
            entry = self._recorder.record_message(
                self._record,
                operation,
                peer,
                piece.nbytes,
                tag=tag,
                timeout_s=options.timeout_s,
                label=options.label,
            )
            collective = self._runtime.start_message(
                self.number, operation == "send", peer, tag, piece, options, (options.keep, data)
            )
            entry.follow(collective)
            work = Work(
                self._group,
                collective,
                operation,
                words,
                number,
                time.monotonic(),
                options.label,
                numbered=False,
            )
            self._track(collective)
            works.append(work)
        return works[0] if len(works) == 1 else ManyWorks(works)

    def _track(self, collective: _native.Collective) -> None:
        """Remembers a pending operation, for close()."""
        with self._lock:
            under_way = self._under_way
            while under_way and under_way[0].over:
                under_way.popleft()
            under_way.append(collective)
            if len(under_way) >= self._sweep_at:
                # Behind a long one, such as a receive without a sender.
                self._under_way = deque(each for each in under_way if not each.over)
                self._sweep_at = max(_SWEEP_AT, 2 * len(self._under_way))

    def _plan(self, algorithm: str | None, agree: str, call: Callable[..., Call], *arguments: Any) -> Plan:
        """The plan of `call(*arguments, agree)`: made for the first of its kind, and kept for the others."""
        key = (call.__name__, algorithm, agree, arguments)
        try:
            plan = self._plans.get(key)
        except TypeError:
            plan = None  # an argument that is no key is none that the call accepts
        if plan is None:
            plan = self._planner.plan(call(*arguments, agree), algorithm)
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = plan
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
                    error.args = (
                        f"{error} The last operations of this rank are in {trace}, for torchfrtrace.",
                    )
        return error


def _check_factor(factor: object, op: Reduction) -> None:
    if factor is None:
        return
    if isinstance(factor, bool) or not isinstance(factor, Real):
        raise errors.ArgumentError(refusal("factor", factor, "a number, or None"))
    if op is not Reduction.SUM:
        raise errors.ArgumentError(
            f"factor is {factor!r} with {op}; accepted: a factor with Reduction.SUM only"
        )


def _check_bounded(output: object, input_: object, loss: object) -> None:
    check_span("output", output)
    check_span("input", input_)
    if not isinstance(loss, LossRules):
        raise errors.ArgumentError(refusal("loss", loss, "LossRules"))
