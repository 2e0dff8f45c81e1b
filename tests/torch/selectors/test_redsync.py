"""RedSync's selectors keep their rules: trimming is exact, the binary search selects k to 2 k."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from dlcp.torch.selectors import SELECTORS, Binary, Largest, SampledThreshold, Trimmed
from dlcp.torch.selectors.bisection import Magnitudes
from dlcp.torch.selectors.redsync import trim_threshold
from tests.support.seeds import for_each_seed
from tests.torch.selectors.distributions import DISTRIBUTIONS, awkward, sample


def check_indices(indices: Tensor, numel: int, least: int, most: int) -> None:
    assert indices.dtype == torch.int64
    assert least <= indices.numel() <= most
    assert indices.numel() == 0 or (indices[0] >= 0 and indices[-1] < numel)
    assert bool((indices.diff() > 0).all()), "distinct and ascending"


# --- trimmed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_trimmed_takes_the_first_threshold_that_k_reach(name: str) -> None:
    values = sample(name, 20_000, 3)
    magnitudes = values.abs().double()
    mean, most = magnitudes.mean().item(), magnitudes.max().item()
    for k in (1, 20, 200, 15_000):
        steps = [mean + part * (most - mean) for part in (0.8, 0.6, 0.4, 0.2, 0.0)]
        expected = next((step for step in steps if int((magnitudes >= step).sum()) >= k), 0.0)
        assert trim_threshold(Magnitudes(values), k, 0.2) == pytest.approx(expected, rel=1e-5, abs=1e-9)
        assert torch.equal(Trimmed().select(values, k), Largest().select(values, k))


@pytest.mark.parametrize("numel", [1, 2, 7, 100, 3000])
def test_trimmed_is_exact_of_awkward_values(numel: int) -> None:
    for name, values in awkward(numel):
        for k in sorted({0, 1, numel // 100, numel // 2, numel - 1, numel}):
            found = Trimmed().select(values, k)
            assert torch.equal(found, Largest().select(values, k)), (name, k)


# --- binary ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_binary_lands_within_k_and_2k(name: str) -> None:
    values = sample(name, 100_000, 4)
    for k in (1, 10, 100, 1000, 10_000, 45_000, 99_999):
        indices = Binary().select(values, k)
        check_indices(indices, values.numel(), k, 2 * k)
        # All that reach a threshold: nothing that is left out is larger.
        left_out = torch.ones(values.numel(), dtype=torch.bool)
        left_out[indices] = False
        assert not left_out.any() or values[left_out].abs().max() < values[indices].abs().min()


@pytest.mark.parametrize("numel", [1, 2, 7, 100, 3000])
def test_binary_keeps_its_bounds_of_awkward_values(numel: int) -> None:
    for _, values in awkward(numel):
        for k in sorted({0, 1, numel // 100, numel // 2, numel - 1, numel}):
            check_indices(Binary().select(values, k), numel, k, 2 * k)


@for_each_seed(range(100))
def test_binary_keeps_its_bounds_of_random_values(seed: int) -> None:
    rng = random.Random(seed)
    numel = rng.randrange(1, 5000)
    values = sample(rng.choice(list(DISTRIBUTIONS)), numel, seed)
    if rng.random() < 0.3:
        values = (2 * values).round()
    k = rng.randrange(numel + 1)
    check_indices(Binary(rng.randrange(1, 40)).select(values, k), numel, k, 2 * k)


def test_without_a_threshold_binary_selects_the_first_k() -> None:
    values = torch.tensor([1.0, 5.0] + [1.0] * 98)
    assert Binary().select(values, 3).tolist() == [0, 1, 2]


# --- sampled threshold ----------------------------------------------------------------------------------------


def test_a_threshold_is_used_for_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0
    count = Magnitudes.count

    def counted(self: Magnitudes, threshold: float) -> int:
        nonlocal passes
        passes += 1
        return count(self, threshold)

    monkeypatch.setattr(Magnitudes, "count", counted)
    selector = SampledThreshold(interval=3)
    searched = []
    for step in range(9):
        passes = 0
        values = sample("gaussian", 50_000, step)
        indices = selector.select(values, 500)
        check_indices(indices, values.numel(), 250, 1000)
        searched.append(passes > 1)
        threshold = values[indices].abs().min().item()
        assert int((values.abs() >= threshold).sum()) == indices.numel(), "all that reach the threshold"
    assert searched == [True, False, False] * 3


def test_a_threshold_that_no_longer_fits_is_searched_anew() -> None:
    selector = SampledThreshold(interval=100)
    for step, (scale, k) in enumerate(
        [(1, 500), (10, 500), (0.01, 500), (0.01, 5000), (math.nan, 10), (1, 10)]
    ):
        values = scale * sample("gaussian", 50_000, step)
        check_indices(selector.select(values, k), values.numel(), k // 2, 2 * k)


# --- all ------------------------------------------------------------------------------------------------------


def test_lengths_are_fixed_as_said() -> None:
    values = sample("layers", 10_000, 5)
    for name, make in SELECTORS.items():
        selector = make()
        lengths = [selector.select(values, k).numel() - k for k in (0, 1, 10, 100, 1000, 10_000)]
        assert selector.fixed_length == (not any(lengths)), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device and torch with CUDA")
@pytest.mark.parametrize("name", SELECTORS)
def test_cuda(name: str) -> None:
    for k in (0, 10, 1000, 10_000):
        indices = SELECTORS[name]().select(sample("layers", 10_000, 6).cuda(), k)
        assert indices.is_cuda
        check_indices(indices.cpu(), 10_000, k, 2 * k)


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match="step is 1; accepted: a number above 0"):
        Trimmed(step=1)
    with pytest.raises(ValueError, match="interval is 0; accepted: an integer from 1"):
        SampledThreshold(interval=0)
    for make in SELECTORS.values():
        with pytest.raises(ValueError, match="k is 4; accepted: 0 up to 3"):
            make().select(torch.ones(3), 4)
        with pytest.raises(ValueError, match="one dimension"):
            make().select(torch.ones(2, 2), 1)
