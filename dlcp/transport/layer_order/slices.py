"""What a layer's gradient is cut into, and the numbering of the slices that all ranks share.

Numbers follow backward: the last layer's slices come first, a layer's own by offset. They depend on nothing but the
bytes of the layers and the size of a slice, so ranks that know these agree on them without a word, whatever order each
then sends in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Slices begin at multiples of this: no element is cut, and parts of a collective stay aligned.
ALIGNMENT_BYTES = 64


class Slice(NamedTuple):
    """A piece of one layer's gradient, sent as one message or collective."""

    number: int
    """From 0, in the order of backward, the same on all ranks."""
    layer: int
    offset: int
    """Its first byte in the layer's gradient."""
    nbytes: int
    traffic_class: int
    """0 to 6; packets of higher classes overtake."""


def cut(layer_bytes: Sequence[int], slice_bytes: int | None, classes: Sequence[int]) -> tuple[Slice, ...]:
    """All slices of a step, by number: of at most `slice_bytes` (None: layers stay whole); `classes` by layer.

    Raises ValueError: no layer, an empty one, or slices that are not a positive multiple of 64 bytes.
    """
    if not layer_bytes or min(layer_bytes) < 1:
        raise ValueError(
            f"layer_bytes is {list(layer_bytes)}; accepted: one layer or more, of 1 byte or more each"
        )
    if slice_bytes is not None and (slice_bytes < 1 or slice_bytes % ALIGNMENT_BYTES):
        raise ValueError(
            f"slices have {slice_bytes} bytes; accepted: a positive multiple of {ALIGNMENT_BYTES}, or None"
        )
    slices: list[Slice] = []
    for layer in reversed(range(len(layer_bytes))):
        whole = layer_bytes[layer]
        step = whole if slice_bytes is None else slice_bytes
        for offset in range(0, whole, step):
            nbytes = min(step, whole - offset)
            slices.append(Slice(len(slices), layer, offset, nbytes, classes[layer]))
    return tuple(slices)
