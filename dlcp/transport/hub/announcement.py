"""What a worker tells its hub before each collective: 48 bytes, as a single message of the group.

number in the group   u64     every worker announces; the hub acts on the first, and the signature in
bytes of the buffer   u64     the contributions' tags finds out who called something else
signature             u32
average over          u32     0: a sum
type, reduction       u8 u8   as native code numbers them
kind                  u8      1: an all-reduce
traffic class         u8      of the replies
reserved              20      0
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from dlcp import _native
from dlcp.transport.call_options import TRAFFIC_CLASS_MAX

_LAYOUT = struct.Struct("<QQIIBBBB20x")
NBYTES = _LAYOUT.size
"""Of one announcement."""
ALL_REDUCE = 1
"""The kind."""
_TYPES = tuple(_native.DataType)
_REDUCTIONS = tuple(_native.ReduceOp)


class Announcement(NamedTuple):
    """One."""

    sequence: int
    nbytes: int
    signature: int
    average_over: int
    traffic_class: int
    type: _native.DataType
    op: _native.ReduceOp

    def pack(self) -> bytes:
        """As it travels."""
        return _LAYOUT.pack(
            self.sequence,
            self.nbytes,
            self.signature,
            self.average_over,
            _TYPES.index(self.type),
            _REDUCTIONS.index(self.op),
            ALL_REDUCE,
            self.traffic_class,
        )

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From a message. Raises ValueError: it is none that this version knows."""
        sequence, nbytes, signature, average_over, type_, op, kind, class_ = _LAYOUT.unpack(content)
        known = kind == ALL_REDUCE and type_ < len(_TYPES) and op < len(_REDUCTIONS)
        if not known or not nbytes or class_ > TRAFFIC_CLASS_MAX:
            raise ValueError(f"kind {kind}, type {type_}, reduction {op}, {nbytes} bytes, class {class_}")
        return cls(sequence, nbytes, signature, average_over, class_, _TYPES[type_], _REDUCTIONS[op])
