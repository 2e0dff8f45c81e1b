"""This rank's own levels of the cache: memory, disk, and the data set behind them.

Used by the training's thread and by those that answer other ranks. Below memory it takes `read_threads` of them at a
time, because many data sets and decoders are written for one thread.
"""

from __future__ import annotations

import io
import operator
import pickle
import threading
from collections.abc import Callable, Collection
from typing import Any

import torch

from dlcp.torch.data.disk_level import DiskLevel
from dlcp.torch.data.memory_level import MemoryLevel
from dlcp.torch.data.read_counts import ReadCounts


class OwnLevels:
    """Decoded samples as pickled bytes, from the nearest level that has them. Any thread may use it."""

    def __init__(
        self,
        dataset: Any,
        decode: Callable[[Any], Any] | None,
        disk: DiskLevel | None,
        memory: MemoryLevel,
        counts: ReadCounts,
        read_threads: int,
    ) -> None:
        self.dataset = dataset
        self.memory = memory
        self.disk = disk
        self._decode = decode
        self._counts = counts
        self._read_threads = read_threads
        self._readers = threading.BoundedSemaphore(read_threads)

    def payload(self, index: int, *, keep: bool) -> bytes:
        """The decoded sample, pickled. `keep`: memory keeps it. Raises what the data set and the decoder raise."""
        if (payload := self.memory.get(index)) is not None:
            self._counts.add("memory")
            return payload
        with self._readers:
            # Another thread may have read it meanwhile.
            if (payload := self.memory.get(index)) is not None:
                self._counts.add("memory")
                return payload
            payload = self._raw(index)
            if self._decode is not None:
                payload = _pickled(self._decode(pickle.loads(payload)))
        if keep:
            self.memory.put(index, payload)
        return payload

    def enter_worker(self) -> None:
        """For a forked DataLoader worker: no lock of its parent's threads counts here."""
        self._readers = threading.BoundedSemaphore(self._read_threads)

    def _raw(self, index: int) -> bytes:
        """What the data set has under an index, pickled, from the disk if it is there."""
        if self.disk is not None:
            found = self.disk.get(index)
            if found.torn:
                self._counts.add("torn")
            if found.payload is not None:
                self._counts.add("disk")
                return found.payload
        raw = _pickled(self.dataset[index])
        self._counts.add("remote")
        if self.disk is not None:
            self.disk.put(index, raw)
        return raw

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_readers"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.enter_worker()


class _Pickler(pickle.Pickler):
    """Of a tensor that is a part of a longer storage it writes that part; torch writes all of the storage."""

    def reducer_override(self, value: Any) -> Any:
        """Called for each object; NotImplemented: as ever."""
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_nested:
            return NotImplemented
        if value.untyped_storage().nbytes() <= value.numel() * value.element_size():
            return NotImplemented
        with torch.no_grad():
            own = value.clone()
        own.__dict__.update(value.__dict__)
        own.requires_grad_(value.requires_grad)
        return own.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def indices_in_range(indices: Collection[Any], length: int) -> list[int]:
    """As plain ints from 0; negative ones count from the end. Raises IndexError, TypeError."""
    plain = []
    for given in indices:
        index = operator.index(given)
        if not -length <= index < length:
            raise IndexError(f"index is {index}; accepted: {-length} to {length - 1}")
        plain.append(index % length)
    return plain
