"""Which rank owns a sample: its memory and its disk keep it, and the other ranks ask it.

Jump consistent hash (Lamping and Veach, arXiv 1406.2294): every rank computes the same owner from the index alone, the
shares are even, and from n to n + 1 ranks only 1 / (n + 1) of the samples change hands. What a rank's disk holds
therefore stays useful after a restart with another number of ranks; index mod n would move nearly all of it.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1


def owner_of(index: int, world_size: int) -> int:
    """The rank, 0 to world_size - 1, that owns a sample."""
    if world_size == 1:
        return 0
    key = _mixed(index)
    owner, candidate = 0, 0
    while candidate < world_size:
        owner = candidate
        key = (key * 2862933555777941757 + 1) & _MASK
        candidate = int((owner + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return owner


def _mixed(index: int) -> int:
    """The index with its bits spread (the finaliser of SplitMix64): neighbours have unlike owners."""
    value = (index + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
