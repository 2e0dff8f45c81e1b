"""Buffers that travel together: the chosen chunks of one or several of them, packed, in one sum.

GradientFlow's lazy all-reduce (arXiv 1902.06855): where small buffers are ready one after the other, their sums wait
until enough bytes are together. A batch has three collectives whatever is in it: the coded chunks, the importance of
all chunks for the next step, and what travels exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.exact_part import start_sum
from dlcp.torch.gradient.buffer.gradient_buffer import GradientBuffer
from dlcp.torch.gradient.layout import Range
from dlcp.torch.tensors import DATA_TYPES, span
from dlcp.transport.coded import GROUP_VALUES, CodecTraits, CodedRules, group_parts
from dlcp.transport.communicator import DataType, Reduction
from dlcp.transport.work import ManyWorks, Work


class BatchMember(Protocol):
    """What a batch wants of a buffer."""

    @property
    def coded(self) -> Tensor:
        """uint8: the coded chunks."""

    @property
    def exact(self) -> Tensor:
        """Of the buffer's type: what travels exactly. Its sum is put here."""

    @property
    def importance(self) -> Tensor:
        """uint8: of all chunks, and what follows. The largest of all ranks is put here."""


class FlowBatch:
    """Members are added until it starts. `account`: of the buffers."""

    def __init__(self, account: Account, codec: CodecTraits) -> None:
        self._account = account
        self._codec = codec
        self._lock = threading.RLock()
        self._members: list[BatchMember] = []
        self._begins: list[int] = []
        self._groups = 0
        self._works: list[Work] | None = None
        self._error: Exception | None = None
        self.coded_bytes = 0
        """Bytes of coded chunks so far."""
        self.own: Range = (0, 0)
        """First group and end of what this rank adds."""
        self.left = torch.empty(0)
        """float32: what the code of this rank's sum left, group by group; there when it is over."""
        self._coded = self._summed = torch.empty(0, dtype=torch.uint8)
        self._exact = self._importance = torch.empty(0)

    def add(self, member: BatchMember) -> int:
        """One more; its number in the batch."""
        self._begins.append(self._groups)
        self._members.append(member)
        self._groups += member.coded.numel() // self._codec.group_bytes
        self.coded_bytes += member.coded.numel()
        return len(self._members) - 1

    def group_of(self, number: int) -> int:
        """The first group of a member."""
        return self._begins[number]

    def start(self, buffer: GradientBuffer) -> Sequence[Work]:
        """Starts the collectives, unless they have been; `buffer`: one of the members'."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._works is None:
                try:
                    self._works = self._start(buffer)
                except Exception as error:
                    self._error = error  # the other members' too
                    raise
            return self._works

    def start_as_one(self, buffer: GradientBuffer) -> Work:
        """As start(): one work of all."""
        works = self.start(buffer)
        return works[0] if len(works) == 1 else ManyWorks(works)

    @property
    def works(self) -> Sequence[Work]:
        """Its collectives; once it has started."""
        return self._works or ()

    def summed(self, number: int) -> Tensor:
        """uint8: the coded sum of a member's chunks, once all is over."""
        unit, begin = self._codec.group_bytes, self._begins[number]
        return self._summed[begin * unit :][: self._members[number].coded.numel()]

    def hand_back(self, number: int) -> None:
        """Puts what travelled exactly and the importance where a member had it, once all is over."""
        for whole, parts in (
            (self._exact, [member.exact for member in self._members]),
            (self._importance, [member.importance for member in self._members]),
        ):
            begin = sum(part.numel() for part in parts[:number])
            parts[number].copy_(whole[begin : begin + parts[number].numel()])

    def _start(self, buffer: GradientBuffer) -> list[Work]:
        members, works = self._members, []
        self._exact = torch.cat([member.exact for member in members])
        self._importance = torch.cat([member.importance for member in members])
        if self._groups:
            self._coded = torch.cat([member.coded for member in members])
            works.append(self._start_coded(buffer))
            with self._account.starting(buffer, "all_reduce", self, place=1) as (communicator, how):
                works.append(
                    communicator.all_reduce(span(self._importance), DataType.u8, Reduction.MAX, **how)
                )
        if len(self._exact) or not works:
            exact, dtype = span(self._exact), DATA_TYPES[self._exact.dtype]
            works.append(start_sum(self._account, buffer, exact, exact, dtype, self, place=2))
        return works

    def _start_coded(self, buffer: GradientBuffer) -> Work:
        unit = self._codec.group_bytes
        parts = group_parts(self._groups, buffer.group.size())
        self.own = parts[buffer.rank]
        self.left = torch.zeros((self.own[1] - self.own[0]) * GROUP_VALUES)
        self._summed = torch.empty_like(self._coded)
        inputs, outputs = (
            [span(memory).part(begin * unit, (end - begin) * unit) for begin, end in parts]
            for memory in (self._coded, self._summed)
        )
        rules = CodedRules(self._codec.name, span(self.left), span(self.left))
        with self._account.starting(buffer, "coded_all_reduce", self) as (communicator, how):
            return communicator.coded_all_reduce(outputs, inputs, rules, buffer.op, **how)
