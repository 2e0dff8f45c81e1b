"""Few bits for every value, in torch operations: the twin of the native kernels, for CUDA tensors and as their oracle.

The format is that of native/collective/codec.hpp: groups of 64 values with one scale each, and every group decodes by
itself. Invariant: the same bits as the native kernels, on every device, and value = decoded + residual as an equality
of floats wherever the value is finite. One exception: fp16 limits a value to 65504, and beyond 2^29 what is left is
rounded. Nothing here loops over data or waits for the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dlcp import checks
from dlcp.transport.coded import CODECS, GROUP_VALUES, CodecTraits

_SCALE_BYTES = 2
_FLOAT_MAX = torch.finfo(torch.float32).max
_SMALLEST_NORMAL = torch.finfo(torch.float32).tiny
_INFINITY_BITS = 0x7F80


_FLOATS = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
# What NaN becomes where a group has no scale, as an int16.
_NOT_A_NUMBER = {"bf16": 0x7FC0, "fp16": 0x7E00}


def encode(values: Tensor, codec: str) -> Tensor:
    """uint8 [groups · group_bytes]: `values` (float32, one dimension) as coded groups; the last one ends in zeros.

    Raises ValueError: another shape, or no such codec; TypeError: another dtype.
    """
    traits = _traits(codec)
    _check_values(values)
    groups = _grouped(values)
    if not traits.is_scaled:
        return _pack(_as_half(groups, codec), traits.bits).flatten()
    bits = _scale_bits(groups, traits)
    low_high = torch.cat((bits & 0xFF, bits >> 8), 1).to(torch.uint8)
    return torch.cat((low_high, _pack(_codes(groups, bits, traits), traits.bits)), 1).flatten()


def decode(coded: Tensor, codec: str, count: int) -> Tensor:
    """float32 [count]: the values of coded groups (uint8 [groups · group_bytes], as `encode` returns them).

    Raises ValueError: not as many bytes as `count` values take, or no such codec; TypeError: another dtype.
    """
    traits = _traits(codec)
    checks.integer("count", count, 0, error=ValueError)
    _check_coded(coded, traits, count)
    rows = coded.reshape(-1, traits.group_bytes)
    if not traits.is_scaled:
        return _unpack(rows, traits.bits).to(torch.int16).view(_FLOATS[codec]).float().flatten()[:count]
    low_high = rows[:, :_SCALE_BYTES].int()
    codes = _unpack(rows[:, _SCALE_BYTES:], traits.bits).to(torch.uint8)
    scale = _scales(low_high[:, :1] | low_high[:, 1:] << 8)
    units = _units(codes, traits)
    # In a group that is not finite, 0 stands for a finite value: 0 times infinity would make NaN of it.
    finite = scale.isfinite()
    decoded = torch.where(finite | (units != 0), units * scale, 0.0)
    not_a_number = ~finite & (codes == traits.not_a_number)
    return torch.where(not_a_number, math.nan, decoded).flatten()[:count]


def leave(values: Tensor, coded: Tensor, codec: str) -> Tensor:
    """float32 [count]: what the code leaves of each value, to be added to the next one at its place.

    That is value - decoded. Where the value is not finite it is 0, and a finite one of a group that is not finite stays
    whole. Raises as `decode`.
    """
    _check_values(values)
    return torch.where(values.isfinite(), values - decode(coded, codec, len(values)), 0.0)


# --- scales -------------------------------------------------------------------------------------------------------


def _scale_bits(groups: Tensor, traits: CodecTraits) -> Tensor:
    """int32 [groups, 1]: each group's scale as the bits of a bfloat16.

    The magnitude is rounded up, so that no value is clipped, but never to a scale whose largest code would decode to
    infinity: near the end of float32's range the largest code of such a scale is nearer than half a scale anyway.
    """
    largest = groups.abs().amax(1, keepdim=True)
    # As float32 the inverse is what the kernels multiply with.
    inverse = float(torch.tensor(1.0) / traits.code_max)
    bits = ((largest * inverse).view(torch.int32) + 0xFFFF) >> 16
    bits = torch.where(largest < traits.code_max * _SMALLEST_NORMAL, 0, bits.clamp(max=_bits_max(traits)))
    return torch.where(groups.isfinite().all(1, keepdim=True), bits, _INFINITY_BITS)


def _bits_max(traits: CodecTraits) -> int:
    """The largest scale, as bits, whose largest code is finite."""
    largest = torch.tensor(_FLOAT_MAX / traits.code_max, dtype=torch.float32)
    return int(largest.view(torch.int32)) >> 16


def _scales(bits: Tensor) -> Tensor:
    """float32 of the bits of bfloat16s (int32)."""
    return (bits << 16).view(torch.float32)


# --- codes --------------------------------------------------------------------------------------------------------


def _codes(groups: Tensor, bits: Tensor, traits: CodecTraits) -> Tensor:
    """uint8 [groups, 64]: each value's code, in the lowest bits."""
    usable = (bits != 0) & (bits != _INFINITY_BITS)
    inverse = torch.where(usable, 1.0 / _scales(bits), 0.0)
    infinite = torch.where(groups.isinf(), groups.sign(), 0.0)
    units = torch.where(usable, groups * inverse, infinite)
    if traits.name in _FLOATS:
        codes = units.to(_FLOATS[traits.name]).view(torch.uint8)
    else:
        codes = units.round().to(torch.int8).view(torch.uint8) & ((1 << traits.bits) - 1)
    return torch.where(groups.isnan(), traits.not_a_number, codes)


def _units(codes: Tensor, traits: CodecTraits) -> Tensor:
    """float32 [groups, 64]: codes as numbers, which a scale multiplies."""
    if traits.name in _FLOATS:
        return codes.view(_FLOATS[traits.name]).float()
    # The sign is the highest bit of a code.
    unused = 8 - traits.bits
    return ((codes << unused).view(torch.int8) >> unused).float()


def _pack(codes: Tensor, bits: int) -> Tensor:
    """uint8 [groups, 8 · bits]: word k has value k in its lowest bits, then value k + 2 · bits, and so on."""
    parts = codes.int().view(-1, 32 // bits, 2 * bits)
    words = parts[:, 0]
    for place in range(1, 32 // bits):
        words = words | parts[:, place] << bits * place
    return words.contiguous().view(torch.uint8)


def _unpack(packed: Tensor, bits: int) -> Tensor:
    """The inverse of _pack, as int32."""
    words = packed.clone(memory_format=torch.contiguous_format).view(
        torch.int32
    )  # from where a word may begin
    return torch.cat([words >> bits * place & (1 << bits) - 1 for place in range(32 // bits)], 1)


def _as_half(groups: Tensor, codec: str) -> Tensor:
    """int32 [groups, 64]: each value as 16 bits, the lowest."""
    dtype = _FLOATS[codec]
    largest = torch.finfo(dtype).max
    rounded = torch.where(groups.isinf(), groups, groups.clamp(-largest, largest)).to(dtype)
    return torch.where(groups.isnan(), _NOT_A_NUMBER[codec], rounded.view(torch.int16).int() & 0xFFFF)


def _grouped(values: Tensor) -> Tensor:
    """float32 [groups, 64], the last one filled up with zeros."""
    missing = -len(values) % GROUP_VALUES
    return torch.nn.functional.pad(values, (0, missing)).view(-1, GROUP_VALUES)


# --- checks -------------------------------------------------------------------------------------------------------


def _traits(codec: str) -> CodecTraits:
    return CODECS[checks.choice("codec", codec, CODECS, error=ValueError)]


def _check_values(values: Tensor) -> None:
    if values.dtype != torch.float32:
        raise TypeError(f"values has dtype {values.dtype}; accepted: torch.float32")
    if values.dim() != 1:
        raise ValueError(f"values has shape {tuple(values.shape)}; accepted: one dimension")


def _check_coded(coded: Tensor, traits: CodecTraits, count: int) -> None:
    if coded.dtype != torch.uint8:
        raise TypeError(f"coded has dtype {coded.dtype}; accepted: torch.uint8")
    expected = -(-count // GROUP_VALUES) * traits.group_bytes
    if coded.shape != (expected,):
        raise ValueError(
            f"coded has shape {tuple(coded.shape)}; accepted: ({expected},), {count} values as {traits.name}"
        )
