"""What the pictures of both studies share: a page with a heading, its panels, an axis of shares. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dlcp.plot_style import FAINT, INK, PAPER, SOFT, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@contextmanager
def page(path: Path, title: str, about: str, height: float) -> Iterator[Figure]:
    """A figure under its heading, written to `path` at the end; draws without a display. `height`: inches."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(14, height))
        FigureCanvasAgg(figure)
        figure.text(0.04, 1 - 0.42 / height, title, fontsize=19, fontweight="bold", va="center")
        figure.text(0.04, 1 - 0.68 / height, about, fontsize=10.5, color=SOFT, va="top", linespacing=1.4)
        yield figure
        figure.savefig(path, dpi=120, facecolor=PAPER)


def curves(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=11.5, fontweight="bold", color=INK, loc="left", pad=9)
    axes.grid(True, axis="y", color=FAINT, lw=0.8)
    axes.spines["left"].set_visible(False)


def share_axis(axes: Axes, ticks: Sequence[float]) -> None:
    """A logarithmic horizontal axis in per cent."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:.2g} %" if math.isfinite(value) else "")
    )
