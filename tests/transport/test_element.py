"""Types of elements and reductions: their sizes, which go together, and that they are found by identity."""

from __future__ import annotations

import copy
import pickle

import pytest

from dlcp.errors import ArgumentError
from dlcp.transport.element import ELEMENT_BYTES, FLOATING, DataType, Reduction, check_type, native_op


def test_every_type_has_a_size() -> None:
    assert set(ELEMENT_BYTES) == set(DataType)
    assert {ELEMENT_BYTES[DataType.f64], ELEMENT_BYTES[DataType.bf16], ELEMENT_BYTES[DataType.boolean]} == {
        8,
        2,
        1,
    }
    assert {DataType.f32, DataType.f64, DataType.f16, DataType.bf16} == FLOATING


@pytest.mark.parametrize("member", [*DataType, *Reduction])
def test_members_are_found_again_after_a_copy(member: DataType | Reduction) -> None:
    assert {member: 1}[copy.deepcopy(member)] == 1
    if isinstance(member, Reduction):
        assert {member: 1}[pickle.loads(pickle.dumps(member))] == 1


@pytest.mark.parametrize("op", Reduction)
@pytest.mark.parametrize("dtype", DataType)
def test_bitwise_operations_are_not_of_floating_point(op: Reduction, dtype: DataType) -> None:
    if dtype in FLOATING and op in (Reduction.BAND, Reduction.BOR, Reduction.BXOR):
        with pytest.raises(ArgumentError, match="accepted: bitwise operations of integers and booleans"):
            native_op(op, dtype)
    else:
        assert native_op(op, dtype).name == ("sum" if op is Reduction.AVG else op.value)


def test_bytes_must_be_whole_elements() -> None:
    check_type(DataType.f32, 8, "data")
    with pytest.raises(
        ArgumentError, match="data has 6 bytes; accepted: a whole number of f32, 4 bytes each"
    ):
        check_type(DataType.f32, 6, "data")
