"""Memory of results: one step's is the next step's."""

from __future__ import annotations

import torch

from dlcp.torch.gradient.buffer.pool import BufferPool

CPU = torch.device("cpu")


def test_what_is_taken_in_a_step_is_apart() -> None:
    pool = BufferPool()
    first, second = (pool.take(8, torch.float32, CPU) for _ in range(2))
    assert first.data_ptr() != second.data_ptr()


def test_the_next_step_has_the_same_memory() -> None:
    pool = BufferPool()
    before = {pool.take(8, torch.float32, CPU).data_ptr() for _ in range(2)}
    pool.recycle()
    assert {pool.take(8, torch.float32, CPU).data_ptr() for _ in range(2)} == before


def test_memory_serves_its_own_size_and_type() -> None:
    pool = BufferPool()
    pool.take(8, torch.float32, CPU)
    pool.recycle()
    assert pool.take(16, torch.float32, CPU).numel() == 16
    assert pool.take(8, torch.float64, CPU).dtype == torch.float64


def test_memory_that_a_step_did_not_need_is_let_go() -> None:
    pool = BufferPool()
    pool.take(8, torch.float32, CPU)
    pool.recycle()
    pool.recycle()
    assert not pool._free
