"""The Hadamard transform of gradients: the vector code and the torch operations give the same bits, and a way back.

That it is the transform of the definition is in tests/native/collective/test_hadamard.cpp.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from dlcp import _native as native
from dlcp.torch.gradient.fills.hadamard_transform import Hadamard, _by_torch, _splitmix64


def values(numel: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(numel, generator=generator) * 2.0 ** (seed % 7)


def test_both_give_the_same_bits() -> None:
    torch.set_num_threads(1)
    rng = random.Random(41)
    for case in range(120):
        numel = rng.choice([0, 1, rng.randrange(200), rng.randrange(70_000)])
        chunk_log2 = rng.choice([0, 1, 5, 6, 9, 12, 13, 15])
        seed, step = rng.randrange(1 << 64), rng.choice([0, 1, rng.randrange(1 << 64)])
        x = values(numel, case)
        for inverse in (False, True):
            one, other = x.clone(), x.clone()
            native.hadamard(one.data_ptr(), numel, chunk_log2, seed, step, inverse)
            _by_torch(other, chunk_log2, seed, step, inverse=inverse)
            assert torch.equal(one, other), f"case {case}"


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)],
)
def test_there_and_back(dtype: torch.dtype, tolerance: float) -> None:
    transform = Hadamard(seed=3, chunk_log2=10)
    x = values(5000, 1).to(dtype)
    y = x.clone()
    assert transform.forward_(y, 17) is y
    assert y.dtype == dtype
    assert not torch.equal(x, y)
    assert y.double().norm() == pytest.approx(x.double().norm().item(), rel=tolerance)
    transform.inverse_(y, 17)
    assert (x.double() - y.double()).norm() <= tolerance * x.double().norm()


def test_a_lost_block_is_spread_over_its_chunk() -> None:
    transform = Hadamard(seed=3, chunk_log2=12)
    x = torch.zeros(8192)
    x[4096 + 70] = 64.0
    transform.forward_(x, 0)
    assert x[:4096].abs().max() == 0
    assert torch.allclose(x[4096:].abs(), torch.ones(4096))
    x[4096 + 128 : 4096 + 384] = 0  # lost
    transform.inverse_(x, 0)
    assert x[4096 + 70].item() == pytest.approx(64 * (1 - 256 / 4096))
    x[4096 + 70] = 0
    assert x.abs().max() <= 64 * 256 / 4096


def test_sum_of_transforms_is_the_transform_of_the_sum() -> None:
    parts = [values(3000, seed) for seed in range(4)]
    total = Hadamard(9).forward_(sum(parts[1:], parts[0].clone()), 5)
    apart = sum(Hadamard(9).forward_(part, 5) for part in parts)
    assert torch.allclose(total, apart, atol=1e-3)


def test_signs_differ_by_seed_and_step() -> None:
    found = {
        tuple(Hadamard(seed, chunk_log2=0).forward_(torch.ones(256), step).tolist())
        for seed in (0, 1, -1, 1 << 40)
        for step in (0, 1, 2, 1 << 40)
    }
    assert len(found) == 16


def test_splitmix64_is_the_published_one() -> None:
    assert _splitmix64(1234567) == 6457827717110365317


def test_what_cannot_be_transformed() -> None:
    for buffer in (torch.ones(2, 2), torch.ones(4)[::2], torch.ones(4, dtype=torch.int32)):
        with pytest.raises(ValueError, match="accepted"):
            Hadamard(0).forward_(buffer, 0)
    for step in (-1, 1 << 64):
        with pytest.raises(ValueError, match="step is"):
            Hadamard(0).inverse_(torch.ones(4), step)
    for chunk_log2 in (-1, 25):
        with pytest.raises(ValueError, match="chunk_log2 is"):
            Hadamard(0, chunk_log2)
    with pytest.raises(ValueError, match="chunk_log2 is 25; accepted: 0 to 24"):
        native.hadamard(0, 0, 25, 0, 0, False)
