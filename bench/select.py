"""Selection of the k largest of 25 million float32, against a bare read pass, torch.topk and np.partition.

One thread, processor time. The read pass is the sum of squares of the importance kernel, of the same variant.
Of one distribution all take turns, A B C A B C …, and a ratio is of one turn. torch.topk and np.partition are
given the magnitudes, which they need and which take time; np.partition finds values, not indices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report import Figure, Report, in_turn, ratios
from dlcp import _native as native

SUMMARY = "the k largest of 25 million float32, beside a read pass, torch.topk and np.partition"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
NUMEL = 25_000_000
DENSITIES = {0.001: 2.5, 0.01: 3.0}
"""Which part is selected, and how many read passes that may take."""
OVER_TORCH_AT_LEAST = 40.0
OVER_NUMPY_AT_LEAST = 5.0
# The densest of the two for selectors as published; their passes are torch operations.
PUBLISHED_DENSITY = 0.01

Floats = NDArray[np.float32]
Case = Callable[[], float]


def run(*, quick: bool) -> Report:
    import torch

    turns = 3 if quick else 9
    report = Report("select", {"processor": processor(), "elements": f"{NUMEL:,}", "turns": turns})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, make in DISTRIBUTIONS.items():
            values = make(np.random.default_rng(1))
            for density in DENSITIES:
                _judge(report, name, density, _measure(turns, _cases(values, density)))
            if name == "Gaussian":
                _published(report, values, turns)
    finally:
        torch.set_num_threads(threads)
    return report


# --- the exact selector ---------------------------------------------------------------------------------------


def _cases(values: Floats, density: float) -> dict[str, Case]:
    import torch

    k = int(density * NUMEL)
    out = np.zeros(k, np.int64)
    tensor = torch.from_numpy(values)
    cases: dict[str, Case] = {}
    for variant in native.reduce_variants():
        cases[f"{variant} read"] = _timed(_read_pass, values, variant)
        for method in ("sampled", "histogram"):
            cases[f"{variant} {method}"] = _timed(_select, values, out, variant, method)
    cases["torch.topk"] = _timed(lambda: tensor.abs().topk(k, sorted=False))
    cases["np.partition"] = _timed(lambda: np.partition(np.abs(values), NUMEL - k))
    return cases


def _judge(report: Report, name: str, density: float, found: dict[str, list[float]]) -> None:
    title = f"{name}, {density:.1%} selected: median (lowest–highest)"
    table = report.table(title, ["", "ms", "of a read pass", "torch.topk over it", "np.partition over it"])
    for variant in native.reduce_variants():
        for method in ("read", "sampled", "histogram"):
            times = found[f"{variant} {method}"]
            passes = ratios(times, found[f"{variant} read"])
            over_torch = ratios(found["torch.topk"], times)
            over_numpy = ratios(found["np.partition"], times)
            table.add(f"{variant} {method}", _ms(times), passes, over_torch.show(1), over_numpy.show(1))
            if variant != "portable" and method == "sampled":
                what = f"{name}, {density:.1%}, {variant}"
                report.at_most(DENSITIES[density], f"{what}: of a read pass", passes)
                report.at_least(OVER_TORCH_AT_LEAST, f"{what}: torch.topk over it", over_torch)
                report.at_least(OVER_NUMPY_AT_LEAST, f"{what}: np.partition over it", over_numpy)
    for other in ("torch.topk", "np.partition"):
        table.add(other, _ms(found[other]), "", "", "")


def _select(values: Floats, out: NDArray[np.int64], variant: str, method: str) -> None:
    native.select_largest(values.ctypes.data, NUMEL, out, sampled=method == "sampled", variant=variant)


def _read_pass(values: Floats, variant: str) -> None:
    """The importance of one block that is all there is."""
    native.importance(
        native.DataType.f32,
        values.ctypes.data,
        NUMEL,
        np.array([[0, NUMEL]]),
        np.ones(1),
        np.zeros(1, np.bool_),
        np.array([[0, NUMEL, NUMEL]]),
        native.IMPORTANCE_CODES,
        np.empty(1, np.uint8),
        np.zeros(native.IMPORTANCE_CODES, np.uint64),
        np.zeros(1),
        variant=variant,
    )


# --- selectors as published -----------------------------------------------------------------------------------


def _published(report: Report, values: Floats, turns: int) -> None:
    """Times, lengths and energy of all selectors, on the distribution with which it began."""
    import torch

    from dlcp.torch.selectors import SELECTORS, Largest

    k = int(PUBLISHED_DENSITY * NUMEL)
    tensor = torch.from_numpy(values)
    exact = Largest().select(tensor, k)
    energy = tensor[exact].double().square().sum().item()
    variant = native.reduce_variants()[-1]
    cases: dict[str, Case] = {"read": _timed(_read_pass, values, variant)}
    for name, make in SELECTORS.items():
        cases[name] = _timed(make().select, tensor, k)
    found = _measure(min(turns, 5), cases)
    table = report.table(
        f"Gaussian, {PUBLISHED_DENSITY:.1%}, selectors of dlcp.torch.selectors",
        ["", "ms", "of a read pass", "selected / k", "energy / that of the k largest"],
    )
    for name, make in SELECTORS.items():
        indices = make().select(tensor, k)
        captured = tensor[indices].double().square().sum().item() / energy
        passes = ratios(found[name], found["read"])
        table.add(name, _ms(found[name]), passes, indices.numel() / k, captured)


# --- data and time --------------------------------------------------------------------------------------------


def _gaussian(rng: np.random.Generator) -> Floats:
    return rng.standard_normal(NUMEL, np.float32)


def _layers(rng: np.random.Generator) -> Floats:
    """60 layers with log-normal scales."""
    scales = np.exp(1.5 * rng.standard_normal(60)).astype(np.float32)
    values = _gaussian(rng)
    for layer, scale in zip(np.array_split(values, 60), scales, strict=True):
        layer *= scale
    return values


def _student_t3(rng: np.random.Generator) -> Floats:
    squares = sum(
        (rng.standard_normal(NUMEL, np.float32) ** 2 for _ in range(3)), np.zeros(NUMEL, np.float32)
    )
    values: Floats = _gaussian(rng) / np.sqrt(squares / 3)
    return values


def _mostly_zeros(rng: np.random.Generator) -> Floats:
    """As behind a ReLU: seven of ten are 0."""
    values = _gaussian(rng)
    values[values < 0.5] = 0
    return values


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "Gaussian": _gaussian,
    "60 layers": _layers,
    "Student t3": _student_t3,
    "mostly zeros": _mostly_zeros,
}


def _measure(turns: int, cases: dict[str, Case]) -> dict[str, list[float]]:
    """Seconds of each case by turn, after a turn that fetches memory from the system."""
    return {name: times[1:] for name, times in in_turn(turns + 1, cases, lambda case: case()).items()}


def _timed(work: Callable[..., object], *arguments: Any, **named: Any) -> Case:
    """Calls it and says how much processor time it took."""

    def once() -> float:
        start_s = time.thread_time()
        work(*arguments, **named)
        return time.thread_time() - start_s

    return once


def _ms(times_s: list[float]) -> str:
    return Figure.of(1e3 * time_s for time_s in times_s).show(1)


def processor() -> str:
    """The processor's name, because vectors of 512 bits change what is found."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
