"""Nothing of a gradient goes missing: inputs = delivered + kept + written off, per element, in random runs.

Every case is a small model whose parameters are cut and packed anew each step, losses that come alone or in bursts, and
a rule; what the memory keeps is compared with a slow twin, and the balance is drawn with what really left in buffers.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.torch.gradient.residual.memory import ResidualMemory
from dlcp.torch.gradient.residual.rule import ResidualRule
from tests.support.residual_twin import Twin

Array = NDArray[np.float64]

CASES = 1000
GROUP = 50


@dataclass
class Case:
    """What a seed decides."""

    rng: np.random.Generator
    rule: ResidualRule
    numels: dict[str, int]
    dtype: torch.dtype
    bursty: bool
    loss: float


def _case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    rule = ResidualRule(
        decay=float(rng.choice([0.0, 0.5, 0.9, 1.0], p=[0.1, 0.4, 0.2, 0.3])),
        age_max=int(rng.integers(1, 4)) if rng.random() < 0.5 else None,
        momentum=float(rng.choice([0.5, 0.9])) if rng.random() < 0.3 else None,
    )
    numels = {f"layer{i}.weight": int(rng.integers(1, 60)) for i in range(rng.integers(1, 6))}
    dtype = torch.float64 if rng.random() < 0.2 else torch.float32
    return Case(rng, rule, numels, dtype, bool(rng.random() < 0.5), float(rng.choice([0.05, 0.3, 0.7])))


def _layouts(case: Case) -> list[Layout]:
    """Some of the parameters, cut, shuffled and dealt to buffers, with padding between."""
    rng = case.rng
    cuts: list[tuple[str, int, int]] = []
    for name, numel in case.numels.items():
        if rng.random() < 0.15:
            continue
        inner = np.sort(rng.integers(0, numel + 1, rng.integers(0, 3)))
        edges = [0, *inner.tolist(), numel]
        cuts += [(name, begin, end - begin) for begin, end in itertools.pairwise(edges)]
    if rng.random() < 0.7:
        cuts = [cuts[i] for i in rng.permutation(len(cuts))]
    layouts = []
    for hand in np.array_split(np.arange(len(cuts)), rng.integers(1, 4)):
        segments, at = [], 0
        for i in hand.tolist():
            at += int(rng.integers(0, 3))
            name, offset, count = cuts[i]
            segments.append(Segment(name, offset, at, count))
            at += count
        layouts.append(Layout(tuple(segments), at + int(rng.integers(0, 3))))
    return layouts


def _abandoned(case: Case, numel: int) -> list[tuple[int, int]]:
    """Blocks that are abandoned, alone or in bursts; as ranges in any order, some of them side by side."""
    rng = case.rng
    block = int(rng.integers(1, 12))
    blocks = -(-numel // block)
    if case.bursty:
        lost, state = [], False
        for _ in range(blocks):
            state = rng.random() < (0.8 if state else 0.2 * case.loss / (1 - case.loss))
            lost.append(state)
    else:
        lost = (rng.random(blocks) < case.loss).tolist()
    ranges = [(i * block, min((i + 1) * block, numel)) for i, gone in enumerate(lost) if gone]
    return [ranges[i] for i in rng.permutation(len(ranges))]


def _kept(memory: ResidualMemory, numels: dict[str, int]) -> dict[str, tuple[Array, Any, Any]]:
    """What a memory keeps, by parameter: values, whether there is one, and steps waited."""
    dense = {
        name: (np.zeros(numel), np.zeros(numel, bool), np.zeros(numel, np.int64))
        for name, numel in numels.items()
    }
    for batch in memory.state_dict()["batches"]:
        values, at = batch["values"].double().numpy() * batch["factor"], 0
        for parameter, offset, count, age in zip(
            *(batch[key].tolist() for key in ("parameter", "offset", "count", "age")), strict=True
        ):
            value, held, ages = dense[batch["names"][parameter]]
            run = slice(offset, offset + count)
            assert not held[run].any(), "an element is kept twice"
            value[run], held[run], ages[run] = values[at : at + count], True, age
            at += count
        assert at == len(values)
    return dense


def _pass(
    case: Case, memory: ResidualMemory, twin: Twin, *, overflow: bool, left_alone: Collection[str]
) -> None:
    """All buffers of one backward pass; they overlap in time as DDP's do."""
    rng, under_way = case.rng, []
    for layout in _layouts(case):
        ranges = _abandoned(case, layout.numel)
        lost = [i for begin, end in ranges for i in range(begin, end)]
        gradient = torch.from_numpy(rng.normal(size=layout.numel) * 10.0 ** rng.integers(-3, 3)).to(
            case.dtype
        )
        if lost and rng.random() < 0.2:
            gradient[rng.choice(lost)] = float(rng.choice([np.nan, np.inf, -np.inf]))
        if overflow and layout.numel:
            gradient[rng.integers(layout.numel)] = np.inf
        buffer = gradient * memory.scale
        told = [segment for segment in layout.segments if segment.name not in left_alone]
        memory.add_to(buffer, Layout(tuple(told), layout.numel))
        under_way.append((layout, ranges, lost, gradient, buffer))
    for index in rng.permutation(len(under_way)):
        layout, ranges, lost, gradient, buffer = under_way[index]
        left = buffer.clone()
        memory.keep(buffer, layout, ranges)
        torch.testing.assert_close(buffer, left, rtol=0, atol=0, equal_nan=True)
        delivered = buffer.double().numpy() / memory.scale
        twin.exchange(gradient.double().numpy(), delivered, layout, lost, left_alone)


def _run(seed: int) -> None:
    case = _case(seed)
    rng = case.rng
    memory, twin = ResidualMemory(case.rule), Twin(case.rule, case.numels)
    for _ in range(rng.integers(2, 9)):
        memory.scale = float(2.0 ** rng.integers(-2, 17)) if rng.random() < 0.3 else memory.scale
        overflow = bool(rng.random() < 0.15)
        left_alone = [name for name in case.numels if rng.random() < 0.1]
        for _ in range(1 + (rng.random() < 0.15)):
            _pass(case, memory, twin, overflow=overflow, left_alone=left_alone)
        memory.end_step(applied=not overflow)
        twin.end_step(applied=not overflow)

        kept = _kept(memory, case.numels)
        for name, p in twin.parameters.items():
            value, held, age = kept[name]
            np.testing.assert_array_equal(held, p.held, f"which elements of {name} are kept")
            np.testing.assert_array_equal(age, p.age, f"how long {name} has waited")
            bound = 1e-6 * p.magnitude
            assert (np.abs(value - p.value) <= bound).all(), f"what is kept of {name}"
            balance = p.given + p.made - p.delivered - value - p.expired - p.decayed
            assert (np.abs(balance) <= bound).all(), f"mass of {name}: {balance} of {p.magnitude}"
        report = memory.report()
        assert report.elements == sum(int(p.held.sum()) for p in twin.parameters.values())
        assert report.nbytes == report.elements * case.dtype.itemsize
        assert report.age == max(int(p.age.max()) for p in twin.parameters.values())
        assert report.total.expired_elements == twin.expired_elements
        assert report.total.not_finite_elements == twin.not_finite_elements
        size = float(sum((p.magnitude**2).sum() for p in twin.parameters.values())) ** 0.5
        for norm, energy in (
            (report.total.expired_norm, twin.energies["expired"]),
            (report.total.decayed_norm, twin.energies["decayed"]),
            (report.norm, sum((p.value**2).sum() for p in twin.parameters.values())),
        ):
            assert norm == pytest.approx(energy**0.5, rel=1e-5, abs=1e-6 * size)


@pytest.mark.parametrize("first", range(0, CASES, GROUP))
def test_mass_is_accounted_for(first: int) -> None:
    """Inputs = delivered + kept + written off: which elements exactly, values to 1e-6."""
    for seed in range(first, first + GROUP):
        try:
            _run(seed)
        except AssertionError as error:
            raise AssertionError(f"case {seed}: {_case(seed)}: {error}") from error
