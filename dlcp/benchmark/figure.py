"""Samples as a picture: the median call with its 99th percentile, and the bus bandwidth, by size. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dlcp.benchmark.samples import TimedCalls
from dlcp.plot_style import FAINT, PAPER, STYLE
from dlcp.units import duration, size

_COLOURS = {"dlcp": "#1c7ed6", "gloo": "#9aa8b8"}


def draw(samples: Sequence[TimedCalls], path: Path) -> None:
    """Writes the picture; the kind of file is that of the path's ending."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        times, bandwidths = figure.subplots(1, 2)
        for backend in dict.fromkeys(one.backend for one in samples):
            own = [one for one in samples if one.backend == backend]
            sizes, colour = [one.nbytes for one in own], _COLOURS[backend]
            times.plot(sizes, [one.p50_s for one in own], "o-", color=colour, label=f"{backend}, median")
            times.plot(sizes, [one.p99_s for one in own], "--", color=colour, label=f"{backend}, p99")
            bus = [one.bus_bandwidth_bps / 8e9 for one in own]
            bandwidths.plot(sizes, bus, "o-", color=colour, label=backend)
        for axes, title in ((times, "time of a call"), (bandwidths, "bus bandwidth, GB/s")):
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda nbytes, _: size(round(nbytes))))
            axes.set_title(title, loc="left")
            axes.grid(color=FAINT)
            axes.legend(frameon=False, loc="upper left")
        times.set_yscale("log")
        times.set_ylim(top=8 * max(one.p99_s for one in samples))  # room for the legend
        times.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
        first = samples[0]
        figure.suptitle(f"{first.collective} of float32, {first.ranks} ranks", x=0.01, ha="left")
        figure.savefig(path, dpi=150, facecolor=PAPER)
