"""The sum is divided by the number of contributions that arrived: these stand for the abandoned ones."""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.torch.gradient.fills.fill import Fill, Rules
from dlcp.torch.gradient.layout import Range


class Rescale(Fill):
    """The collective counts contributions per block: only the rank that adds a block knows who contributed."""

    def rules(self, transformed: Sequence[Range], step: int) -> Rules:
        return Rules(rescale=True)
