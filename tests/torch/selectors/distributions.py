"""Values as gradients have them, and values that break selectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor


def _gaussian(numel: int, rng: torch.Generator) -> Tensor:
    return torch.randn(numel, generator=rng)


def _laplace(numel: int, rng: torch.Generator) -> Tensor:
    exponential = torch.empty(numel).exponential_(generator=rng)
    return exponential * (2 * torch.randint(2, (numel,), generator=rng) - 1)


def _student(freedom: int) -> Callable[[int, torch.Generator], Tensor]:
    def sample(numel: int, rng: torch.Generator) -> Tensor:
        squares = torch.randn(freedom, numel, generator=rng).square().mean(0)
        return torch.randn(numel, generator=rng) / squares.sqrt()

    return sample


def _layers(numel: int, rng: torch.Generator) -> Tensor:
    """60 layers with log-normal scales."""
    scales = torch.exp(1.5 * torch.randn(60, generator=rng))
    return _gaussian(numel, rng) * scales[torch.arange(numel) * 60 // numel]


DISTRIBUTIONS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "gaussian": _gaussian,
    "laplace": _laplace,
    "student_t3": _student(3),
    "student_t2": _student(2),
    "layers": _layers,
}


def sample(name: str, numel: int, seed: int) -> Tensor:
    """float32 of a distribution by name."""
    return DISTRIBUTIONS[name](numel, torch.Generator().manual_seed(seed))


def awkward(numel: int) -> Iterator[tuple[str, Tensor]]:
    """float32 that are equal, nearly so, signed zeros, subnormal, infinite, not numbers, one giant, or in order."""
    rng = torch.Generator().manual_seed(numel)
    ramp = torch.arange(numel, dtype=torch.float32)
    normal = torch.randn(numel, generator=rng)
    third = torch.arange(numel) % 3 == 1
    nan_bits = torch.tensor([0x7F800001, 0x7FC00000, -1, -0x3FFFFF], dtype=torch.int32).view(torch.float32)
    yield "equal", torch.full((numel,), -2.5)
    yield "the last is next", torch.where(ramp == numel - 1, 1 + 2**-23, 1.0)
    yield "zeros", torch.zeros(numel)
    yield "signed zeros", torch.where(third, -0.0, 0.0)
    yield "mostly zeros", torch.where(torch.rand(numel, generator=rng) < 0.9, 0.0, normal)
    yield "ties", (2 * normal).round() / 2
    yield "subnormal", (ramp % 100) * 1e-45
    yield "infinite", torch.where(third, -math.inf, normal)
    yield "all infinite", torch.where(third, -math.inf, math.inf)
    yield "some NaN", torch.where(third, nan_bits[torch.arange(numel) % 4], normal)
    yield "NaN and infinite", torch.where(third, math.nan, torch.where(ramp % 2 == 1, math.inf, normal))
    yield "all NaN", nan_bits[torch.arange(numel) % 4]
    yield "one giant", torch.where(ramp == numel // 2, 3e38, 1e-3 * normal)
    yield "ascending", ramp
    yield "descending", ramp.flip(0)
    yield "any bits", torch.randint(-(2**31), 2**31, (numel,), generator=rng).int().view(torch.float32)
