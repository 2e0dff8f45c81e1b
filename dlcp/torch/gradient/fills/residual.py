"""The sender keeps abandoned values and adds them to its next step's gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.torch.gradient.fills.fill import BufferPlan, Fill, FillOptions
from dlcp.torch.gradient.layout import Layout, Range
from dlcp.torch.gradient.residual.memory import ResidualMemory
from dlcp.torch.gradient.residual.report import ResidualReport


class Residual(Fill):
    """Keeps values in a ResidualMemory, under the options' ResidualRule."""

    residual: ResidualMemory

    def __init__(self, options: FillOptions) -> None:
        self.residual = ResidualMemory(options.residual)

    def begin_step(self, loss_scale: float) -> None:
        self.residual.scale = loss_scale

    def end_step(self, applied: bool) -> ResidualReport:
        self.residual.end_step(applied)
        return self.residual.report()

    def before(self, buffer: torch.Tensor, plan: BufferPlan) -> Sequence[Range]:
        # Of critical parameters nothing is kept.
        layout = plan.layout.without(plan.critical.union(plan.unused))
        self.residual.add_to(buffer, layout)
        return ()

    def lost(self, memory: torch.Tensor, layout: Layout, runs: NDArray[np.int64]) -> None:
        self.residual.keep(memory, layout, runs)

    def state_dict(self) -> dict[str, Any]:
        return self.residual.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.residual.load_state_dict(state)

    def reset(self, names: Iterable[str] | None) -> None:
        self.residual.reset(names)
