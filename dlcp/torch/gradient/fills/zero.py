"""A contribution that was given up counts as nothing (DLCP, arXiv 2008.08445; MLT, NSDI 2024)."""

from __future__ import annotations

from dlcp.torch.gradient.fills.fill import Fill


class Zero(Fill):
    """Nothing is done about it."""
