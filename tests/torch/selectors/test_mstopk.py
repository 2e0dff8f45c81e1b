"""MSTopK: exactly k elements whatever the values, and nearly the energy of the k largest."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from dlcp.torch.selectors import Largest, MSTopK
from tests.support.seeds import for_each_seed
from tests.torch.selectors.distributions import DISTRIBUTIONS, awkward, sample


def check_indices(indices: Tensor, numel: int, k: int) -> None:
    assert indices.dtype == torch.int64
    assert indices.numel() == k
    assert k == 0 or (indices[0] >= 0 and indices[-1] < numel)
    assert bool((indices.diff() > 0).all()), "distinct and ascending"


def energy(values: Tensor, indices: Tensor) -> float:
    return values[indices].double().square().sum().item()


def captured(values: Tensor, k: int, passes: int) -> float:
    """The energy of the selection, as a part of what the k largest have."""
    return energy(values, MSTopK(passes).select(values, k)) / energy(values, Largest().select(values, k))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_15_passes_capture_the_energy(name: str) -> None:
    values = sample(name, 200_000, 1)
    for k in (200, 2000):
        assert captured(values, k, 15) >= 0.999, k


def test_5_passes_are_too_few_for_a_heavy_tail() -> None:
    """So it is the published search, and not an exact selector by another name."""
    assert captured(sample("student_t3", 200_000, 1), 2000, 5) < 0.95


@pytest.mark.parametrize("numel", [1, 2, 7, 100, 3000])
def test_exactly_k_of_awkward_values(numel: int) -> None:
    for name, values in awkward(numel):
        for k in sorted({0, 1, numel // 100, numel // 2, numel - 1, numel}):
            indices = MSTopK(passes=10).select(values, k)
            check_indices(indices, numel, k)
            lost = set(Largest().select(values, k).tolist()) - set(indices.tolist())
            huge = values.isnan() | values.isinf()
            if int(huge.sum()) <= k:
                assert not any(huge[index] for index in lost), (name, k)


@for_each_seed(range(100))
def test_exactly_k_of_random_values(seed: int) -> None:
    rng = random.Random(seed)
    numel = rng.randrange(1, 5000)
    values = sample(rng.choice(list(DISTRIBUTIONS)), numel, seed)
    if rng.random() < 0.3:
        values = (2 * values).round()
    k = rng.randrange(numel + 1)
    check_indices(MSTopK(rng.randrange(1, 40), seed).select(values, k), numel, k)


def test_the_run_stays_within_its_band() -> None:
    """Of equal values any run of k may be selected, the first and the last included."""
    selector = MSTopK(seed=3)
    begins = set()
    for _ in range(200):
        indices = selector.select(torch.ones(10), 7)
        assert torch.equal(indices, indices[0] + torch.arange(7))
        begins.add(int(indices[0]))
    assert begins == {0, 1, 2, 3}


def test_k_beyond_the_mean_is_reached() -> None:
    values = sample("gaussian", 100_000, 2)
    for k in (60_000, 99_000):
        assert captured(values, k, 20) >= 0.999


def test_huge_and_infinite_values_do_not_spoil_the_mean() -> None:
    values = 1e37 * sample("gaussian", 200_000, 3)  # their sum has no float32
    assert captured(values, 2000, 15) >= 0.999
    values[[5, 77]] = torch.tensor([math.inf, math.nan])
    indices = MSTopK(15).select(values, 2000)
    assert {5, 77} <= set(indices.tolist())
    finite, exact = (values[each].nan_to_num(0, 0) for each in (indices, Largest().select(values, 2000)))
    assert finite.double().norm() >= 0.999 * exact.double().norm()


def test_a_seed_repeats_and_steps_differ() -> None:
    values = torch.ones(1000)
    first, again, other = (
        [one.select(values, 10) for _ in range(3)] for one in map(MSTopK, (30,) * 3, (1, 1, 2))
    )
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))
    assert not torch.equal(first[0], first[1])


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match="passes is 0; accepted: an integer from 1"):
        MSTopK(passes=0)
    with pytest.raises(ValueError, match="k is 4; accepted: 0 up to 3"):
        MSTopK().select(torch.ones(3), 4)
