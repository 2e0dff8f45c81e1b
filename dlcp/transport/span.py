"""Memory of the CPU as collectives see it: where it begins and how long it is.

`Span(address, nbytes)` owns nothing: its maker keeps the memory alive, by `keep` of the call if need be. `Span.of`
remembers whose memory it is, and an operation keeps that.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dlcp.errors import ShapeError


class Span(NamedTuple):
    """Contiguous memory."""

    address: int
    nbytes: int

    @classmethod
    def of(cls, memory: Any, *, writable: bool = True) -> Span:
        """The memory of a NumPy array, of anything with a buffer, or of a CPU tensor by DLPack; not copied, but kept.

        `writable`: whether a collective is to write there. Raises ShapeError: not C-contiguous, read-only, no memory.
        """
        array = memory
        if not isinstance(array, np.ndarray):
            try:
                array = (
                    np.frombuffer(memory, np.uint8) if memoryview(memory).nbytes else np.zeros(0, np.uint8)
                )
            except (TypeError, ValueError, BufferError):
                try:
                    array = np.from_dlpack(memory)
                except (AttributeError, TypeError, RuntimeError, BufferError):
                    raise ShapeError(
                        f"memory is of type {type(memory).__name__}; accepted: a C-contiguous NumPy array, a bytes-like"
                        " object or a CPU tensor"
                    ) from None
        if array.dtype.hasobject:
            raise ShapeError(f"memory has dtype {array.dtype}, Python objects; accepted: numbers")
        if not array.flags.c_contiguous:
            raise ShapeError(
                f"memory of shape {array.shape} and strides {array.strides} is not C-contiguous; give"
                " numpy.ascontiguousarray of it"
            )
        if writable and isinstance(memory, np.ndarray) and not array.flags.writeable:
            raise ShapeError(f"memory of shape {array.shape} is read-only; accepted: a writable array")
        if writable and isinstance(memory, bytes):
            raise ShapeError(
                "memory is of type bytes, which is read-only; accepted: writable, such as a bytearray"
            )
        return _OwnedSpan.at(array.__array_interface__["data"][0], array.nbytes, array)

    def part(self, at: int, nbytes: int) -> Span:
        """`nbytes` of it from byte `at` on."""
        return Span(self.address + at, nbytes)


class _OwnedSpan(Span):
    """A span that keeps alive what its memory belongs to."""

    owner: Any

    @classmethod
    def at(cls, address: int, nbytes: int, owner: Any) -> _OwnedSpan:
        span = cls(address, nbytes)
        span.owner = owner
        return span

    def part(self, at: int, nbytes: int) -> Span:
        """`nbytes` of it from byte `at` on, with the same owner."""
        return self.at(self.address + at, nbytes, self.owner)


def overlap_of(spans: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """The places of two of these that share memory, the first one first; None: no two do."""
    order = sorted(
        (address, address + nbytes, place) for place, (address, nbytes) in enumerate(spans) if nbytes
    )
    found = next(((one[2], other[2]) for one, other in pairwise(order) if other[0] < one[1]), None)
    return found and (min(found), max(found))
