"""The recipe "low_bit": few bits for every value, on both ways, and what the bits leave is sent a step later.

    v = gradient + kept -> code -> to the owner; kept = v - code
    owner: sum of codes / ranks + its kept -> code -> to all; its kept = what that leaves
    all, the owner too, decode the same code: replicas are bit-identical

In the first `warmup_steps` values have 8 bits. There 4 bits, with what they leave or without, can lead an optimizer
that divides by running means, such as Adam, to a worse place. It is slow to come back from there (bench time_to_loss).

Memory: feedback.py, on both sides. Selector: every value; blocks of contributions may be lost within `loss_budget`, the
least important first, and go back into the sender's memory. Codec: native/collective/codec.hpp, 4 bits by default.
Exchange: coded all-reduce, or reduce-scatter, whose result is not coded. Without a budget it goes over a hub that has
room (hub_memory.py). The hub's cores are then the owners, and code the result of a reduce-scatter too, whose parts
must be equal. Small parameters, those of one dimension, and types that are not coded travel exactly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dlcp.errors import ArgumentError
from dlcp.kept import keep
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.exact_part import ExactPart, account_exact, block_bytes, is_exact
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.buffer.pending_buffer import PendingBuffer, PreparedBuffer
from dlcp.torch.gradient.coding.coders import Coder, coder_of
from dlcp.torch.gradient.coding.hub_memory import HubMemory, Sums
from dlcp.torch.gradient.coding.owner_shares import OwnerShares, Shares
from dlcp.torch.gradient.coding.plan import CodePlan, plan_of
from dlcp.torch.gradient.importance.by_scales import critical_bytes_of, importance_by_scales
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.loss.budget import StepBudget
from dlcp.torch.gradient.residual import saved
from dlcp.torch.gradient.residual.feedback import FROM_OWNER, FROM_SENDER, FeedbackMemory, KeptStream
from dlcp.torch.gradient.residual.saved import Rename
from dlcp.torch.tensors import CODED_DTYPES, span
from dlcp.transport.bounded import CollectiveOutcome, LossRules
from dlcp.transport.coded import (
    GROUP_VALUES,
    CodecTraits,
    CodedRules,
    codec_traits,
)
from dlcp.transport.hub.coded import KeptAtHub
from dlcp.transport.hub.group import HubGroup
from dlcp.transport.span import Span
from dlcp.transport.work import Work

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual.report import ResidualReport
    from dlcp.transport.communicator import Communicator

WARMUP_CODEC = "int8"
"""In the first steps, of codecs with fewer bits."""
WARMUP_STEPS = 20
"""If no other number is given."""
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedBuffer(PreparedBuffer):
    """A prepared buffer with its codes. `memory` is the coded contribution."""

    codec: CodecTraits
    coder: Coder
    plan: CodePlan
    summed: torch.Tensor
    """uint8: the coded result, of a reduce-scatter this rank's part; nothing where that is not coded."""
    values: torch.Tensor | None
    """float32: this rank's part of the sum, group by group, of a reduce-scatter that ranks make; else None."""
    exact: ExactPart
    sender: KeptStream
    owner: KeptStream | None
    """None: ranks do not code the sum of a reduce-scatter, and a hub keeps its own."""
    at_hub: tuple[KeptAtHub, float] | None
    """What a hub keeps in place of an owner, and its factor; None: ranks are the owners."""
    loss: LossRules | None
    """What of the contribution may be lost; None: nothing."""
    budget_bytes: int
    critical_bytes: int


class CodedPipeline:
    """Buffers of one state in few bits; see buffer/pipeline.py. `codec`: None: the options'."""

    sequences = 2
    wants_norm = False

    def __init__(self, account: Account, codec: str | None = None) -> None:
        self._account = account
        options = self._options = account.options
        self._codec = self._warmup_codec = codec_traits(codec or options.codec or "int4")
        if self._codec.bits < codec_traits(WARMUP_CODEC).bits:
            self._warmup_codec = codec_traits(WARMUP_CODEC)
        self._warmup_steps = WARMUP_STEPS if options.warmup_steps is None else options.warmup_steps
        if not self._codec.is_scaled and options.may_lose:
            raise ArgumentError(
                f"loss_budget is {options.loss_budget} with codec {self._codec.name}, whose groups have no scale that "
                "tells their importance; accepted: 0, or a codec of 8 bits or fewer"
            )
        self.residual = FeedbackMemory()
        """What codes left, which waits for the next step."""
        self._hub = HubMemory()
        self._budget = StepBudget(loss_cap=options.loss_cap, whole_step=options.budget_scope == "step")
        self._owners = OwnerShares() if options.owners == "by_link" else None
        # With each, the parameters in this rank's part.
        self._plans: dict[tuple[Hashable, Shares | None], tuple[CodePlan, Layout]] = {}

    # --- a step ---------------------------------------------------------------------------------------------

    def begin_step(self, loss_scale: float) -> None:
        self.residual.begin_step(loss_scale)

    def cancel(self, key: Hashable) -> None:
        self._budget.settle(key, 0.0)

    def end_step(self, *, applied: bool, gradient_norm: float | None) -> ResidualReport | None:
        self._budget.end_step()
        self._hub.end_step(applied=applied)
        return self.residual.end_step(applied=applied)

    # --- a buffer -------------------------------------------------------------------------------------------

    def _codec_of(self, step: int) -> CodecTraits:
        return self._warmup_codec if step < self._warmup_steps else self._codec

    def start(self, buffer: GradientBuffer) -> PendingBuffer:
        # Of a reduce-scatter each rank has asked for its own part.
        shares = None if self._owners is None or buffer.scattered else self._owners.of_step(buffer)
        with torch.no_grad():
            prepared = self._prepare(buffer, shares)
        works = []
        # First what has memory of its own: if the other cannot start, nothing that is used again is under way.
        if len(prepared.exact) or not prepared.plan.groups:
            works.append(prepared.exact.start(self._account, buffer, prepared, place=1))
        if prepared.plan.groups:
            works.insert(0, self._start_coded(buffer, prepared))
        return PendingBuffer(prepared, works, lambda: self._finish(buffer, prepared, works))

    def _prepare(self, buffer: GradientBuffer, shares: Shares | None) -> CodedBuffer:
        account, codec, rank = self._account, self._codec_of(buffer.step), buffer.rank
        plan, own_stream = self._plan(buffer, shares)
        coder = coder_of(buffer)
        pinned = coder.device.type == "cuda"
        with account.lock:
            coded = account.buffers.take(plan.groups * codec.group_bytes, torch.uint8, _CPU, pinned=pinned)
            unused = buffer.call.unused
            at_hub = self._at_hub(buffer, plan, codec)
            sender = self.residual.open(
                FROM_SENDER, buffer.key, plan.stream, device=coder.device, unused=unused
            )
            owner = values = None
            begin, end = plan.parts[rank]
            if buffer.scattered and at_hub is None:
                values = account.buffers.take(
                    (end - begin) * GROUP_VALUES, torch.float32, _CPU, pinned=pinned
                )
                summed = torch.empty(0, dtype=torch.uint8)
            else:
                groups = end - begin if buffer.scattered else plan.groups
                summed = account.buffers.take(groups * codec.group_bytes, torch.uint8, _CPU, pinned=pinned)
                if at_hub is None:
                    unit = buffer.group.size() if buffer.call.average else 1
                    owner = self.residual.open(
                        FROM_OWNER, _owner_key(buffer), own_stream, unit, unused=unused
                    )
            opened = coder.output(account, buffer)
        exact = ExactPart(coder.memory, plan.exact, plan.exact_counts, coder.crossing)
        if plan.groups:
            # Without the lock: it reads everything, and other buffers are settled meanwhile.
            coder.encode(codec, plan, sender, coded)
        coder.ready()
        loss, budget_bytes, critical_bytes = self._loss(buffer, codec, plan, coded)
        if at_hub is not None:
            critical_bytes = coded.numel()
        return CodedBuffer.of(
            buffer,
            coded,
            opened,
            codec=codec,
            coder=coder,
            plan=plan,
            summed=summed,
            values=values,
            exact=exact,
            sender=sender,
            owner=owner,
            at_hub=at_hub,
            loss=loss,
            budget_bytes=budget_bytes,
            critical_bytes=critical_bytes,
        )

    def is_for_hub(self, buffer: GradientBuffer) -> bool:
        """Whether a hub would make the coded sum of a buffer all of whose values are coded. The same on all ranks."""
        groups = buffer.values.numel() // GROUP_VALUES
        return not self._options.may_lose and _numbering(buffer).takes_coded(groups)

    def _at_hub(
        self, buffer: GradientBuffer, plan: CodePlan, codec: CodecTraits
    ) -> tuple[KeptAtHub, float] | None:
        """What a hub keeps for the buffer, and its factor; None: ranks make the sum. The same on all ranks."""
        if (hub := self._hub_of(buffer, plan)) is None:
            return None
        sums, key = Sums(codec.name, plan.groups, buffer.scattered), _owner_key(buffer)
        scale, number = self.residual.scale, buffer.call.sequence
        found = self._hub.open(key, plan.stream, hub, sums, scale, number)
        if found is not None:
            self.residual.close_owner(key)
        return found

    def _hub_of(self, buffer: GradientBuffer, plan: CodePlan) -> HubGroup | None:
        """The group with a hub that the buffer's coded sum is for; None: the ranks make it. The same on all ranks."""
        communicator = _numbering(buffer)
        takes = not self._options.may_lose and communicator.takes_coded(plan.groups)
        if buffer.scattered:  # it gives all ranks as much
            takes = takes and len({end - begin for begin, end in plan.parts}) == 1
        return communicator.hub_group if takes else None

    def _plan(self, buffer: GradientBuffer, shares: Shares | None) -> tuple[CodePlan, Layout]:
        known = self._plans.get((buffer.key, shares))
        if known is None:
            coded = buffer.values.dtype in CODED_DTYPES and buffer.group.size() > 1
            plan = plan_of(
                buffer.layout,
                lambda segment: coded and not is_exact(segment, self._account),
                buffer.parts,
                scattered=buffer.scattered,
                shares=shares,
            )
            known = keep(self._plans, (buffer.key, shares), (plan, plan.part_stream(buffer.rank)))
        return known

    def _loss(
        self, buffer: GradientBuffer, codec: CodecTraits, plan: CodePlan, coded: torch.Tensor
    ) -> tuple[LossRules | None, int, int]:
        """What a contribution may lose, how many bytes that is, and how many are critical."""
        unit, own = codec.group_bytes, plan.parts[buffer.rank]
        sent_bytes = (plan.groups - own[1] + own[0]) * unit
        if not self._options.may_lose or not plan.groups:
            return None, 0, sent_bytes
        allowed = sum(one.count * self._options.budget_of(one.name) for one in plan.stream.segments)
        with self._account.lock:
            ratio = self._budget.give(buffer.key, sent_bytes, allowed / max(1, plan.stream.numel))
        blocks = [
            0 if rank == buffer.rank else buffer.communicator.block_bytes(rank, unit)
            for rank in range(len(plan.parts))
        ]
        importance = importance_by_scales(coded, codec, plan.parts, blocks, self._options.critical_share)
        critical_bytes = sum(
            critical_bytes_of(marks, block, (end - begin) * unit)
            for marks, block, (begin, end) in zip(importance, blocks, plan.parts, strict=True)
            if marks is not None
        )
        return LossRules(ratio, importance), int(ratio * sent_bytes), critical_bytes

    # --- its collectives ------------------------------------------------------------------------------------

    def _start_coded(self, buffer: GradientBuffer, prepared: CodedBuffer) -> Work:
        name = "coded_reduce_scatter" if buffer.scattered else "coded_all_reduce"
        inputs, codec = _spans(prepared, prepared.memory), prepared.codec.name
        with self._account.starting(buffer, name, prepared) as (communicator, how):
            if prepared.values is not None:
                rules = CodedRules(codec, values=span(prepared.values))
                return communicator.coded_reduce_scatter(inputs, rules, buffer.op, loss=prepared.loss, **how)
            if prepared.at_hub is not None:
                kept, factor = prepared.at_hub
                if buffer.scattered:
                    rules = CodedRules(codec, kept=kept, factor=factor, summed=span(prepared.summed))
                    return communicator.coded_reduce_scatter(inputs, rules, buffer.op, **how)
                rules = CodedRules(codec, kept=kept, factor=factor)
            else:
                owner = prepared.owner
                assert owner is not None
                rules = CodedRules(codec, span(owner.before), span(owner.after), owner.factor)
            outputs = _spans(prepared, prepared.summed)
            return communicator.coded_all_reduce(outputs, inputs, rules, buffer.op, loss=prepared.loss, **how)

    # --- its end --------------------------------------------------------------------------------------------

    def _finish(self, buffer: GradientBuffer, prepared: CodedBuffer, works: list[Work]) -> float | None:
        """All that comes after the collectives, before the result goes where the caller wants it."""
        with torch.no_grad(), prepared.coder.returning():
            if prepared.plan.groups:
                outcome = works[0].outcome
                self._keep_lost(prepared, outcome)
                self._decode(buffer, prepared)
                with self._account.lock:
                    self._budget.settle(prepared.key, outcome.abandoned_bytes)
                self._enter(buffer, prepared, outcome)
            prepared.exact.put(prepared.output, buffer)
            if prepared.plan.groups < 1 or len(works) > 1:
                account_exact(self._account, buffer, prepared.name, works[-1:])
            return self._account.note_result(prepared, buffer.group)

    def _keep_lost(self, prepared: CodedBuffer, outcome: CollectiveOutcome) -> None:
        """What was abandoned of the contribution: its code is added to what the code left, and is the value again."""
        codec, unit = prepared.codec, prepared.codec.group_bytes
        ranges = [
            (begin // unit, end // unit) for abandoned in outcome.sent for begin, end in abandoned.ranges()
        ]
        if ranges:
            prepared.coder.put_back(codec, prepared.memory, ranges, prepared.sender)

    def _decode(self, buffer: GradientBuffer, prepared: CodedBuffer) -> None:
        """The result's coded values."""
        coder, runs, origin = prepared.coder, prepared.plan.runs, 0
        if buffer.scattered:
            runs, origin = prepared.plan.part_runs(buffer.rank), buffer.own[0]
        if prepared.values is not None:
            coder.place(runs.tolist(), origin, prepared.values, prepared.output)
        else:
            coder.decode(prepared.codec, runs - np.array([origin, 0, 0]), prepared.summed, prepared.output)

    def _enter(self, buffer: GradientBuffer, prepared: CodedBuffer, outcome: CollectiveOutcome) -> None:
        unit, own = prepared.codec.group_bytes, prepared.plan.parts[buffer.rank]
        added_here = 0 if prepared.at_hub is not None else own[1] - own[0]
        contributed = (prepared.plan.groups - added_here) * unit
        self._account.ledger.enter(
            prepared.name,
            outcome,
            critical_bytes=prepared.critical_bytes,
            budget_bytes=prepared.budget_bytes,
            block_bytes=block_bytes(buffer, unit),
            contributed_bytes=contributed,
        )

    # --- what outlives the run ------------------------------------------------------------------------------

    def reset(self, names: Iterable[str] | None) -> None:
        chosen = None if names is None else frozenset(names)
        self.residual.reset(chosen)
        self._hub.reset(chosen)

    def state_dict(self) -> dict[str, Any]:
        return {"codec": self._codec.name, "residual": self.residual.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["codec"] != self._codec.name:
            raise ArgumentError(
                f"the state is of codec {state['codec']!r}; accepted: {self._codec.name!r}, this one's"
            )
        self.residual.load_state_dict(state["residual"])
        self._hub.reset(None)

    def names_in(self, state: Mapping[str, Any]) -> Iterable[str]:
        state["codec"]
        return {
            name: None
            for side in (FROM_SENDER, FROM_OWNER)
            for batch in state["residual"][side]["batches"]
            for name in batch["names"]
        }


def _spans(prepared: CodedBuffer, memory: torch.Tensor) -> list[Span]:
    """Each rank's part of coded memory."""
    unit, whole = prepared.codec.group_bytes, span(memory)
    return [whole.part(begin * unit, (end - begin) * unit) for begin, end in prepared.plan.parts]


def _owner_key(buffer: GradientBuffer) -> Hashable:
    """Of what the sums' owner keeps: sums and means are in different units."""
    return buffer.key, buffer.call.average


def _numbering(buffer: GradientBuffer) -> Communicator:
    """The communicator that the buffer's collectives go on: in a future's callback another one, which has no hub."""
    if buffer.call.sequence is not None:
        return buffer.communicator
    return buffer.group.numbering(buffer.communicator)


def reshard_coded(
    states: Sequence[Mapping[str, Any]], size: int, average: bool, rename: Rename
) -> list[dict[str, Any]]:
    """States for another number of ranks: see residual.saved.Reshard.

    What owners kept is part of the sum too: senders take it over.
    """

    def of(side: str) -> list[dict[str, Any]]:
        kept = [state["residual"][side] for state in states]
        return saved.reshard(kept, size, average=average, rename=rename)

    made = []
    for rank, (sender, owner) in enumerate(zip(of(FROM_SENDER), of(FROM_OWNER), strict=True)):
        sender["batches"] += owner["batches"]
        residual = {FROM_SENDER: sender, FROM_OWNER: owner | {"batches": []}}
        made.append(dict(states[rank % len(states)]) | {"residual": residual})
    return made
