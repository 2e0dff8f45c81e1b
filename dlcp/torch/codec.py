"""Few bits for every value, in torch operations: the twin of the native kernels, for CUDA tensors and as their oracle.

The format is that of native/collective/codec.hpp: groups of 64 values with one scale each, and every group decodes by
itself. Invariant: the same bits as the native kernels, on every device, and value = decoded + residual as an equality
of floats wherever the value is finite. One exception: fp16 limits a value to 65504, and beyond 2^29 what is left is
rounded. Nothing here loops over data or waits for the device.

Each operation reads and writes all values, so what is done per value is little: what differs between groups (finite or
not, a scale or none) is a factor of the group, not a branch of the value.
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
_SMALLEST = 2.0**-149
_INFINITY_BITS = 0x7F80


FLOAT_CODECS = {
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
    return _encode(_grouped(values), traits)[0]


def encode_in_place(values: Tensor, codec: str) -> Tensor:
    """As `encode`; `values`, whole groups, become what the code leaves of them, as `leave` says.

    Raises as `encode`; ValueError: not whole groups, or not contiguous.
    """
    traits = _traits(codec)
    _check_values(values)
    if len(values) % GROUP_VALUES or not values.is_contiguous():
        raise ValueError(
            f"values has shape {tuple(values.shape)}, strides {values.stride()}; accepted: contiguous, whole groups of "
            f"{GROUP_VALUES}"
        )
    groups = values.view(-1, GROUP_VALUES)
    coded, units, scales = _encode(groups, traits)
    if units is None or scales is None:
        groups.sub_(decode(coded, codec, len(values)).view_as(groups))
    else:
        # Exact, so it does not matter whether it is rounded before the difference.
        groups.addcmul_(units, scales, value=-1.0)
    # Of what is not finite nothing is left.
    groups.nan_to_num_(0.0, 0.0, 0.0)
    return coded


def decode(coded: Tensor, codec: str, count: int) -> Tensor:
    """float32 [count]: the values of coded groups (uint8 [groups · group_bytes], as `encode` returns them).

    Raises ValueError: not as many bytes as `count` values take, or no such codec; TypeError: another dtype.
    """
    traits = _traits(codec)
    checks.integer("count", count, 0, error=ValueError)
    _check_coded(coded, traits, count)
    rows = coded.reshape(-1, traits.group_bytes)
    if not traits.is_scaled:
        return _unpack_halves(rows, FLOAT_CODECS[codec]).float().flatten()[:count]
    low_high = rows[:, :_SCALE_BYTES].int()
    codes = _unpack(rows[:, _SCALE_BYTES:], traits.bits)
    scale = _scales(low_high[:, :1] | low_high[:, 1:] << 8)
    units = _units(codes, traits)
    # In a group that is not finite, 0 stands for a finite value: 0 times infinity would make NaN of it.
    finite = scale.isfinite()
    decoded = torch.where(finite | (units != 0), units * scale, 0.0)
    not_a_number = ~finite & (codes == _signed(traits.not_a_number, traits))
    return decoded.masked_fill_(not_a_number, math.nan).flatten()[:count]


def leave(values: Tensor, coded: Tensor, codec: str) -> Tensor:
    """float32 [count]: what the code leaves of each value, to be added to the next one at its place.

    That is value - decoded. Where the value is not finite it is 0, and a finite one of a group that is not finite stays
    whole. Raises as `decode`.
    """
    _check_values(values)
    return torch.where(values.isfinite(), values - decode(coded, codec, len(values)), 0.0)


# --- groups -------------------------------------------------------------------------------------------------------


def _encode(groups: Tensor, traits: CodecTraits) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The coded groups; and of integers, units and scales whose product is decoded, but 0 in what is not finite."""
    if not traits.is_scaled:
        return _pack_halves(_as_half(groups, traits.name)), None, None
    bits = _scale_bits(groups, traits)
    units = scales = None
    if traits.name in FLOAT_CODECS:
        codes = _float_codes(groups, bits, traits)
    else:
        units = _integer_units(groups, bits, traits)
        codes = units.to(torch.int8)
        scales = torch.where(bits == _INFINITY_BITS, 0.0, _scales(bits))
    low_high = torch.cat((bits & 0xFF, bits >> 8), 1).to(torch.uint8)
    return torch.cat((low_high, _pack(codes, traits.bits)), 1).flatten(), units, scales


# --- scales -------------------------------------------------------------------------------------------------------


def _scale_bits(groups: Tensor, traits: CodecTraits) -> Tensor:
    """int32 [groups, 1]: each group's scale as the bits of a bfloat16.

    The magnitude is rounded up, so that no value is clipped, but never to a scale whose largest code would decode to
    infinity: near the end of float32's range the largest code of such a scale is nearer than half a scale anyway.
    """
    # Infinite or NaN if any value is.
    largest = torch.linalg.vector_norm(groups, math.inf, 1, keepdim=True)
    # As float32 the inverse is what the kernels multiply with.
    inverse = float(torch.tensor(1.0) / traits.code_max)
    bits = ((largest * inverse).view(torch.int32) + 0xFFFF) >> 16
    bits = torch.where(largest < traits.code_max * _SMALLEST_NORMAL, 0, bits.clamp(max=_bits_max(traits)))
    return torch.where(largest.isfinite(), bits, _INFINITY_BITS)


def _bits_max(traits: CodecTraits) -> int:
    """The largest scale, as bits, whose largest code is finite."""
    largest = torch.tensor(_FLOAT_MAX / traits.code_max, dtype=torch.float32)
    return int(largest.view(torch.int32)) >> 16


def _scales(bits: Tensor) -> Tensor:
    """float32 of the bits of bfloat16s (int32)."""
    return (bits << 16).view(torch.float32)


# --- codes --------------------------------------------------------------------------------------------------------


def _integer_units(groups: Tensor, bits: Tensor, traits: CodecTraits) -> Tensor:
    """float32 [groups, 64]: each value's code as a whole number."""
    usable, infinite = (bits != 0) & (bits != _INFINITY_BITS), bits == _INFINITY_BITS
    # In a group that is not finite, what makes 0 of every finite value, and 1 of an infinity once it is limited.
    inverse = torch.where(usable, 1.0 / _scales(bits), 0.0).masked_fill_(infinite, _SMALLEST)
    most = torch.full_like(inverse, traits.code_max).masked_fill_(infinite, 1.0)
    units = (groups * inverse).clamp_(-most, most).round_()
    return units.nan_to_num_(_signed(traits.not_a_number, traits))


def _float_codes(groups: Tensor, bits: Tensor, traits: CodecTraits) -> Tensor:
    """int8 [groups, 64]: each value's code, of a small float."""
    usable = (bits != 0) & (bits != _INFINITY_BITS)
    inverse = torch.where(usable, 1.0 / _scales(bits), 0.0)
    infinite = torch.where(groups.isinf(), groups.sign(), 0.0)
    codes = torch.where(usable, groups * inverse, infinite).to(FLOAT_CODECS[traits.name]).view(torch.int8)
    return codes.masked_fill_(groups.isnan(), _signed(traits.not_a_number, traits))


def _units(codes: Tensor, traits: CodecTraits) -> Tensor:
    """float32 [groups, 64]: codes (int8) as numbers, which a scale multiplies."""
    return (codes.view(FLOAT_CODECS[traits.name]) if traits.name in FLOAT_CODECS else codes).float()


def _signed(code: int, traits: CodecTraits) -> int:
    """The bits of a code as two's complement; its sign is the highest of them."""
    return code - (1 << traits.bits) if code >> traits.bits - 1 else code


def _pack(codes: Tensor, bits: int) -> Tensor:
    """uint8 [groups, 8 · bits] of int8 [groups, 64], bits ≤ 8.

    Word k has value k in its lowest bits, then value k + 2 · bits, and so on: so a byte has values 2 · bits apart.
    """
    per_byte = 8 // bits
    parts = (codes.view(torch.uint8) & (1 << bits) - 1).view(-1, 4, per_byte, 2 * bits)
    packed = parts[:, :, 0]
    for place in range(1, per_byte):
        packed = packed | parts[:, :, place] << bits * place
    return packed.transpose(1, 2).reshape(-1, 8 * bits)


def _unpack(packed: Tensor, bits: int) -> Tensor:
    """The inverse of _pack."""
    per_byte = 8 // bits
    by_byte = packed.reshape(-1, 2 * bits, 4).transpose(1, 2)
    # The shift back copies the sign.
    parts = [(by_byte << 8 - bits * (place + 1)).view(torch.int8) >> 8 - bits for place in range(per_byte)]
    return torch.stack(parts, 2).view(-1, GROUP_VALUES)


def _pack_halves(halves: Tensor) -> Tensor:
    """uint8 [groups · 128] of int16 [groups, 64]: word k has value k, then value k + 32."""
    return halves.view(-1, 2, 32).transpose(1, 2).flatten().view(torch.uint8)


def _unpack_halves(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse of _pack_halves, as floats."""
    halves = packed.clone(memory_format=torch.contiguous_format).view(dtype)  # from where one may begin
    return halves.view(-1, 32, 2).transpose(1, 2)


def _as_half(groups: Tensor, codec: str) -> Tensor:
    """int16 [groups, 64]: each value as 16 bits."""
    dtype = FLOAT_CODECS[codec]
    largest = torch.finfo(dtype).max
    rounded = torch.where(groups.isinf(), groups, groups.clamp(-largest, largest)).to(dtype)
    return rounded.view(torch.int16).masked_fill_(groups.isnan(), _NOT_A_NUMBER[codec])


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
