"""Span: what it takes for memory, what it keeps alive, and the sentence about what it refuses."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ShapeError
from dlcp.transport import Span


@pytest.mark.parametrize("memory", [np.arange(6, dtype=np.float32), bytearray(24), memoryview(bytearray(24))])
def test_span_of_memory_says_its_length(memory: Any) -> None:
    span = Span.of(memory)
    assert span.nbytes == 24
    assert span.address > 0


def test_span_keeps_its_owner_alive_and_so_does_a_part() -> None:
    array = np.zeros(64, np.uint8)
    owner = weakref.ref(array)
    part = Span.of(array).part(16, 8)
    address = array.__array_interface__["data"][0]
    del array
    gc.collect()
    assert part == Span(address + 16, 8)
    assert owner() is not None


def test_bytes_are_memory_to_read_only() -> None:
    assert Span.of(b"abcd", writable=False).nbytes == 4
    with pytest.raises(ShapeError, match="type bytes, which is read-only"):
        Span.of(b"abcd")


def read_only() -> np.ndarray[Any, Any]:
    array = np.zeros(4)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("memory", "sentence"),
    [
        (np.zeros((4, 4))[:, ::2], "is not C-contiguous; give numpy.ascontiguousarray of it"),
        (np.array([object()]), "Python objects; accepted: numbers"),
        (read_only(), "is read-only; accepted: a writable array"),
        (5, "memory is of type int; accepted: a C-contiguous NumPy array"),
        (None, "memory is of type NoneType; accepted"),
    ],
)
def test_what_is_no_memory_is_refused(memory: Any, sentence: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Span.of(memory)
    assert sentence in str(caught.value)
