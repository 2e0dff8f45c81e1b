"""Coded sums at a hub: what a worker announces of one, in the 44 bytes of a rule, and what it knows of what is kept.

    codec       u8     as native code numbers them
    before      u8     which of two arrays at the hub has what is kept, 1 or 2; 0: nothing is kept yet
    reserved    2      0
    kept        u32    the number under which the hub keeps what the sums' codes leave; 0: it keeps nothing
    factor      f32    of what is kept, in the unit of this sum
    reserved    32     0

What a code leaves goes into the other array, so a step that the optimizer skips leaves what was kept before it. The
core that owns a key has its part of both arrays: no rank could have them, since no rank sees a sum that is not coded.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from dlcp import _native

LAYOUT = struct.Struct("<BB2xIf32x")
_CODECS = tuple(_native.Codec)
NUMBERS = (1 << 31) - 1
"""How many numbers there are."""


class CodedTerms(NamedTuple):
    """What a core needs to know of a coded sum beside sizes."""

    codec: _native.Codec
    kept: int = 0
    before: int = 0
    factor: float = 1.0

    @property
    def after(self) -> int:
        """The array for what this sum's code leaves."""
        return 2 if self.before == 1 else 1

    def pack(self) -> bytes:
        """As it travels."""
        return LAYOUT.pack(_CODECS.index(self.codec), self.before, self.kept, self.factor)

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From an announcement. Raises ValueError: no such codec or array."""
        codec, before, kept, factor = LAYOUT.unpack(content)
        if codec >= len(_CODECS) or before > 2:
            raise ValueError(f"codec {codec}, array {before}")
        return cls(_CODECS[codec], kept, before, factor)


class KeptAtHub:
    """What a hub keeps of one row of sums, each of which it adds to the next, as a worker knows it.

    All workers have one for the same sums, and say the same of them. One thread at a time.
    """

    def __init__(self) -> None:
        self.number = 0
        """At the hub; 0: nothing is there yet."""
        self.place = 0
        """The group with the hub that has the memory for it; 0: none. Of another group nothing counts."""
        self.before = 0
        """As in CodedTerms."""
        self._after = 0

    def move_to(self, place: int) -> None:
        """A hub has the memory from now on, and nothing in it; 0: none has."""
        self.number, self.place, self.before, self._after = 0, place, 0, 0

    def terms(self, codec: _native.Codec, sequence: int, factor: float) -> CodedTerms:
        """Of the sum with this number among the group's collectives, which is the same on all workers."""
        self.number = self.number or sequence % NUMBERS + 1
        terms = CodedTerms(codec, self.number, self.before, factor)
        self._after = terms.after
        return terms

    def end_step(self, *, applied: bool) -> None:
        """The sum was applied: what its code left counts from now on. Or it was not, and what was kept before does."""
        if applied and self._after:
            self.before = self._after
        self._after = 0
