"""What a hub reduces at a time, as far as keys and memory depend on it."""

from __future__ import annotations

from typing import NamedTuple

from dlcp import _native

_GROUP_BYTES = {each.codec: each.group_bytes for each in _native.CODECS}


class Buffer(NamedTuple):
    """One."""

    nbytes: int
    type: _native.DataType
    codec: _native.Codec | None = None
    """Of coded values; None: elements of the type."""
    scattered: bool = False
    """Each worker gets an equal part of the sum, in the order of ranks; False: all of it."""
    signed: bool = False
    """Behind it is a key of one element per worker, where each leaves a mark: of a sum that not all may be in."""

    @property
    def group_bytes(self) -> int:
        """Of a group of coded values."""
        assert self.codec is not None
        return _GROUP_BYTES[self.codec]
