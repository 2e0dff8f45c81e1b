"""What collectives compute with: types of elements, and how contributions become one result."""

from __future__ import annotations

from enum import Enum

from dlcp import _native
from dlcp.errors import ArgumentError

DataType = _native.DataType
"""Types of elements, by name; native/collective/element.hpp has the table."""

# Plans are looked up by type and reduction in each call. Members are single objects, so their identity is enough; an
# Enum's own hash is computed in Python, in a microsecond.
DataType.__hash__ = object.__hash__  # type: ignore[method-assign]

ELEMENT_BYTES = {each.type: each.nbytes for each in _native.DATA_TYPES}
FLOATING = frozenset(each.type for each in _native.DATA_TYPES if each.floating)


class Reduction(Enum):
    """How the ranks' contributions become one; the order of summation is the schedule's, never that of arrival.

    Floating point of 16 bits is computed in f32 and rounded once per contribution. Integers wrap; their average is cut
    off towards zero. Of booleans, sum and max are or, product and min are and. A NaN makes min and max NaN.
    """

    SUM = "sum"
    AVG = "avg"
    """The sum divided by the world size."""
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    """Bitwise and; not of floating point, as BOR and BXOR."""
    BOR = "bor"
    BXOR = "bxor"

    __hash__ = object.__hash__


_NATIVE_OP: dict[Reduction, _native.ReduceOp] = {
    each: getattr(_native.ReduceOp, "sum" if each is Reduction.AVG else each.value) for each in Reduction
}
_BITWISE = frozenset({Reduction.BAND, Reduction.BOR, Reduction.BXOR})


def native_op(op: Reduction, dtype: DataType) -> _native.ReduceOp:
    """What combines two contributions. Raises ArgumentError: no Reduction, or none for this type."""
    if not isinstance(op, Reduction):
        raise ArgumentError(
            f"op is {op!r}; accepted: {', '.join(f'Reduction.{each.name}' for each in Reduction)}"
        )
    if op in _BITWISE and dtype in FLOATING:
        raise ArgumentError(
            f"op is Reduction.{op.name} of {dtype.name}; accepted: bitwise operations of integers and booleans"
        )
    return _NATIVE_OP[op]


def check_type(dtype: object, nbytes: int, name: str) -> None:
    """Raises ArgumentError: no DataType, or bytes that are no whole number of elements."""
    if not isinstance(dtype, DataType):
        raise ArgumentError(
            f"dtype is {dtype!r}; accepted: DataType.{', '.join(each.name for each in DataType)}"
        )
    if nbytes % ELEMENT_BYTES[dtype]:
        raise ArgumentError(
            f"{name} has {nbytes} bytes; accepted: a whole number of {dtype.name}, {ELEMENT_BYTES[dtype]} bytes each"
        )
