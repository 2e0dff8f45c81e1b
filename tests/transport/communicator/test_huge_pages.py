"""Buffers that collectives use again and again come to lie in huge pages, and keep what is in them."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dlcp.doctor.machine import HUGE_PAGES
from dlcp.transport.communicator import Communicator, DataType, Span
from tests.support.ranks import PATIENCE_S, World

BYTES = 16 << 20


def huge_bytes(address: int) -> int:
    """Of the mapping that has this address."""
    entries = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    for entry in filter(None, entries):
        start, end = (int(word, 16) for word in entry.split()[0].split("-"))
        if start <= address < end:
            found = re.search(r"AnonHugePages: +(\d+) kB", entry)
            return int(found[1]) * 1024 if found else 0
    raise AssertionError(f"nothing is mapped at {address:#x}")


def collapses() -> bool:
    """Whether this kernel moves memory into huge pages at once."""
    modes = Path(HUGE_PAGES)
    if not modes.exists() or "[never]" in modes.read_text():
        return False
    memory = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(bytes(len(memory)))
    try:
        memory.madvise(25)  # MADV_COLLAPSE
    except OSError:
        return False
    return True


@pytest.mark.skipif(not collapses(), reason="no huge pages here, or Linux before 6.1")
def test_a_buffer_moves_when_it_is_used_again_and_again(world: Callable[[int], World]) -> None:
    ranks = world(2)
    buffers = [mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2)]
    arrays = [np.frombuffer(buffer, np.float32) for buffer in buffers]

    def sum_up(group: Communicator) -> None:
        group.all_reduce(Span.of(arrays[group.rank]), DataType.f32).wait(PATIENCE_S)

    groups = ranks.open()
    for array, rank in zip(arrays, range(2), strict=True):
        array[:] = np.arange(array.size) % 97 + rank
    before = huge_bytes(arrays[0].ctypes.data)
    for times in range(1, 5):
        ranks.each(groups, sum_up)
        expected = (2 * (np.arange(arrays[0].size, dtype=np.float32) % 97) + 1) * 2 ** (times - 1)
        assert all((array == expected).all() for array in arrays)
        now = huge_bytes(arrays[0].ctypes.data)
        assert now == before if times <= 2 else now >= BYTES - (4 << 20)
