"""An abandoned contribution counts as zero (DLCP, arXiv 2008.08445; MLT, NSDI 2024)."""

from __future__ import annotations

from dlcp.torch.gradient.fills.fill import Fill


class Zero(Fill):
    """Does nothing."""
