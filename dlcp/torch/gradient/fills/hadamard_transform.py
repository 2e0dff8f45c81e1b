"""The randomised Hadamard transform of gradients: afterwards each block holds a little of many values.

Each chunk x of a buffer becomes H D x / sqrt(n), D random signs and H the Walsh-Hadamard matrix: orthonormal, so sums
of transforms are transforms of sums, and the energy that a lost block takes is spread over its chunk (OptiReduce,
Warraich et al., NSDI 2025). It does not lessen what is lost.

Invariant: signs depend on seed, step and index alone, so all ranks transform alike. The same bits come out of
native/collective/hadamard.hpp, which defines them, and of the torch operations here, which serve other devices and f64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dlcp.torch.tensors import FLOATING_DTYPES
from dlcp.transport import gradient

CHUNK_LOG2 = 15
"""128 KiB of f32: the transform of a chunk stays in a second-level cache; about a hundred blocks share a loss."""
_CHUNK_LOG2_MAX = 24
_WORD = 1 << 64
_INCREMENT = 0x9E3779B97F4A7C15


class Hadamard:
    """Transforms buffers in place.

    `seed`: of the signs, the same on all ranks; counts modulo 2^64. `chunk_log2`: chunks have 2 to this power elements,
    0 to 24; what is left at the end of a buffer is cut into powers of two, the larger first.
    """

    def __init__(self, seed: int, chunk_log2: int = CHUNK_LOG2) -> None:
        if not 0 <= chunk_log2 <= _CHUNK_LOG2_MAX:
            raise ValueError(f"chunk_log2 is {chunk_log2}; accepted: 0 to {_CHUNK_LOG2_MAX}")
        self._seed = seed % _WORD
        self._chunk_log2 = chunk_log2

    def forward_(self, buffer: Tensor, step: int) -> Tensor:
        """`buffer`, transformed with the signs of `step` (0 or more). float16 and bfloat16 are computed in float32.

        `buffer`: contiguous, one dimension, float16, bfloat16, float32 or float64. On CUDA, in order on its stream.
        """
        return self._apply(buffer, step, inverse=False)

    def inverse_(self, buffer: Tensor, step: int) -> Tensor:
        """`buffer`, from before forward_() with the same step, to rounding."""
        return self._apply(buffer, step, inverse=True)

    def _apply(self, buffer: Tensor, step: int, *, inverse: bool) -> Tensor:
        if buffer.dtype not in FLOATING_DTYPES or buffer.dim() != 1 or not buffer.is_contiguous():
            raise ValueError(
                f"the buffer is {buffer.dtype} of shape {tuple(buffer.shape)}; accepted: "
                f"{', '.join(map(str, FLOATING_DTYPES))}, one dimension, contiguous"
            )
        if not 0 <= step < _WORD:
            raise ValueError(f"step is {step}; accepted: 0 up to 2^64")
        with torch.no_grad():
            wide = buffer if buffer.dtype in (torch.float32, torch.float64) else buffer.float()
            if wide.dtype == torch.float32 and wide.device.type == "cpu":
                gradient.hadamard(wide.data_ptr(), wide.numel(), self._chunk_log2, self._seed, step, inverse)
            else:
                _by_torch(wide, self._chunk_log2, self._seed, step, inverse=inverse)
            if wide is not buffer:
                buffer.copy_(wide)
        return buffer


# --- in torch operations ----------------------------------------------------------------------------------------


def _by_torch(buffer: Tensor, chunk_log2: int, seed: int, step: int, *, inverse: bool) -> None:
    signs = _signs(buffer, seed, step)
    if not inverse:
        buffer.mul_(signs)
    whole = buffer.numel() >> chunk_log2 << chunk_log2
    if whole:
        _butterflies(buffer[:whole], chunk_log2)
    at = whole
    while at < buffer.numel():
        log2 = (buffer.numel() - at).bit_length() - 1
        _butterflies(buffer[at : at + (1 << log2)], log2)
        at += 1 << log2
    if inverse:
        buffer.mul_(signs)


def _butterflies(buffer: Tensor, log2: int) -> None:
    """Transforms each 2^log2 elements, but for the signs."""
    values = buffer
    for level in range(log2):
        pairs = values.view(-1, 2, 1 << level)
        values = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), 1)
    # The factor as the type has it: torch would otherwise round a product with the f64.
    factor = torch.tensor(1 / math.sqrt(2.0**log2), dtype=buffer.dtype, device=buffer.device)
    torch.mul(values.reshape(-1), factor, out=buffer)


def _signs(buffer: Tensor, seed: int, step: int) -> Tensor:
    """1 or -1 by element, as `buffer`: bit i % 64 of word i // 64 says which."""
    count = buffer.numel()
    key = _splitmix64(_splitmix64(seed) ^ step)
    words = torch.arange((count + 63) // 64, device=buffer.device)  # int64 wraps, as it must
    state = words * _signed(_INCREMENT) + _signed(key + _INCREMENT)
    state = (state ^ _shifted(state, 30)) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ _shifted(state, 27)) * _signed(0x94D049BB133111EB)
    state = state ^ _shifted(state, 31)
    octets = state.view(torch.uint8)  # little-endian, as every machine that torch runs on
    bits = octets[:, None] >> torch.arange(8, dtype=torch.uint8, device=buffer.device) & 1
    return 1 - 2 * bits.reshape(-1)[:count].to(buffer.dtype)


def _splitmix64(state: int) -> int:
    """What the generator of Steele, Lea and Flood (OOPSLA 2014) gives next in this state."""
    z = (state + _INCREMENT) % _WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % _WORD
    return z ^ z >> 31


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    word %= _WORD
    return word - _WORD if word >> 63 else word


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Shifted to the right, zeros coming in."""
    return words >> bits & (1 << 64 - bits) - 1
