"""Runs of elements: where lists of them meet, and moving what lies in them, against element-by-element code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dlcp.torch.gradient import element_runs
from dlcp.torch.gradient.element_runs import add, gather, intersect, merged, starts


def _random_runs(rng: np.random.Generator, numel: int) -> tuple[Any, Any]:
    edges = np.sort(rng.choice(numel + 1, 2 * int(rng.integers(0, min(12, numel // 2))), replace=False))
    return edges[::2].astype(np.int64), edges[1::2].astype(np.int64)


def _mask(runs: tuple[Any, Any], numel: int) -> Any:
    mask = np.zeros(numel, bool)
    for begin, end in zip(*runs, strict=True):
        mask[begin:end] = True
    return mask


def test_runs_meet_where_their_elements_do() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        numel = int(rng.integers(2, 80))
        one, other = _random_runs(rng, numel), _random_runs(rng, numel)
        both = intersect(*one, *other)
        np.testing.assert_array_equal(
            _mask((both.begin, both.end), numel), _mask(one, numel) & _mask(other, numel)
        )
        assert (both.end > both.begin).all()
        assert (both.begin[1:] >= both.end[:-1]).all()
        for runs, index in ((one, both.first), (other, both.second)):
            assert (runs[0][index] <= both.begin).all()
            assert (both.end <= runs[1][index]).all()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_runs_are_gathered_and_added_as_element_by_element(
    dtype: torch.dtype, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        # As on other devices.
        monkeypatch.setattr(element_runs, "_is_native", lambda *_: False)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        numel = int(rng.integers(2, 400))
        begin, end = _random_runs(rng, numel)
        count = end - begin
        # A part of other memory, as buffers may be.
        source = torch.from_numpy(rng.normal(size=numel + 3)).to(dtype)[3:]
        elements = [i for first, last in zip(begin, end, strict=True) for i in range(first, last)]
        got = gather(source, begin, count)
        assert torch.equal(got, source[elements])
        values = torch.from_numpy(rng.normal(size=len(elements)))
        if dtype != torch.float64 or not native:
            values = values.to(torch.float32)
        target, expected = source.clone(), source.clone()
        add(target, begin, count, values, starts(count), 0.3)
        wide = torch.promote_types(dtype, torch.float32)
        expected[elements] = (source[elements].to(wide) + 0.3 * values.to(wide)).to(dtype)
        # torch may round a product and its sum at once; native code rounds each.
        exact = native or dtype not in (torch.float32, torch.float64)
        rtol = 0 if exact else 1e-6 if dtype == torch.float32 else 1e-14
        torch.testing.assert_close(target, expected, rtol=rtol, atol=rtol)


def test_a_run_outside_its_memory_is_refused() -> None:
    memory, values = torch.zeros(8), torch.ones(4)
    for begin, count in ((6, 3), (-1, 2), (2, -1)):
        runs = np.array([begin], np.int64), np.array([count], np.int64)
        with pytest.raises(ValueError, match="accepted: within 8"):
            gather(memory, *runs, torch.zeros(max(count, 0)))
        with pytest.raises(ValueError, match="accepted: within 8"):
            add(memory, *runs, values, np.zeros(1, np.int64))
    runs = np.array([0], np.int64), np.array([4], np.int64)
    with pytest.raises(ValueError, match="accepted: within 4"):
        add(memory, *runs, values, np.ones(1, np.int64))
    with pytest.raises(ValueError, match="room for 3"):
        gather(memory, *runs, torch.zeros(3))
    assert not memory.any()


def test_ranges_are_merged_and_checked() -> None:
    begin, end = merged([(6, 8), (0, 2), (3, 3), (2, 5)], 8)
    assert (begin.tolist(), end.tolist()) == ([0, 6], [5, 8])
    for wrong in ([(-1, 2)], [(0, 9)], [(5, 4)]):
        with pytest.raises(ValueError, match="accepted: within 8 elements"):
            merged(wrong, 8)
    with pytest.raises(ValueError, match=r"\(0, 4\) and \(3, 5\) overlap"):
        merged([(3, 5), (0, 4)], 8)
