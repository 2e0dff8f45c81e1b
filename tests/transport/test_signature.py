"""Signatures: calls that must not be added to each other differ in bits of their own, the rest in a hash."""

from __future__ import annotations

import itertools

from dlcp import _native
from dlcp.transport.element import DataType
from dlcp.transport.signature import OPERATIONS, REDUCING, arithmetic_of, operation_of, signature_of

SUM = _native.ReduceOp.sum
BITS = 28


def test_signature_names_its_operation_in_its_low_bits() -> None:
    for operation in OPERATIONS:
        signature = signature_of(operation, "terms", DataType.f32, SUM, 0)
        assert 0 < signature < 1 << BITS
        assert operation_of(signature) == operation_of(signature & 0xFFFF) == operation
    assert operation_of(0) is None
    assert operation_of(0xF123) is None


def test_operations_types_and_reductions_differ_whatever_the_hash() -> None:
    """In the bits that are not hashed: so for all terms."""
    exact = {
        signature_of(operation, "", dtype, op, average_over) & 0xFFF0
        for operation, dtype, op in itertools.product(sorted(REDUCING), DataType, _native.ReduceOp)
        for average_over in ((0, 2) if op is SUM else (0,))
    }
    assert len(exact) == len(REDUCING) * len(DataType) * (len(_native.ReduceOp) + 1)


def test_arithmetic_can_be_read_from_a_signature() -> None:
    assert arithmetic_of(signature_of("reduce", "", DataType.bf16, _native.ReduceOp.min, 0)) == "bf16, min"
    assert arithmetic_of(signature_of("all_reduce", "", DataType.i64, SUM, 4)) == "i64, avg"
    assert arithmetic_of(signature_of("broadcast", "", DataType.u8, SUM, 0)) is None
    assert arithmetic_of(0xFFFF) is None


def test_terms_differ_by_a_hash_of_sixteen_bits() -> None:
    """The same on every rank, whatever its interpreter's hash seed: a figure, so that it cannot change unseen."""
    assert signature_of("barrier", "", DataType.u8, SUM, 0) == 9 << 12
    assert signature_of("all_reduce", "f32 4096 sum", DataType.f32, SUM, 0) == 0xF8C111B
    hashes = {signature_of("all_reduce", str(terms), DataType.f32, SUM, 0) for terms in range(1000)}
    assert len(hashes) > 980
