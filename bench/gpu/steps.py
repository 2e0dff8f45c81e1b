"""A step of DistributedDataParallel on CUDA with the parameters of ResNet-50, two ranks on one GPU.

The model is the stack of `bench ddp`, so that torch is all that is needed. The batch makes it about as much arithmetic
as ResNet-50 has with 32 images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench import ddp
from bench.collectives.world import DLCP, DLCP_SHM, GLOO, Backend, Place, Ranks
from bench.report import Report, in_turn, ratios, spread

# 12 layers: 25.6 million parameters.
WIDTH, SAMPLES = 1459, 4096


@dataclass(frozen=True)
class Variant:
    """What carries gradients, and how."""

    backend: Backend
    options: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        return f"{self.backend.label}{', int4' if self.options else ''}"


LOW: dict[str, Any] = {"recipe": "low_bit", "codec": "int4", "warmup_steps": 0}
OVER_GLOO = Variant(GLOO)
EXACT = (Variant(DLCP), Variant(DLCP_SHM))
CODED = (Variant(DLCP, LOW), Variant(DLCP_SHM, LOW))
VARIANTS = {variant.label: variant for variant in (OVER_GLOO, *EXACT, *CODED)}


def measure(ranks: Ranks, repeats: int, seconds: float) -> dict[str, list[list[ddp.Steps]]]:
    """By variant a list of worlds of ranks. Raises WorldError."""
    return in_turn(
        repeats,
        VARIANTS,
        lambda one: ranks.run(
            ddp.train, Place.loopback(2), one.backend, seconds, "cuda:0", WIDTH, SAMPLES, one.options
        ),
    )


def judge(report: Report, found: dict[str, list[list[ddp.Steps]]]) -> None:
    times = {label: [ddp.step_s(world) for world in worlds] for label, worlds in found.items()}
    parameters = found[OVER_GLOO.label][0][0].parameters
    table = report.table(
        f"a step of DDP, {parameters / 1e6:.1f} million parameters, two ranks: median (lowest–highest)",
        ["", "ms", "of Gloo", "last loss"],
    )
    for label, worlds in found.items():
        of_gloo = ratios(times[label], times[OVER_GLOO.label])
        ms = spread((1e3 * time_s for time_s in times[label]), 1)
        table.add(label, ms, of_gloo, f"{worlds[0][0].last_loss:.6f}")
    for exact, coded in zip(EXACT, CODED, strict=True):
        of_gloo = ratios(times[exact.label], times[OVER_GLOO.label])
        report.at_most(1.0, f"DDP: time per step, {exact.label} / Gloo", of_gloo)
        of_exact = ratios(times[coded.label], times[exact.label])
        report.at_most(1.0, f"DDP: time per step, {coded.label} / exact", of_exact)
