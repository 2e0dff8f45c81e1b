"""What a worker tells its hub before each collective: 96 bytes, as a single message of the group.

    number in the group   u64     every worker announces; the hub acts on the first, and the signature in
    bytes of the buffer   u64     the contributions' tags finds out who called something else
    signature             u32
    average over          u32     0: a sum
    type, reduction       u8 u8   as native code numbers them
    kind                  u8      see AnnouncementKind
    traffic class         u8      of the replies
    weights               u32     which weights of the group: load, step, fetch; what coded sums left: forget
    step                  u64     of the optimizer, the first being 1: step
    rule                  44      rule.py: load, step; coded.py: coded sums
    part                  u8      0: the weights; i: the i-th array of the optimizer's state: load, fetch
    reserved              3       0
    deadline              u32     of an all-reduce: microseconds after the first announcement, when it is made of the
                                  workers that have announced it; 0: of all

Numbers are little-endian.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple, Self

from dlcp import _native
from dlcp.transport.call_options import TRAFFIC_CLASS_MAX
from dlcp.transport.hub.buffer import Buffer
from dlcp.transport.hub.coded import CodedTerms
from dlcp.transport.hub.rule import LAYOUT as RULE
from dlcp.transport.hub.rule import OptimizerRule

_LAYOUT = struct.Struct(f"<QQIIBBBBIQ{RULE.size}sB3xI")
NBYTES = _LAYOUT.size
"""Of one announcement."""
_TYPES = tuple(_native.DataType)
_REDUCTIONS = tuple(_native.ReduceOp)
_NO_RULE = bytes(RULE.size)


class AnnouncementKind(IntEnum):
    """What is done with the buffer."""

    ALL_REDUCE = 1
    """Its reduction comes back."""
    LOAD = 2
    """Its reduction comes back and stays at the cores, as weights or state. The rule says how much state there is."""
    STEP = 3
    """Its sum is the gradient of weights that were loaded: an optimizer's step is made, and the weights come back."""
    FETCH = 4
    """What was loaded, or has become of it, comes back. The buffers are zeros."""
    CODED = 5
    """Its sum comes back, coded; bytes are those of the codes."""
    REDUCE_SCATTER = 6
    """Each worker gets its part of the reduction; bytes are those of all parts."""
    FORGET = 7
    """No collective: what coded sums left under a number is not needed any more. Number and bytes are 0."""
    CODED_REDUCE_SCATTER = 8
    """Each worker gets its part of the sum, coded; bytes are those of the codes of all parts."""


_CODED = (AnnouncementKind.CODED, AnnouncementKind.CODED_REDUCE_SCATTER)
_SCATTERED = (AnnouncementKind.REDUCE_SCATTER, AnnouncementKind.CODED_REDUCE_SCATTER)


class Announcement(NamedTuple):
    """One."""

    sequence: int
    nbytes: int
    signature: int
    average_over: int
    traffic_class: int
    type: _native.DataType
    op: _native.ReduceOp
    kind: AnnouncementKind = AnnouncementKind.ALL_REDUCE
    weights: int = 0
    step: int = 0
    rule: OptimizerRule | None = None
    part: int = 0
    coded: CodedTerms | None = None
    deadline_us: int = 0

    @classmethod
    def to_forget(cls, number: int) -> Self:
        """One that has the hub let go of what it keeps under a number."""
        type_, op = _native.DataType.f32, _native.ReduceOp.sum
        return cls(0, 0, 0, 0, TRAFFIC_CLASS_MAX, type_, op, AnnouncementKind.FORGET, number)

    @property
    def buffer(self) -> Buffer:
        """What is reduced."""
        codec = None if self.coded is None else self.coded.codec
        return Buffer(self.nbytes, self.type, codec, self.kind in _SCATTERED, self.deadline_us > 0)

    def pack(self) -> bytes:
        """As it travels."""
        return _LAYOUT.pack(
            self.sequence,
            self.nbytes,
            self.signature,
            self.average_over,
            _TYPES.index(self.type),
            _REDUCTIONS.index(self.op),
            self.kind,
            self.traffic_class,
            self.weights,
            self.step,
            _NO_RULE if (terms := self.coded or self.rule) is None else terms.pack(),
            self.part,
            self.deadline_us,
        )

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From a message. Raises ValueError: it is none that this version knows."""
        fields = _LAYOUT.unpack(content)
        (
            sequence,
            nbytes,
            signature,
            average_over,
            type_,
            op,
            kind,
            class_,
            weights,
            step,
            rule,
            part,
            deadline_us,
        ) = fields
        known = kind in tuple(AnnouncementKind) and type_ < len(_TYPES) and op < len(_REDUCTIONS)
        if not known or bool(nbytes) == (kind == AnnouncementKind.FORGET) or class_ > TRAFFIC_CLASS_MAX:
            raise ValueError(f"kind {kind}, type {type_}, reduction {op}, {nbytes} bytes, class {class_}")
        is_coded = kind in _CODED
        said = cls(
            sequence,
            nbytes,
            signature,
            average_over,
            class_,
            _TYPES[type_],
            _REDUCTIONS[op],
            AnnouncementKind(kind),
            weights,
            step,
            None if is_coded else OptimizerRule.read(rule),
            part,
            CodedTerms.read(rule) if is_coded else None,
            deadline_us,
        )
        if deadline_us and said.kind is not AnnouncementKind.ALL_REDUCE:
            raise ValueError(f"{said.kind.name} with a deadline")
        if said.kind in (AnnouncementKind.LOAD, AnnouncementKind.STEP) and said.rule is None:
            raise ValueError(f"{said.kind.name} without a rule")
        return said
