"""The sum is divided by the contributions that came: what is left stands for what was given up."""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.torch.gradient.fills.fill import Fill, Range, Rules


class Rescale(Fill):
    """The collective counts contributions per block, since only the rank that adds a block knows who came."""

    def rules(self, transformed: Sequence[Range], step: int) -> Rules:
        return Rules(rescale=True)
