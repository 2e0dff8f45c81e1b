"""Work of a collective on this rank's own memory: copying, multiplying by a factor, temporary memory."""

from __future__ import annotations

import ctypes

import numpy as np

from dlcp import _native
from dlcp.transport.call_options import CollectiveKeywords
from dlcp.transport.element import ELEMENT_BYTES, DataType
from dlcp.transport.span import Span

PlainSums = _native.PlainSums
"""Reads torch's arguments of a plain sum: native/bind/tensor.cpp."""


def copy(target: Span, source: Span) -> None:
    """The bytes of `source`, in `target`, which is as long; nothing if they are the same memory."""
    if target[0] != source[0] and source[1]:
        ctypes.memmove(target[0], source[0], source[1])


def scale(target: Span, source: Span, dtype: DataType, factor: float) -> None:
    """The values of `source` times `factor`, in `target`, which may be the same memory."""
    if source[1]:
        _native.multiply(dtype, target[0], source[0], source[1] // ELEMENT_BYTES[dtype], factor)


def temporary(nbytes: int, keywords: CollectiveKeywords) -> Span:
    """Memory that lives as long as an operation: `keywords`, its keyword arguments, keep it."""
    owner = np.empty(nbytes, np.uint8)
    keywords["keep"] = (owner, keywords.get("keep"))
    return Span(owner.__array_interface__["data"][0], nbytes)
