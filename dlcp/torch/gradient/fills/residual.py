"""The sender keeps abandoned values and adds them to its next step's gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.torch.gradient.fills.fill import BufferPlan, Fill, Range
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.residual import ResidualMemory
from dlcp.torch.gradient.residual_report import ResidualReport

if TYPE_CHECKING:
    from dlcp.torch.gradient.options import GradientOptions

# Whether a parameter has a gradient in this step is usually seen from so many elements.
_PROBE_NUMEL = 64


class Residual(Fill):
    """Keeps values in a ResidualMemory, under the options' ResidualRule."""

    residual: ResidualMemory

    def __init__(self, options: GradientOptions) -> None:
        self.residual = ResidualMemory(options.residual)

    def begin_step(self, loss_scale: float) -> None:
        self.residual.scale = loss_scale

    def end_step(self, applied: bool) -> ResidualReport:
        self.residual.end_step(applied)
        return self.residual.report()

    def before(self, buffer: torch.Tensor, plan: BufferPlan) -> Sequence[Range]:
        self.residual.add_to(buffer, _with_gradient(buffer, plan.layout, plan.critical))
        return ()

    def lost(self, memory: torch.Tensor, layout: Layout, runs: NDArray[np.int64]) -> None:
        self.residual.keep(memory, layout, runs)

    def state_dict(self) -> dict[str, Any]:
        return self.residual.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.residual.load_state_dict(state)

    def reset(self, names: Iterable[str] | None) -> None:
        self.residual.reset(names)


def _with_gradient(buffer: torch.Tensor, layout: Layout, critical: frozenset[str]) -> Layout:
    """The layout without critical parameters, of which nothing is kept, and those whose gradient here is all zero.

    Perhaps no rank uses the latter in this step. DDP would then leave their gradients unchanged, and added residuals
    would be lost.
    """
    return Layout(
        tuple(
            segment
            for segment in layout.segments
            if segment.name not in critical and _has_gradient(buffer, segment.begin, segment.end)
        ),
        layout.numel,
    )


def _has_gradient(buffer: torch.Tensor, begin: int, end: int) -> bool:
    return bool(buffer[begin : min(end, begin + _PROBE_NUMEL)].any()) or bool(buffer[begin:end].any())
