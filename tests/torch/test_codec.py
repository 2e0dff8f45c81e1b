"""Codecs in torch operations and natively, against a slow oracle: one group at a time, in integers and fractions."""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from dlcp import _native
from dlcp._native import CodecTraits
from dlcp.torch import codec
from tests.support.seeds import for_each_seed

NAMES = tuple(codec.CODECS)
SCALED = tuple(name for name, traits in codec.CODECS.items() if traits.is_scaled)
FLOAT8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
FLOAT_MAX = torch.finfo(torch.float32).max

# --- the oracle ---------------------------------------------------------------------------------------------------


def float_bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def from_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


@cache
def float8_values(name: str) -> list[Fraction]:
    """The finite values of codes 0, 1, 2, ... of OCP's OFP8, without those of a sign."""
    mantissa, bias, codes = (3, 7, 0x7F) if name == "fp8_e4m3" else (2, 15, 0x7C)
    values = []
    for code in range(codes):
        exponent, fraction = code >> mantissa, Fraction(code % (1 << mantissa), 1 << mantissa)
        values.append((fraction + (exponent > 0)) * Fraction(2) ** (max(exponent, 1) - bias))
    return values


def nearest_float8(name: str, value: float) -> int:
    values, size = float8_values(name), Fraction(abs(value))
    above = min(bisect_left(values, size), len(values) - 1)
    below = max(above - 1, 0)
    code = min(below, above, key=lambda one: (abs(values[one] - size), one % 2))
    return code | (0x80 if math.copysign(1, value) < 0 else 0)


def oracle_scale(traits: CodecTraits, group: list[float]) -> int:
    if not all(map(math.isfinite, group)):
        return 0x7F80
    largest = max(map(abs, group))
    if Fraction(largest) < Fraction(traits.code_max) * Fraction(2) ** -126:
        return 0
    product = np.float32(largest) * (np.float32(1) / np.float32(traits.code_max))
    bits = (float_bits(float(product)) + 0xFFFF) >> 16
    while Fraction(from_bits(min(bits, 0x7F7F) << 16)) * Fraction(traits.code_max) > Fraction(FLOAT_MAX):
        bits -= 1
    return min(bits, 0x7F7F)


def oracle_code(traits: CodecTraits, value: float, scale_bits: int) -> int:
    if math.isnan(value):
        return traits.not_a_number
    if scale_bits in (0, 0x7F80):
        units = math.copysign(1.0, value) if math.isinf(value) else 0.0
    else:
        units = float(np.float32(value) * (np.float32(1) / np.float32(from_bits(scale_bits << 16))))
    if traits.name in FLOAT8:
        return nearest_float8(traits.name, units)
    return round(Fraction(units)) % (1 << traits.bits)


def oracle_half(name: str, value: float) -> int:
    if math.isnan(value):
        return 0x7FC0 if name == "bf16" else 0x7E00
    if name == "fp16":
        limited = value if math.isinf(value) else max(-65504.0, min(65504.0, value))
        return int(struct.unpack("<H", struct.pack("<e", limited))[0])
    bits = float_bits(value)
    if math.isinf(value):
        return bits >> 16
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return (bits >> 16 & 0x8000) | min(rounded & 0x7FFF, 0x7F7F)


def oracle_group(name: str, group: list[float]) -> bytes:
    traits = codec.CODECS[name]
    scale = oracle_scale(traits, group) if traits.is_scaled else 0
    words = [0] * (2 * traits.bits)
    for place, value in enumerate(group):
        shift, word = divmod(place, len(words))
        code = oracle_code(traits, value, scale) if traits.is_scaled else oracle_half(name, value)
        words[word] |= code << shift * traits.bits
    packed = struct.pack(f"<{len(words)}I", *words)
    return struct.pack("<H", scale) + packed if traits.is_scaled else packed


def codes_of(traits: CodecTraits, packed: bytes) -> list[int]:
    """The codes of a group in the order of its values."""
    words = struct.unpack(f"<{2 * traits.bits}I", packed)
    places = (divmod(place, len(words)) for place in range(64))
    return [words[word] >> shift * traits.bits & ((1 << traits.bits) - 1) for shift, word in places]


def oracle_decoded(name: str, coded: bytes) -> list[float]:
    traits = codec.CODECS[name]
    if name == "fp16":
        return list(struct.unpack("<64e", struct.pack("<64H", *codes_of(traits, coded))))
    if name == "bf16":
        return [from_bits(bits << 16) for bits in codes_of(traits, coded)]
    scale = from_bits(struct.unpack("<H", coded[:2])[0] << 16)
    decoded = []
    for code in codes_of(traits, coded[2:]):
        if math.isinf(scale) and code == traits.not_a_number:
            decoded.append(math.nan)
            continue
        if name in FLOAT8:
            units = float(float8_values(name)[code & 0x7F]) * (-1 if code & 0x80 else 1)
        else:
            units = code - (1 << traits.bits if code >> (traits.bits - 1) else 0)
        decoded.append(units * scale if units else math.copysign(0.0, units))
    return decoded


# --- groups of every kind -----------------------------------------------------------------------------------------


def same(one: Tensor, other: Tensor) -> bool:
    """Whether bits are equal; all NaNs are one."""
    pairs = (torch.where(each.isnan(), math.nan, each).view(torch.int32) for each in (one, other))
    return torch.equal(*pairs)


def random_groups(seed: int) -> Tensor:
    """float32 [groups, 64]: plain, of many magnitudes, of ties, near the ends of float32, of any bits."""
    draw = torch.Generator().manual_seed(seed)
    plain = torch.randn(4, 64, generator=draw)
    exponents = torch.randint(-140, 127, (4, 64), generator=draw).float()
    magnitudes = plain * torch.exp2(exponents)
    # Scales are powers of two here, and values lie at halves of them.
    ties = torch.randint(-14, 15, (3, 64), generator=draw) / 2.0
    ties[:, 0] = torch.tensor([1.0, 7.0, 127.0])
    ends = torch.tensor([1.0, 7.0, 127.0, 448.0, 57344.0])[:, None] * 2.0**-126
    small = ends * (1 - torch.rand(5, 64, generator=draw) * 2.0**-22)
    large = FLOAT_MAX * (
        1 - torch.rand(4, 64, generator=draw) * torch.tensor([[1e-7], [1e-3], [1e-2], [0.5]])
    )
    bits = torch.randint(-(2**31), 2**31, (4, 64), generator=draw).int().view(torch.float32)
    return torch.cat((plain, magnitudes, ties, small, large * plain.sign(), bits))


EDGES = {
    "zeros": [0.0, -0.0],
    "one value": [3.0],
    "subnormal": [1e-42, -1e-45, 0.0],
    "smallest normal": [2.0**-126, -(2.0**-127)],
    "largest": [FLOAT_MAX, -FLOAT_MAX, 1.0],
    "infinities": [math.inf, -math.inf, 1.5, -0.0],
    "nan": [math.nan, 2.5, -FLOAT_MAX],
    "all at once": [math.nan, math.inf, -math.inf, FLOAT_MAX, 1e-45, 0.0],
}


def edge_group(kind: str) -> Tensor:
    values = EDGES[kind]
    return torch.tensor((values * 64)[:64])


# --- tests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@for_each_seed(range(3))
def test_groups_are_coded_as_the_oracle_codes_them(name: str, seed: int) -> None:
    groups = random_groups(seed)
    coded = codec.encode(groups.flatten(), name)
    expected = [oracle_group(name, group) for group in groups.tolist()]
    for place, (group, bytes_) in enumerate(zip(coded.view(len(groups), -1).numpy(), expected, strict=True)):
        assert group.tobytes() == bytes_, f"group {place}: {groups[place].tolist()}"
    decoded = codec.decode(coded, name, groups.numel())
    assert same(decoded, torch.tensor([oracle_decoded(name, each) for each in expected]).flatten())


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("name", NAMES)
def test_an_edge_is_coded_as_the_oracle_codes_it(name: str, kind: str) -> None:
    group = edge_group(kind)
    coded = codec.encode(group, name)
    assert bytes(coded.numpy()) == oracle_group(name, group.tolist())
    decoded = codec.decode(coded, name, 64)
    assert same(decoded, torch.tensor(oracle_decoded(name, bytes(coded.numpy()))))
    assert torch.equal(decoded.isfinite(), group.isfinite())
    assert torch.equal(decoded.isnan(), group.isnan())


@pytest.mark.parametrize("name", NAMES)
@for_each_seed(range(3))
def test_value_is_decoded_plus_residual_exactly(name: str, seed: int) -> None:
    values = random_groups(seed).flatten()
    if name == "fp16":
        values = torch.where(values.abs() < 2.0**29, values, torch.sign(values))
    finite = values.isfinite()
    coded = codec.encode(values, name)
    decoded, residual = codec.decode(coded, name, len(values)), codec.leave(values, coded, name)
    assert torch.equal(decoded.double()[finite] + residual.double()[finite], values.double()[finite])
    assert not residual[~finite].any()


@pytest.mark.parametrize("name", SCALED)
def test_a_group_that_is_not_finite_keeps_its_finite_values(name: str) -> None:
    values = torch.linspace(-3, 3, 128)
    values[5], values[6], values[7] = math.nan, math.inf, -math.inf
    coded = codec.encode(values, name)
    residual = codec.leave(values, coded, name)
    assert torch.equal(residual[8:64], values[8:64])
    assert not residual[5:8].any()
    assert not torch.equal(residual[64:], values[64:])


@pytest.mark.parametrize("name", SCALED)
def test_no_value_is_clipped(name: str) -> None:
    values = torch.randn(64 * 50, generator=torch.Generator().manual_seed(7))
    coded = codec.encode(values, name)
    traits = codec.CODECS[name]
    scale = coded.view(50, -1)[:, :2].clone().view(torch.bfloat16).float()
    assert (values.view(50, 64).abs() <= traits.code_max * scale).all()
    # It is no larger than it must be: the bfloat16 before would clip.
    assert (values.view(50, 64).abs().amax(1, keepdim=True) > traits.code_max * scale * (1 - 2.0**-7)).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
def test_any_count_is_coded_in_whole_groups(name: str, count: int) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(count))
    coded = codec.encode(values, name)
    padded = torch.cat((values, torch.zeros(-count % 64)))
    assert len(coded) == len(padded) // 64 * codec.CODECS[name].group_bytes
    assert torch.equal(coded, codec.encode(padded, name))
    # At an odd place of other memory too.
    moved = torch.cat((torch.zeros(1, dtype=torch.uint8), coded))[1:]
    assert torch.equal(codec.decode(moved, name, count), codec.decode(coded, name, len(padded))[:count])


@pytest.mark.parametrize("name", FLOAT8)
def test_float8_codes_are_those_of_torch(name: str) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(FLOAT8[name]).float()
    values = torch.where(values.isfinite(), values, 0.0)
    groups = values.view(4, 64).clone()
    groups[:, 0] = codec.CODECS[name].code_max  # so that the scale is 1
    coded = codec.encode(groups.flatten(), name).view(4, -1)
    codes = [codes_of(codec.CODECS[name], bytes(group[2:].numpy())) for group in coded]
    assert torch.tensor(codes).to(torch.uint8).equal(groups.to(FLOAT8[name]).view(torch.uint8))
    assert torch.equal(codec.decode(coded.flatten(), name, 256), groups.flatten())


def native_groups(values: Tensor, name: str, variant: str) -> tuple[Tensor, Tensor, Tensor]:
    """Coded, decoded, left: by the native kernels; the values are what the residual held, and the rest 0."""
    kind, count = codec.CODECS[name], len(values)
    groups = -(-count // 64)
    coded = torch.empty(groups * kind.group_bytes, dtype=torch.uint8)
    kept = torch.zeros(groups * 64)
    kept[:count] = values
    zeros, decoded, runs = torch.zeros(count), torch.empty(count), np.array([[0, count, 0]], np.int64)
    _native.encode_runs(
        kind.codec,
        zeros.data_ptr(),
        runs,
        coded.data_ptr(),
        kept.data_ptr(),
        kept.data_ptr(),
        variant=variant,
    )
    _native.decode_runs(kind.codec, coded.data_ptr(), runs, decoded.data_ptr(), variant=variant)
    return coded, decoded, kept[:count]


@pytest.mark.parametrize("variant", _native.reduce_variants())
@pytest.mark.parametrize("name", NAMES)
@for_each_seed(range(20))
def test_the_kernels_compute_what_torch_does(name: str, variant: str, seed: int) -> None:
    edges = torch.cat([edge_group(kind) for kind in EDGES])
    values = torch.cat((random_groups(seed).flatten(), edges))[: -1 - seed]
    values = values + 0.0  # as the kernels add to a residual
    coded, decoded, left = native_groups(values, name, variant)
    assert torch.equal(coded, codec.encode(values, name))
    assert same(decoded, codec.decode(coded, name, len(values)))
    assert same(left + 0.0, codec.leave(values, coded, name) + 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_coded_in_place_the_values_become_what_is_left(name: str) -> None:
    edges = torch.cat([edge_group(kind) for kind in EDGES])
    values = torch.cat((random_groups(1).flatten(), edges, torch.tensor([1.0, math.inf, 3.0, math.nan])))
    values = torch.cat((values, torch.zeros(-len(values) % 64)))
    coded, left = codec.encode(values, name), values.clone()
    assert torch.equal(codec.encode_in_place(left, name), coded)
    assert same(left + 0.0, codec.leave(values, coded, name) + 0.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device and torch with CUDA")
def test_a_cuda_tensor_is_coded_as_one_of_the_host(name: str) -> None:
    values = torch.cat([random_groups(seed) for seed in range(20)]).flatten()
    coded = codec.encode(values, name)
    there = codec.encode(values.cuda(), name)
    assert torch.equal(there.cpu(), coded)
    assert same(codec.decode(there, name, len(values)).cpu(), codec.decode(coded, name, len(values)))
    assert same(codec.leave(values.cuda(), there, name).cpu(), codec.leave(values, coded, name))
    left = values.cuda()
    assert torch.equal(codec.encode_in_place(left, name).cpu(), coded)
    assert same(left.cpu() + 0.0, codec.leave(values, coded, name) + 0.0)


def test_what_is_not_accepted_is_named() -> None:
    values, coded = torch.ones(64), codec.encode(torch.ones(64), "int4")
    with pytest.raises(ValueError, match=r"codec is 'int5'; did you mean int"):
        codec.encode(values, "int5")
    with pytest.raises(TypeError, match=r"values has dtype torch.float64; accepted: torch.float32"):
        codec.encode(values.double(), "int4")
    with pytest.raises(ValueError, match=r"values has shape \(8, 8\); accepted: one dimension"):
        codec.encode(values.view(8, 8), "int4")
    with pytest.raises(TypeError, match=r"coded has dtype torch.int8; accepted: torch.uint8"):
        codec.decode(coded.view(torch.int8), "int4", 64)
    with pytest.raises(ValueError, match=r"coded has shape \(34,\); accepted: \(68,\), 65 values as int4"):
        codec.decode(coded, "int4", 65)
    with pytest.raises(ValueError, match=r"count is -1; accepted: an integer from 0"):
        codec.decode(coded, "int4", -1)
