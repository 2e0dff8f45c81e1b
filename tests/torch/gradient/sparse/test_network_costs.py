"""The cost model: leaving values out pays on slow networks, with few values, and among few ranks."""

from __future__ import annotations

from dlcp.torch.gradient.sparse.network_costs import dense_is_cheaper

NUMEL = 1_000_000
CHOICE_S = 1e-9
GIGABIT = (50e-6, 8e-9, CHOICE_S)
"""Latency, seconds per byte, seconds of the choice from a value."""


def frame_bytes(density: float) -> int:
    return int(8 * density * NUMEL)


def test_a_few_values_are_worth_it_on_a_slow_network_alone() -> None:
    assert not dense_is_cheaper(GIGABIT, NUMEL, frame_bytes(0.01), 4)
    assert dense_is_cheaper((50e-6, 8e-12, CHOICE_S), NUMEL, frame_bytes(0.01), 4)


def test_frames_grow_with_the_ranks_and_a_sum_does_not() -> None:
    choices = [dense_is_cheaper(GIGABIT, NUMEL, frame_bytes(0.01), ranks) for ranks in (2, 8, 64, 128, 1024)]
    assert choices == [False, False, False, True, True]
    # At equal latencies and no cost of the choice: where ranks · density is 1.
    free = (50e-6, 8e-9, 0.0)
    assert not dense_is_cheaper(free, NUMEL, frame_bytes(0.01), 99)
    assert dense_is_cheaper(free, NUMEL, frame_bytes(0.01), 100)
