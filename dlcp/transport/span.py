"""Memory of the CPU as collectives see it: where it begins and how long it is. Owns nothing: see `keep` of a call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dlcp.errors import ShapeError


class Span(NamedTuple):
    """Contiguous memory. Whoever makes one keeps the memory alive, or gives its owner to the call as `keep`."""

    address: int
    nbytes: int

    @classmethod
    def of(cls, memory: Any, *, writable: bool = True) -> Span:
        """The memory of a NumPy array, of anything with a buffer, or of a CPU tensor by DLPack; not copied.

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
        return cls(array.__array_interface__["data"][0], array.nbytes)
