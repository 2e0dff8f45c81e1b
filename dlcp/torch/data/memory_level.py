"""The memory level: decoded samples that this rank owns, as bytes.

Samples are kept pickled. Their size is then known exactly, a transform may change what it is given without changing
the cache, and a reply to another rank needs no encoding.

Nothing is evicted: what came first stays, and what finds no room is read from the level below. An epoch reads every
sample once, so none is likelier than another to be next, and an exchange of one for another gains nothing (CoorDL's
MinIO cache, VLDB 2021); least recently used would throw out each sample shortly before its turn.

Reading takes no lock, so that a forked DataLoader worker may read the copy that it has.
"""

from __future__ import annotations

import threading


class MemoryLevel:
    """Payloads by index, up to a number of bytes. Any thread may use it."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """The bound on the sum of payloads. 0: keeps nothing."""
        self._payloads: dict[int, bytes] = {}
        self._used_bytes = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[MemoryLevel], tuple[int]]:
        # A spawned worker begins with nothing, and keeps nothing.
        return MemoryLevel, (0,)

    def __len__(self) -> int:
        return len(self._payloads)

    @property
    def used_bytes(self) -> int:
        """The sum of what it holds."""
        return self._used_bytes

    def get(self, index: int) -> bytes | None:
        """The sample's payload, or None."""
        return self._payloads.get(index)

    def put(self, index: int, payload: bytes) -> bool:
        """Keeps the payload if there is room. Whether the level has the sample now."""
        with self._lock:
            if index in self._payloads:
                return True
            if self._used_bytes + len(payload) > self.bytes_max:
                return False
            self._used_bytes += len(payload)
            self._payloads[index] = payload
            return True
