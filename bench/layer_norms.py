"""Norms of a model's layers, as LARS asks for them: each rank all of them, or its share and an all-gather (PTO).

Two ranks on a core each, over shared memory and over loopback. It pays where reading the layers takes longer than a
round trip; small models lose.
"""

from __future__ import annotations

import time

from bench.collectives.world import DLCP, DLCP_SHM, Place, Ranks
from bench.report import Report, in_turn, ratios, slowest, spread

SUMMARY = "norms of all layers, on every rank or shared among ranks (PTO)"
NEEDS_LAB = False
NEEDS_PROGRAMS = False

# Elements of layers of more than one dimension.
MODELS = {
    "0.1 M in 12 layers": [8_192] * 12,
    "25 M in 54 layers": [460_000] * 54,
    "110 M in 76 layers": [1_450_000] * 76,
}
WORLD = 2


def run(*, quick: bool) -> Report:
    repeats, count = (1, 20) if quick else (5, 60)
    report = Report("layer_norms", {"repeats": repeats, "steps each": count})
    table = report.table(
        "norms of weights and gradients, 2 ranks, slowest: median", ["", "", "alone ms", "shared ms"]
    )
    with Ranks() as ranks:
        backends = {"shared memory": DLCP_SHM, "loopback": DLCP}
        cases = {(model, words): backends[words] for model in MODELS for words in backends}

        def measure(case: tuple[str, str]) -> tuple[float, float]:
            model, words = case
            timed = ranks.run(time_norms, Place.loopback(WORLD), backends[words], MODELS[model], count)
            alone, shared = (sorted(slowest(one[place] for one in timed)) for place in (0, 1))
            return alone[count // 2], shared[count // 2]

        found = in_turn(repeats, {case: case for case in cases}, measure)
    for (model, words), medians in found.items():
        alone, shared = ([one[place] * 1e3 for one in medians] for place in (0, 1))
        table.add(model, words, spread(alone, 3), spread(shared, 3))
        if model != "0.1 M in 12 layers":
            report.at_least(1.2, f"{model}, {words}: time, alone / shared", ratios(alone, shared))
    return report


def time_norms(numels: list[int], count: int) -> tuple[list[float], list[float]]:
    """On a rank: seconds of each step alone, and shared."""
    import torch

    from dlcp.torch.layer_norms import LayerNorms

    tensors = [[torch.randn(numel) for numel in numels] for _ in range(2)]
    shared, times = LayerNorms(numels), ([], [])  # type: tuple[LayerNorms, tuple[list[float], list[float]]]

    def alone() -> None:
        for kind in tensors:
            for tensor in kind:
                torch.linalg.vector_norm(tensor, dtype=torch.float32)

    for step in range(count + 3):
        for place, way in enumerate((alone, lambda: shared.of(*tensors))):
            start_s = time.perf_counter()
            way()
            if step >= 3:
                times[place].append(time.perf_counter() - start_s)
    return times
