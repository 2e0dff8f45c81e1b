"""The signature of a collective call: 28 bits by which ranks that call different things find out.

    27         16 15     12 11      8 7       4 3      0
    +------------+---------+---------+---------+--------+
    | hash, high | operat. | element | reduct. | hash,  |
    |            |         |  type   |         |  low   |
    +------------+---------+---------+---------+--------+

Operation, element type and reduction have bits of their own: calls that differ in one of them never have one signature.
The rest (root, algorithm, sizes, what else must agree) is hashed to 16 bits. All messages of the collective carry the
signature in their tags (native/collective/tag.hpp); an error can read the low 16 bits of another rank's.
"""

from __future__ import annotations

import zlib

from dlcp import _native
from dlcp.transport.element import DataType
from dlcp.transport.schedule.layout import CODED, REDUCING

OPERATIONS = (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "bounded_all_reduce",
    "bounded_reduce_scatter",
    "coded_all_reduce",
    "coded_reduce_scatter",
)
# By their number in a signature, from 1; 0: the operation only moves bytes.
_TYPES = tuple(DataType)
_CODECS = tuple(_native.Codec)  # in place of a type, of the operations in CODED
_REDUCTIONS = (*(op.name for op in _native.ReduceOp), "avg")


def signature_of(
    operation: str,
    terms: str,
    dtype: DataType,
    op: _native.ReduceOp,
    average_over: int,
    codec: _native.Codec | None = None,
) -> int:
    """The signature of a call. `terms`: everything but operation and arithmetic that all ranks must agree on.

    `codec`: of the operations in CODED.
    """
    element = reduction = 0
    if operation in REDUCING:
        element = (_TYPES.index(dtype) if codec is None else _CODECS.index(codec)) + 1
        reduction = _REDUCTIONS.index("avg" if average_over else op.name) + 1
    hashed = zlib.crc32(terms.encode()) & 0xFFFF
    exact = (OPERATIONS.index(operation) + 1) << 12 | element << 8 | reduction << 4
    return hashed >> 4 << 16 | exact | hashed & 0xF


def operation_of(signature: int) -> str | None:
    """The operation that a signature, or its low 16 bits, names; None: it names none."""
    number = signature >> 12 & 0xF
    return OPERATIONS[number - 1] if 1 <= number <= len(OPERATIONS) else None


def arithmetic_of(signature: int) -> str | None:
    """Element type and reduction, such as "f32, sum"; None: the operation only moves bytes, or there are no such."""
    element, reduction = signature >> 8 & 0xF, signature >> 4 & 0xF
    names = [one.name for one in (_CODECS if operation_of(signature) in CODED else _TYPES)]
    if not 1 <= element <= len(names) or not 1 <= reduction <= len(_REDUCTIONS):
        return None
    return f"{names[element - 1]}, {_REDUCTIONS[reduction - 1]}"
