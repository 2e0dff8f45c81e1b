"""Reduction kernels against a slow, obvious oracle, per type and operation, bit by bit.

The oracle is NumPy on whole arrays, torch for rounding to 16 bits, and Python's own integers. Each of the kernels'
variants that this machine can run is held to it. Examples worked out by hand hold both, so that a wrong oracle shows
too. That variants agree at any count and alignment is in tests/native/collective/test_reduce.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pytest
import torch

native = pytest.importorskip("dlcp._native", reason="the extension module is not built")

Bits = npt.NDArray[np.generic]  # of elements: unsigned integers as wide as they are

FLOATS = ["f32", "f64", "f16", "bf16"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8"]
TYPES = [*FLOATS, *INTEGERS, "boolean"]
ARITHMETIC = ["sum", "product", "min", "max"]
BITWISE = ["band", "bor", "bxor"]
DEFINED = [(t, op) for t in TYPES for op in [*ARITHMETIC, *([] if t in FLOATS else BITWISE)]]

BYTES = {
    "f32": 4,
    "f64": 8,
    "f16": 2,
    "bf16": 2,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "u8": 1,
    "boolean": 1,
}
UNSIGNED = {name: np.dtype(f"u{size}") for name, size in BYTES.items()}
NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}
NUMPY |= {"u8": np.uint8, "boolean": np.uint8}
NAN = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000, "f16": 0x7E00, "bf16": 0x7FC0}
SIGN = {name: 1 << (8 * size - 1) for name, size in BYTES.items()}


class Implementation(Protocol):
    """Arrays in, a new array out; all of them hold bits of elements."""

    def reduce(self, type: str, op: str, a: Bits, b: Bits) -> Bits: ...  # noqa: A002
    def average(self, type: str, data: Bits, divisor: int) -> Bits: ...  # noqa: A002
    def multiply(self, type: str, data: Bits, factor: float) -> Bits: ...  # noqa: A002


class Kernels:
    """One variant of the kernels."""

    def __init__(self, variant: str) -> None:
        self.variant = variant

    def reduce(self, type: str, op: str, a: Bits, b: Bits) -> Bits:  # noqa: A002
        out = np.empty_like(a)
        native.reduce(
            native.DataType[type],
            native.ReduceOp[op],
            *(array.ctypes.data for array in (out, a, b)),
            a.size,
            variant=self.variant,
        )
        return out

    def average(self, type: str, data: Bits, divisor: int) -> Bits:  # noqa: A002
        out = data.copy()
        native.average(native.DataType[type], out.ctypes.data, out.size, divisor, variant=self.variant)
        return out

    def multiply(self, type: str, data: Bits, factor: float) -> Bits:  # noqa: A002
        out = np.empty_like(data)
        native.multiply(
            native.DataType[type], out.ctypes.data, data.ctypes.data, data.size, factor, variant=self.variant
        )
        return out


def widened(type: str, bits: Bits) -> npt.NDArray[np.floating]:  # noqa: A002
    """What floating-point elements are computed in: f64 as it is, everything else as f32."""
    if type in ("f32", "f64"):
        return bits.view(NUMPY[type])
    if type == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(type: str, values: npt.NDArray[np.floating]) -> Bits:  # noqa: A002
    """Elements of floating-point results, with the one NaN that there is."""
    if type in ("f32", "f64"):
        bits = values.view(UNSIGNED[type]).copy()
    else:
        half = torch.float16 if type == "f16" else torch.bfloat16
        bits = torch.from_numpy(values.copy()).to(half).view(torch.int16).numpy().view(np.uint16).copy()
    bits[np.isnan(values)] = NAN[type]
    return bits


class Oracle:
    """The specification."""

    def reduce(self, type: str, op: str, a: Bits, b: Bits) -> Bits:  # noqa: A002
        if type == "boolean":
            either: dict[str, Callable[..., Bits]] = {
                **dict.fromkeys(("sum", "max", "bor"), np.logical_or),
                **dict.fromkeys(("product", "min", "band"), np.logical_and),
                "bxor": np.logical_xor,
            }
            return either[op](a, b).astype(np.uint8)
        function = {
            "sum": np.add,
            "product": np.multiply,
            "min": np.minimum,
            "max": np.maximum,
            "band": np.bitwise_and,
            "bor": np.bitwise_or,
            "bxor": np.bitwise_xor,
        }[op]
        if type in INTEGERS:
            return function(a.view(NUMPY[type]), b.view(NUMPY[type])).view(UNSIGNED[type])
        x, y = widened(type, a), widened(type, b)
        with np.errstate(all="ignore"):
            out = rounded(type, function(x, y))
        if op in ("min", "max"):
            zeros = (x == 0) & (y == 0)
            out[zeros] = (a | b if op == "min" else a & b)[zeros]
        return out

    def average(self, type: str, data: Bits, divisor: int) -> Bits:  # noqa: A002
        if type == "boolean":
            return data.copy()
        if type in FLOATS:
            wide = widened(type, data)
            with np.errstate(all="ignore"):
                return rounded(type, wide / wide.dtype.type(divisor))
        values = [abs(x) // divisor * (1 if x >= 0 else -1) for x in data.view(NUMPY[type]).tolist()]
        return np.array(values, NUMPY[type]).view(UNSIGNED[type])

    def multiply(self, type: str, data: Bits, factor: float) -> Bits:  # noqa: A002
        if type == "boolean":
            return data.copy()
        if type in FLOATS:
            wide = widened(type, data)
            with np.errstate(all="ignore"):
                return rounded(type, wide * wide.dtype.type(factor))
        limits = np.iinfo(NUMPY[type])

        def one(x: int) -> int:
            product = float(x) * factor
            if math.isnan(product):
                return 0
            if math.isinf(product):
                return int(limits.max if product > 0 else limits.min)
            return min(max(int(product), int(limits.min)), int(limits.max))

        return np.array([one(x) for x in data.view(NUMPY[type]).tolist()], NUMPY[type]).view(UNSIGNED[type])


IMPLEMENTATIONS: dict[str, Implementation] = {
    "oracle": Oracle(),
    **{variant: Kernels(variant) for variant in native.reduce_variants()},
}

# Zero, one, the least and largest denormal, the least normal, one, the largest, infinity, NaNs quiet and signalling.
SPECIAL = {
    "f32": [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FC12345],
    "f64": [
        0,
        1,
        (1 << 52) - 1,
        1 << 52,
        0x3FF << 52,
        (0x7FF << 52) - 1,
        0x7FF << 52,
        (0x7FF << 52) + 1,
        0x7FF8 << 48,
    ],
    "f16": [0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7E55, 0x1400, 0x6800],
    "bf16": [0, 1, 0x7F, 0x80, 0x3F80, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0, 0x7FD5, 0x3B80, 0x4780],
}


def special(type: str) -> Bits:  # noqa: A002
    """The elements that arithmetic treats specially, of both signs; of integers the ends of the range."""
    words = SPECIAL.get(type, [0, 1, 2, SIGN[type] - 1])
    return np.array([word | sign for sign in (0, SIGN[type]) for word in words], UNSIGNED[type])


def operands(type: str, seed: int) -> tuple[Bits, Bits]:  # noqa: A002
    """Every pair of special elements; special and random ones; and 40,000 pairs of random bits."""
    random = np.random.default_rng(seed)
    specials = special(type)
    a, b = (grid.ravel() for grid in np.meshgrid(specials, specials))

    def noise(count: int) -> Bits:
        return np.frombuffer(random.bytes(count * BYTES[type]), UNSIGNED[type])

    many = np.resize(specials, 4000)
    return np.concatenate([a, many, noise(44_000)]), np.concatenate([b, noise(4000), many, noise(40_000)])


def bits(type: str, *values: float) -> Bits:  # noqa: A002
    """Elements of these values, which the type holds exactly."""
    if type in FLOATS:
        wide = np.array(values, np.float64 if type == "f64" else np.float32)
        return rounded(type, wide)
    return np.array(values, NUMPY[type]).view(UNSIGNED[type])


def check_equal(found: Bits, expected: Bits, *inputs: Bits, by: float | None = None) -> None:
    """`by`: the divisor or factor."""
    assert found.dtype == expected.dtype
    wrong = np.flatnonzero(found != expected)
    if wrong.size:
        i = wrong[0]
        given = ", ".join(f"{array[i]:#x}" for array in inputs)
        given += f" by {by}" if by is not None else ""
        pytest.fail(f"{wrong.size} wrong; element {i} of {given} is {found[i]:#x}, expected {expected[i]:#x}")


@pytest.fixture(params=native.reduce_variants())
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return Kernels(request.param)


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    return IMPLEMENTATIONS[request.param]


@pytest.mark.parametrize(("type", "op"), DEFINED, ids=lambda word: word)
def test_reduce_of_any_bits(kernels: Kernels, type: str, op: str) -> None:  # noqa: A002
    a, b = operands(type, 1)
    check_equal(kernels.reduce(type, op, a, b), Oracle().reduce(type, op, a, b), a, b)


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_reduce_of_all_halves(kernels: Kernels, type: str, op: str) -> None:  # noqa: A002
    every = np.arange(65536, dtype=np.uint16)
    for other in special(type):
        b = np.full_like(every, other)
        check_equal(kernels.reduce(type, op, every, b), Oracle().reduce(type, op, every, b), every, b)


@pytest.mark.parametrize("type", TYPES)
def test_average(kernels: Kernels, type: str) -> None:  # noqa: A002
    data = operands(type, 2)[0]
    for divisor in [1, 2, 3, 7, 64, 1000, 2**24 + 1, 2**31, 2**32 - 1]:
        expected = Oracle().average(type, data, divisor)
        check_equal(kernels.average(type, data, divisor), expected, data, by=divisor)


@pytest.mark.parametrize("type", TYPES)
def test_multiply(kernels: Kernels, type: str) -> None:  # noqa: A002
    data = operands(type, 3)[0]
    for factor in [0.5, -1 / 3, 1.0, 0.0, -0.0, 3e4, 1e30, 2.0**-1030, math.inf, -math.inf, math.nan]:
        expected = Oracle().multiply(type, data, factor)
        check_equal(kernels.multiply(type, data, factor), expected, data, by=factor)


class TestExamples:
    """Worked out by hand; the oracle passes too."""

    @pytest.mark.parametrize("type", FLOATS)
    def test_example_special_numbers(self, implementation: Implementation, type: str) -> None:  # noqa: A002
        minus, nan = SIGN[type], NAN[type]
        one, infinity = int(bits(type, 1)[0]), int(bits(type, math.inf)[0])
        other_nan = minus | nan | 5
        for op, a, b, expected in [
            ("sum", 0, minus, 0),
            ("sum", minus, minus, minus),
            ("sum", infinity, minus | infinity, nan),
            ("sum", other_nan, one, nan),
            ("sum", one, other_nan, nan),
            ("sum", 1, minus | 1, 0),  # denormals
            ("sum", 1, 1, 2),
            ("product", one, 1, 1),
            ("product", infinity, 0, nan),
            ("product", minus | one, 0, minus),
            ("min", 0, minus, minus),
            ("min", minus, 0, minus),
            ("max", 0, minus, 0),
            ("max", minus, 0, 0),
            ("min", 0, 0, 0),
            ("max", minus, minus, minus),
            ("min", other_nan, minus | infinity, nan),
            ("min", minus | infinity, other_nan, nan),
            ("max", other_nan, infinity, nan),
            ("max", infinity, other_nan, nan),
            ("max", 1, 0, 1),
            ("min", minus | 1, minus, minus | 1),
        ]:
            a_bits, b_bits, expected_bits = (np.array([word], UNSIGNED[type]) for word in (a, b, expected))
            check_equal(implementation.reduce(type, op, a_bits, b_bits), expected_bits, a_bits, b_bits)

    @pytest.mark.parametrize(
        ("type", "a", "b", "expected"),
        [
            ("f32", 2**24, 1, 2**24),  # a tie goes to the even one
            ("f32", 2**24 + 2, 1, 2**24 + 4),
            ("f64", 2**53, 1, 2**53),
            ("f64", 2**53 + 2, 1, 2**53 + 4),
            ("f16", 2048, 1, 2048),
            ("f16", 2050, 1, 2052),
            ("f16", 65504, 15.9921875, 65504),  # the largest; from half a unit above on it is infinite
            ("f16", 65504, 16, math.inf),
            ("bf16", 256, 1, 256),
            ("bf16", 258, 1, 260),
            ("bf16", 256, 1.0078125, 258),
        ],
    )
    def test_example_rounding(
        self,
        implementation: Implementation,
        type: str,  # noqa: A002
        a: float,
        b: float,
        expected: float,
    ) -> None:
        found = implementation.reduce(type, "sum", bits(type, a), bits(type, b))
        check_equal(found, bits(type, expected))

    def test_example_halves_round_once(self, implementation: Implementation) -> None:
        # 2^-24 is the least f16: half of it is a tie with 0, three quarters are nearer to 1.
        least = np.array([1, 3], np.uint16)
        assert implementation.multiply("f16", least, 0.5).tolist() == [0, 2]
        assert implementation.multiply("f16", least, 0.75).tolist() == [1, 2]
        assert implementation.average("f16", least, 4).tolist() == [0, 1]

    @pytest.mark.parametrize("type", INTEGERS)
    def test_example_integers(self, implementation: Implementation, type: str) -> None:  # noqa: A002
        limits = np.iinfo(NUMPY[type])
        ends, ones = bits(type, limits.min, limits.max), bits(type, 1, 1)
        assert implementation.reduce(type, "sum", ends, ones).view(NUMPY[type]).tolist() == [
            limits.min + 1,
            limits.min,
        ]
        assert implementation.reduce(type, "product", ends, ends).view(NUMPY[type]).tolist() == [0, 1]
        assert implementation.multiply(type, ends, 1e30).view(NUMPY[type]).tolist() == [
            limits.min,
            limits.max,
        ]
        if limits.min < 0:
            sevens = bits(type, -7, 7)
            assert implementation.average(type, sevens, 2).view(NUMPY[type]).tolist() == [-3, 3]
            assert implementation.multiply(type, sevens, 0.5).view(NUMPY[type]).tolist() == [-3, 3]

    def test_example_boolean(self, implementation: Implementation) -> None:
        a, b = np.array([0, 0, 1, 1, 2, 2], np.uint8), np.array([0, 1, 0, 1, 0, 4], np.uint8)
        for op in ("sum", "max", "bor"):
            assert implementation.reduce("boolean", op, a, b).tolist() == [0, 1, 1, 1, 1, 1]
        for op in ("product", "min", "band"):
            assert implementation.reduce("boolean", op, a, b).tolist() == [0, 0, 0, 1, 0, 1]
        assert implementation.reduce("boolean", "bxor", a, b).tolist() == [0, 1, 1, 0, 1, 0]
        assert implementation.average("boolean", b, 2).tolist() == b.tolist()
        assert implementation.multiply("boolean", b, 0.5).tolist() == b.tolist()


@pytest.mark.parametrize("op", ["minimum", "maximum"])
@pytest.mark.parametrize("type", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_min_and_max_are_those_of_torch(op: str, type: torch.dtype) -> None:  # noqa: A002
    values = torch.tensor([-math.inf, -2.5, 0.0, 1.5, math.inf, math.nan], dtype=type)
    a, b = (grid.contiguous() for grid in torch.meshgrid(values, values, indexing="ij"))
    out = torch.empty_like(a)
    name = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}[
        str(type).removeprefix("torch.")
    ]
    native.reduce(
        native.DataType[name],
        native.ReduceOp[op[:3]],
        *(tensor.data_ptr() for tensor in (out, a, b)),
        a.numel(),
    )
    torch.testing.assert_close(out, getattr(torch, op)(a, b), rtol=0, atol=0, equal_nan=True)


def test_flushed_denormals_change_nothing() -> None:
    a = np.array([1, 2, 3], np.uint32)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormals")
    try:
        found = Kernels(native.reduce_variants()[-1]).reduce("f32", "sum", a, a)
    finally:
        torch.set_flush_denormal(False)
    assert found.tolist() == [2, 4, 6]


class TestWrongArguments:
    """A caller's mistake is named, and nothing is written."""

    @pytest.mark.parametrize("type", FLOATS)
    @pytest.mark.parametrize("op", BITWISE)
    def test_bitwise_on_floating_point(self, type: str, op: str) -> None:  # noqa: A002
        with pytest.raises(
            ValueError, match=f"{op} is not defined on {type}; accepted: sum, product, min, max"
        ):
            native.reduce(native.DataType[type], native.ReduceOp[op], 0, 0, 0, 0)

    @pytest.mark.parametrize("divisor", [0, -1, 2**32])
    def test_divisor(self, divisor: int) -> None:
        with pytest.raises(ValueError, match=f"divisor {divisor}; accepted: 1 to 4294967295"):
            native.average(native.DataType.f32, 0, 0, divisor)

    def test_unknown_variant(self) -> None:
        with pytest.raises(ValueError, match="variant 'sse'; accepted on this machine: portable"):
            native.average(native.DataType.f32, 0, 0, 1, variant="sse")

    def test_output_overlaps_an_operand_in_part(self) -> None:
        data = np.zeros(8, np.float32)
        at = data.ctypes.data
        arguments = native.DataType.f32, native.ReduceOp.sum
        with pytest.raises(ValueError, match="overlaps the first operand"):
            native.reduce(*arguments, at + 4, at, at + 4, 4)
        with pytest.raises(ValueError, match="overlaps the second operand"):
            native.reduce(*arguments, at, at, at + 12, 4)
        with pytest.raises(ValueError, match="overlaps the input"):
            native.multiply(native.DataType.f32, at + 4, at, 4, 2.0)
        native.reduce(*arguments, at, at, at + 16, 4)
        native.reduce(*arguments, at, at, at, 4)
