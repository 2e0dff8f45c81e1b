"""Numbers as P4Runtime writes them: big-endian, no more bytes than needed (specification: Bytestrings).

A reader takes leading zeros too, since a program's widths may have changed; what does not fit the width is out of
range, and so is no byte at all.
"""

from __future__ import annotations

from .status import OUT_OF_RANGE, Refused


def decode(value: bytes, bits: int, what: str) -> int:
    """The number; Refused if it does not fit."""
    if not value:
        raise Refused(OUT_OF_RANGE, f"{what}: an empty value")
    number = int.from_bytes(value, "big")
    if number >> bits:
        raise Refused(OUT_OF_RANGE, f"{what}: {number:#x} does not fit {bits} bits")
    return number


def encode(number: int) -> bytes:
    """The shortest string."""
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
