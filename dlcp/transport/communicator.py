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
never changes. How a group fails and is closed: membership.py. Reductions that may lose something: lossy_reductions.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Unpack

import numpy as np

from dlcp import errors, kept
from dlcp.checks import number, refusal
from dlcp.transport.call_options import TRAFFIC_CLASS_MAX, CollectiveKeywords, MessageKeywords
from dlcp.transport.calls import check_span, sizes_of
from dlcp.transport.element import FLOATING, DataType, Reduction
from dlcp.transport.hub.group import HubGroup
from dlcp.transport.local_memory import scale, temporary
from dlcp.transport.lossy_reductions import LossyReductions
from dlcp.transport.schedule.adders import Addition
from dlcp.transport.span import Span
from dlcp.transport.work import Work

__all__ = ["Communicator", "DataType", "Reduction", "Span", "Work"]


DEADLINE_S_MIN, DEADLINE_S_MAX = 1e-6, 3600.0
"""Of an all-reduce that may be made without late ranks, seconds."""


class Communicator(LossyReductions):
    """This rank's end of a group. Made by Job.open_communicator; any thread may use it.

    Keyword arguments of all operations: see CallOptions. Of all collectives also: `algorithm`: a name of
    dlcp.transport.schedule, the same on all ranks (None: the quickest by estimate). `agree`: a text of anything
    else that must be equal on all ranks, such as a shape; it is compared as the sizes are.

    They raise ArgumentError: memory, type, root or tag that does not fit; GroupFailedError; ClosedError; ForkError; and
    on first use of a peer what Job.connect raises. They do not block but for that.
    """

    # ---- reducing ----

    def all_reduce(
        self,
        data: Span,
        dtype: DataType,
        op: Reduction = Reduction.SUM,
        *,
        factor: float | None = None,
        deadline_s: float | None = None,
        algorithm: str | None = None,
        agree: str = "",
        **how: Unpack[CollectiveKeywords],
    ) -> Work:
        """The reduction of all ranks' `data`, in place on each of them.

        `factor`: this rank's values are multiplied by it first, and then summed (PREMUL_SUM); only with SUM.
        `deadline_s`: over one hub the sum, or mean, is made this long after the first rank's call, of the data of those
        that have called; the same number on all ranks. What late ranks bring is thrown away, and they get the same
        result. Work.contributors says whose data is in it. Elsewhere all ranks' is. None: everywhere all ranks'.
        """
        check_span("data", data)
        _check_factor(factor, op)
        if deadline_s is not None:
            _check_deadline(deadline_s, dtype, op)
        work = None
        if algorithm is None and self.adders:
            addition = Addition("all_reduce", data[1], dtype, op, agree, factor, deadline_s=deadline_s)
            work = self._add(addition, None, data, how)
        if work is None:
            calls = self._calls
            plan = self._plan(algorithm, agree, calls.all_reduce, data[1], dtype, op, factor is not None)
            options = self._options(how)
            if factor is not None:
                self._check_open(plan.words, plan.operation)
                scale(data, data, dtype, factor)
            work = self._start(plan, None, data, options)
        if deadline_s is not None and work.marks is None:
            work.marks = np.ones((self.size, 1), np.uint8)
        return work

    def run_sum(self, address: int, nbytes: int, dtype: DataType, keep: object) -> str:
        """The sum of all ranks' memory, in place: all_reduce without keyword arguments, and wait.

        `keep`: what owns the memory. For a group that nobody adds for. Answers the algorithm. Raises what all_reduce
        and Work.wait raise.
        """
        plan = self._sums.get((nbytes, dtype))
        if plan is None:
            plan = self._plan(None, "", self._calls.all_reduce, nbytes, dtype, Reduction.SUM, False)
            kept.keep(self._sums, (nbytes, dtype), plan)
        self._run(plan, Span(address, nbytes), keep)
        return plan.algorithm

    def takes_coded(self, groups: int) -> bool:
        """Whether coded sums of so many groups are for a hub, if it has room. The same on all ranks."""
        hub = self.hub_group
        return hub is not None and hub.takes_coded(groups)

    @property
    def hub_group(self) -> HubGroup | None:
        """The group with a hub's cores that large reductions go over; None: there is no hub."""
        return next((adder for adder in self.adders if isinstance(adder, HubGroup)), None)

    # ---- reducing to one rank, or to each a part ----

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
        if algorithm is None and self.adders:
            addition = Addition(
                "reduce_scatter", sum(sizes), dtype, op, agree, factor, even=len(set(sizes)) == 1
            )
            if (work := self._add(addition, parts, [output], how)) is not None:
                return work
        plan = self._plan(
            algorithm, agree, calls.reduce_scatter, sizes, output[1], dtype, op, factor is not None
        )
        if factor is not None:
            self._check_open(plan.words, plan.operation)
            given, parts = parts, [temporary(size, how) for size in sizes]
            for scaled, part in zip(parts, given, strict=True):
                scale(scaled, part, dtype, factor)
        return self._start(plan, parts, [output], self._options(how))

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


def _check_deadline(deadline_s: object, dtype: DataType, op: Reduction) -> None:
    number("deadline_s", deadline_s, DEADLINE_S_MIN, DEADLINE_S_MAX, unit="seconds")
    if op is not Reduction.SUM and (op is not Reduction.AVG or dtype not in FLOATING):
        raise errors.ArgumentError(
            f"deadline_s is {deadline_s!r} with {op} of {dtype.name}; accepted: with Reduction.SUM, or AVG of floating"
            " point"
        )


def _check_factor(factor: object, op: Reduction) -> None:
    if factor is None:
        return
    if isinstance(factor, bool) or not isinstance(factor, Real):
        raise errors.ArgumentError(refusal("factor", factor, "a number, or None"))
    if op is not Reduction.SUM:
        raise errors.ArgumentError(
            f"factor is {factor!r} with {op}; accepted: a factor with Reduction.SUM only"
        )
