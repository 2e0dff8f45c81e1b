"""What a user may say about how gradients may be lost. Everything here must be the same on all ranks.

Checked when made: a wrong value raises ValueError or TypeError, naming what is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from dlcp.torch.gradient.fills import FILLS
from dlcp.torch.gradient.patience import PatienceRule
from dlcp.torch.gradient.phase import PhaseRule
from dlcp.torch.gradient.residual_rule import ResidualRule

CriticalRule = Callable[[str, torch.nn.Parameter], bool]


@dataclass(frozen=True, slots=True)
class GradientOptions:
    """How gradients may be lost."""

    loss_budget: float | Mapping[str, float] = 0.05
    """Fraction of gradient bytes that a rank may give up, 0 (nothing) up to 1, 1 excluded. A mapping: by parameter
    name, where a name with a star at its end stands for all that begin so, the longest that fits counts, and "" for the
    rest."""
    budget_scope: Literal["step", "buffer"] = "step"
    """"buffer": each buffer has its fraction. "step": what early buffers leave of the budget, later ones may spend:
    they are what the end of the step waits for."""
    loss_cap: float = 0.5
    """Of one buffer at most, whatever the step has left."""
    critical: CriticalRule | Collection[str] | None = None
    """Parameters that lose nothing: names, or a rule of name and parameter. None: those of at most one dimension, small
    ones, and the output layer (critical.py)."""
    small_numel: int = 4096
    """A parameter of fewer elements is small."""
    critical_share: float = 0.3
    """Of the remaining bytes, the share that is critical by importance: the highest quantile of the step before."""
    importance: Literal["rms", "sampled", "uniform"] | Callable[..., object] = "rms"
    """"rms": the RMS of a block over the running RMS of its parameter. "sampled": the same of some of its values, on
    the CPU, in half the time; what is not finite elsewhere is not seen and may be lost. "uniform": all blocks
    alike, so that chance decides whom the network drops, as in the papers. Or a function, see importance.py."""
    fill: str = "residual"
    """What becomes of a contribution that was given up. "residual": its sender keeps it and adds it to the next step's.
    "rescale": the sum is divided by the contributions that came. "zero": it counts as nothing (DLCP, MLT). "hadamard":
    as zero, behind a randomised Hadamard transform, so that a loss is spread over many values (OptiReduce). The names
    are those of fills.FILLS."""
    residual: ResidualRule = field(default_factory=ResidualRule)
    phase: PhaseRule | None = None
    """Narrows the budget in phases of the training that bear less; None: the budget is constant."""
    layer_classes: bool = False
    """Buffers leave by the order in which forward needs their parameters, front layers first; else all alike. For loops
    that go on when the front layers are in: LayerwiseOptimizer has its own. Where a step waits for all of its buffers
    the sums of one that overtake the contributions to others only hold those up: DDP's steps over a bad network took
    427 ms in place of 311 (bench gradient_lab)."""
    deadline_s: float | None = None
    """A message ends so long after its first packet whatever the budget, when its critical blocks are there."""
    patience_s: PatienceRule = None
    """A message that takes longer than this has met a network short of capacity: what has not left yet, the least
    important, is given up unsent as far as the budget goes. "auto": longer than the fastest messages of all ranks
    lately took; then, of a network with a slow link, only what crosses that link gives way. None: only what gets lost
    is given up."""
    seed: int = 0
    """Of the Hadamard transform's signs."""

    def __post_init__(self) -> None:
        budgets = self.loss_budget.values() if isinstance(self.loss_budget, Mapping) else [self.loss_budget]
        for budget in budgets:
            if not 0.0 <= budget < 1.0:
                raise ValueError(f"loss_budget is {self.loss_budget}; accepted: 0 up to 1, 1 excluded")
        if self.budget_scope not in ("step", "buffer"):
            raise ValueError(f"budget_scope is {self.budget_scope!r}; accepted: step, buffer")
        if not 0.0 <= self.loss_cap < 1.0:
            raise ValueError(f"loss_cap is {self.loss_cap}; accepted: 0 up to 1, 1 excluded")
        if not 0.0 <= self.critical_share <= 1.0:
            raise ValueError(f"critical_share is {self.critical_share}; accepted: 0 to 1")
        if self.small_numel < 0:
            raise ValueError(f"small_numel is {self.small_numel}; accepted: 0 or more")
        if self.fill not in FILLS:
            raise ValueError(f"fill is {self.fill!r}; accepted: {', '.join(FILLS)}")
        if not callable(self.importance) and self.importance not in ("rms", "sampled", "uniform"):
            raise ValueError(
                f"importance is {self.importance!r}; accepted: rms, sampled, uniform, or a function"
            )
        if self.deadline_s is not None and not (self.deadline_s > 0 and math.isfinite(self.deadline_s)):
            raise ValueError(f"deadline_s is {self.deadline_s}; accepted: more than 0 s, or None")
        if isinstance(self.patience_s, str) and self.patience_s != "auto":
            raise ValueError(f"patience_s is {self.patience_s!r}; accepted: seconds, auto, or None")
        if isinstance(self.patience_s, float | int) and not 0.0 <= self.patience_s < math.inf:
            raise ValueError(f"patience_s is {self.patience_s}; accepted: 0 s or more, auto, or None")
        if self.patience_s is not None and self.deadline_s is not None:
            raise ValueError("patience_s and deadline_s are both given; accepted: one of them")

    def budget_of(self, name: str) -> float:
        """The loss budget of one parameter."""
        if not isinstance(self.loss_budget, Mapping):
            return self.loss_budget
        if name in self.loss_budget:
            return self.loss_budget[name]
        fitting = [
            key
            for key in self.loss_budget
            if (key == "" or key.endswith("*")) and name.startswith(key.rstrip("*"))
        ]
        return self.loss_budget[max(fitting, key=len)] if fitting else 0.0
