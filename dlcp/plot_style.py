"""How every picture of dlcp looks: colours of ink and paper, and matplotlib's settings. Loads no matplotlib."""

from __future__ import annotations

from typing import Any

INK, SOFT, FAINT, PAPER = "#1f2933", "#6b7785", "#e4e8ed", "#ffffff"
"""Text; what stands back; grids; the ground."""
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": "#b8c2cc",
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "svg.fonttype": "path",
}
"""For matplotlib.rc_context."""
