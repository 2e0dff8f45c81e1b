"""The interface of a fill: the rule that replaces abandoned contributions.

A GradientState has one fill, and calls it around each bounded collective:

    before -> rules -> collective -> lost -> after

The methods here do nothing; a fill overrides those that it needs. All run with the state's lock held, but for `after`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dlcp.torch.gradient.layout import Layout, Range
from dlcp.torch.gradient.residual.report import ResidualReport

if TYPE_CHECKING:
    from dlcp.torch.gradient.residual.memory import ResidualMemory
    from dlcp.torch.gradient.residual.rule import ResidualRule


class BufferPlan(NamedTuple):
    """What is known about a buffer before its values are read."""

    layout: Layout
    critical: frozenset[str]
    """Its parameters that lose nothing."""
    parts: Sequence[Range]
    """Its elements, by the rank that adds them."""
    step: int
    """Number of the step; the same on all ranks."""
    unused: Collection[str] = ()
    """Of its parameters, those that this rank's backward did not use."""


class Rules(NamedTuple):
    """What a fill requires of the collective."""

    rescale: bool = False
    """Divide each sum by the number of contributions that arrived, instead of by the number of ranks."""
    agree: str = ""
    """What all ranks must have done before the collective; they compare this text. There should be few different texts,
    since plans are cached by them."""


class FillOptions(Protocol):
    """What fills read of GradientOptions, which knows the fills by name."""

    @property
    def residual(self) -> ResidualRule:
        """How abandoned values are kept."""

    @property
    def seed(self) -> int:
        """Of the Hadamard transform's signs."""


class Fill:
    """One fill of one GradientState. `options`: the state's."""

    residual: ResidualMemory | None = None
    """Abandoned values that wait for the next step; None: this fill keeps nothing."""

    def __init__(self, options: FillOptions) -> None:
        pass

    # --- a step ---------------------------------------------------------------------------------------------

    def begin_step(self, loss_scale: float) -> None:
        """A step begins, whose gradients are multiplied by `loss_scale`."""

    def end_step(self, applied: bool) -> ResidualReport | None:
        """Ends a step, which the optimizer used or skipped. The account of kept values; None: nothing is kept."""
        return None

    # --- a buffer -------------------------------------------------------------------------------------------

    def before(self, buffer: torch.Tensor, plan: BufferPlan) -> Sequence[Range]:
        """Changes a buffer in place before it is marked and sent; the ranges of elements that it transformed."""
        return ()

    def rules(self, transformed: Sequence[Range], step: int) -> Rules:
        """For the collective of a buffer. `transformed`: as `before` returned."""
        return Rules()

    def lost(self, memory: torch.Tensor, layout: Layout, runs: NDArray[np.int64]) -> None:
        """These runs of elements (begin and end) were abandoned. `memory`: the buffer as it was sent."""

    def after(self, output: torch.Tensor, transformed: Sequence[Range], origin: int, step: int) -> None:
        """Changes the collective's result in place. `origin`: the buffer's element that it begins with."""

    # --- what outlives the run --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any] | None:
        """What the next step needs; None: nothing. Between steps."""
        return None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what state_dict() of this fill returned. Raises ValueError."""

    def reset(self, names: Iterable[str] | None) -> None:
        """Writes off what is kept of these parameters; None: of all."""
