"""Reductions that lose something on the way to the rank that adds: blocks, within a budget, or bits, to a code.

Each part of the data has one rank that adds it, to which all others send their contribution directly, and whose result
reaches everybody as it is: so all ranks end with the same bits. What may be lost and what is coded: bounded.py,
coded.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

from dlcp import errors
from dlcp.checks import refusal
from dlcp.transport.bounded import LossRules
from dlcp.transport.call_options import CollectiveKeywords
from dlcp.transport.calls import Call, check_span, sizes_of
from dlcp.transport.coded import CodedRules, codec_traits
from dlcp.transport.element import DataType, Reduction
from dlcp.transport.membership import Membership
from dlcp.transport.plan import Plan
from dlcp.transport.schedule.adders import Addition
from dlcp.transport.schedule_memory import even_parts
from dlcp.transport.span import Span
from dlcp.transport.work import Work


class LossyReductions(Membership):
    """The bounded and the coded calls of a Communicator, which says what arguments and errors all calls have."""

    # ---- within a loss budget ----

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
        call = self._calls.bounded_all_reduce
        plan = self._plan(algorithm, agree, call, output[1], input[1], dtype, op, loss.rescale)
        inputs, outputs = (even_parts(each, self.size, dtype) for each in (input, output))
        return self._start_bounded(plan, inputs, outputs, loss, how)

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
        call = self._calls.bounded_reduce_scatter
        plan = self._plan(algorithm, agree, call, output[1], input[1], dtype, op, loss.rescale)
        step = output[1]
        parts = [Span(input[0] + i * step, step) for i in range(self.size)]
        return self._start_bounded(plan, parts, [output], loss, how)

    # ---- coded ----

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

        Or, if there is `coded.summed`, a hub may make it: then its code is there, and Work.algorithm is "hub". The rest
        as of coded_all_reduce.
        """
        if coded.values is None and coded.summed is None:
            raise errors.ArgumentError("values is None; accepted: memory for the sum")
        own = [inputs[self.rank]]
        return self._start_coded(self._calls.coded_reduce_scatter, own, inputs, coded, op, loss, agree, how)

    # ---- what their callers have to know ----

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

    # ---- starting ----

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
        if self.adders and loss is None:
            sizes = sizes_of(inputs)
            even = len(set(sizes)) == 1
            addition = Addition(call.__name__, sum(sizes), DataType.u8, op, agree, coded=coded, even=even)
            if (work := self._add(addition, inputs, list(outputs), how)) is not None:
                return work
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

    def _start_bounded(
        self,
        plan: Plan,
        inputs: list[Span],
        outputs: list[Span],
        loss: LossRules | None,
        how: CollectiveKeywords,
        coded: CodedRules | None = None,
    ) -> Work:
        if self.size == 1:
            return self._start(plan, inputs, outputs, self._options(how))
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


def _check_bounded(output: object, input_: object, loss: object) -> None:
    check_span("output", output)
    check_span("input", input_)
    if not isinstance(loss, LossRules):
        raise errors.ArgumentError(refusal("loss", loss, "LossRules"))
