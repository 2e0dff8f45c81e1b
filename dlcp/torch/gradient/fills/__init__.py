"""Fills: what replaces abandoned contributions. A new one is a file here and a line in FILLS."""

from __future__ import annotations

from collections.abc import Mapping

from dlcp.torch.gradient.fills.fill import Fill, Rules
from dlcp.torch.gradient.fills.hadamard import HadamardFill
from dlcp.torch.gradient.fills.rescale import Rescale
from dlcp.torch.gradient.fills.residual import Residual
from dlcp.torch.gradient.fills.zero import Zero

FILLS: Mapping[str, type[Fill]] = {
    # The sender keeps an abandoned contribution and adds it to its next step's.
    "residual": Residual,
    # The sum is divided by the number of contributions that arrived.
    "rescale": Rescale,
    # An abandoned contribution counts as nothing (DLCP, MLT).
    "zero": Zero,
    # As zero, behind a randomised Hadamard transform, so that a loss is spread over many values (OptiReduce).
    "hadamard": HadamardFill,
}
"""Fill classes by their name in GradientOptions.fill."""

__all__ = ["FILLS", "Fill", "Rules"]
