"""Fills: what replaces abandoned contributions. A new one is a file here and a line in FILLS."""

from __future__ import annotations

from collections.abc import Mapping

from dlcp.torch.gradient.fills.fill import Fill, Rules
from dlcp.torch.gradient.fills.hadamard import HadamardFill
from dlcp.torch.gradient.fills.rescale import Rescale
from dlcp.torch.gradient.fills.residual import Residual
from dlcp.torch.gradient.fills.zero import Zero

FILLS: Mapping[str, type[Fill]] = {
    "residual": Residual,
    "rescale": Rescale,
    "zero": Zero,
    "hadamard": HadamardFill,
}
"""Fill classes by their name in GradientOptions.fill."""

__all__ = ["FILLS", "Fill", "Rules"]
