"""Pictures of training: what one worker computed and exchanged, layer by layer, and what overlap does not hide."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dlcp.plot_style import SOFT
from dlcp.units import TIME_UNITS, unit_of
from dlcp_sim.report.pictures import PictureError, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlcp_sim.training_times import TrainingReport

FORWARD, BACKWARD, COMMUNICATION, EXPOSED = "#1c7ed6", "#7048e8", "#f08c00", "#e03131"


@dataclass(frozen=True)
class Interval:
    """Something of one layer, of one worker: when, and what. `kind`: "forward", "backward" or "communication"."""

    layer: int
    kind: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Iterations:
    """What one worker did over some iterations of training."""

    layers: Sequence[str]
    intervals: Sequence[Interval]
    iterations: Sequence[tuple[float, float]] = field(default=())
    """Begin and end of each, in seconds."""

    def exposed(self) -> list[tuple[float, float]]:
        """When something was being sent while nothing was being computed: what overlap does not hide."""
        computing = merged([(i.begin_s, i.end_s) for i in self.intervals if i.kind != "communication"])
        sending = merged([(i.begin_s, i.end_s) for i in self.intervals if i.kind == "communication"])
        return without(sending, computing)


def merged(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as intervals that neither touch nor overlap, in order."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > begin:
            found.append((begin, end))
    return found


def without(
    intervals: Sequence[tuple[float, float]], holes: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """What of `intervals` is in none of `holes`; both as `merged` makes them."""
    found = []
    for begin, end in intervals:
        for low, high in holes:
            if high <= begin or low >= end:
                continue
            if low > begin:
                found.append((begin, low))
            begin = max(begin, high)
        if begin < end:
            found.append((begin, end))
    return found


def iterations_of(report: TrainingReport, worker: int = 0) -> Iterations:
    """What one worker of a job did. Gradients that travel together are shown at each of their layers."""
    intervals: list[Interval] = []
    for kind, start, end in (
        ("forward", report.forward_start_s, report.forward_end_s),
        ("backward", report.backward_start_s, report.backward_end_s),
    ):
        low, high = start[:, worker].ravel(), end[:, worker].ravel()
        layer = np.tile(np.arange(start.shape[2]), start.shape[0])
        known = np.isfinite(low) & np.isfinite(high)
        rows = zip(layer[known], low[known], high[known], strict=True)
        intervals += [Interval(int(row), kind, float(begin), float(over)) for row, begin, over in rows]
    for number in range(report.communication_start_s.shape[0]):
        for unit, (first, last) in enumerate(report.units):
            begin = float(report.communication_start_s[number, worker, unit])
            over = float(report.communication_end_s[number, worker, unit])
            if np.isfinite(begin) and np.isfinite(over):
                intervals += [Interval(row, "communication", begin, over) for row in range(first, last + 1)]
    ends = report.backward_end_s[:, worker, 0]
    pairs = itertools.pairwise(ends)
    return Iterations(
        report.layers,
        intervals,
        [(float(begin), float(over)) for begin, over in pairs if np.isfinite(begin) and np.isfinite(over)],
    )


def iteration_timeline(what: Iterations, title: str = "Training iterations", shown: int = 3) -> Figure:
    """A row per layer: computation, its communication, and below what of the communication nothing hides.

    At most `shown` iterations, the first left out where there are more: it starts with all gradients at rest.
    """
    chosen = list(what.iterations)
    chosen = chosen[1 : shown + 1] if len(chosen) > shown else chosen[:shown]
    intervals = list(what.intervals)
    if not intervals:
        raise PictureError("there is nothing in this timeline")
    begin = chosen[0][0] if chosen else min(i.begin_s for i in intervals)
    end = chosen[-1][1] if chosen else max(i.end_s for i in intervals)
    unit, word = unit_of(end - begin, TIME_UNITS)
    rows = len(what.layers)
    height = 1.35 + 0.5 + min(6.5, max(1.2, 0.17 * rows))
    with new_figure(1, height=height, width=8.2) as (figure, (axes,)):
        # One collection of bars per kind: thousands of patches would take seconds and megabytes.
        for kind, colour, thick, depth in (
            ("communication", COMMUNICATION, 0.42, 2),
            ("forward", FORWARD, 0.86, 3),
            ("backward", BACKWARD, 0.86, 3),
        ):
            for row in range(rows):
                spans = [
                    ((i.begin_s - begin) / unit, (i.end_s - i.begin_s) / unit)
                    for i in intervals
                    if i.kind == kind and i.layer == row and i.end_s > begin and i.begin_s < end
                ]
                if spans:
                    axes.broken_barh(spans, (row - thick / 2, thick), color=colour, lw=0, zorder=depth)
        exposed = [(low, high) for low, high in what.exposed() if high > begin and low < end]
        exposed = [(max(low, begin), min(high, end)) for low, high in exposed]
        level, thick = rows + 0.06 * rows + 0.5, max(0.86, 0.05 * rows)
        spans = [((low - begin) / unit, (high - low) / unit) for low, high in exposed]
        axes.broken_barh(spans, (level - thick / 2, thick), color=EXPOSED, lw=0, zorder=3)
        for low, high in chosen:
            axes.axvline((low - begin) / unit, color=SOFT, lw=0.9, zorder=1)
            hidden = sum(max(0.0, min(b, high) - max(a, low)) for a, b in exposed)
            words = f"{(high - low) / unit:.3g} {word}, {100 * hidden / (high - low):.0f} % exposed"
            place = ((low + high) / 2 - begin) / unit
            axes.annotate(
                words,
                (place, 1.01),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                fontsize=8.5,
            )
        axes.set_xlim(0, (end - begin) / unit)
        axes.set_ylim(level + thick, -0.8)
        step = max(1, -(-rows // 14))
        ticks = list(range(0, rows, step))
        axes.set_yticks([*ticks, level], [*(what.layers[row] for row in ticks), "exposed"], fontsize=8)
        axes.grid(False, axis="y")
        axes.set_xlabel(f"time since the first iteration shown, {word}")
        axes.set_title(title, pad=38)
        for kind, colour in (
            ("forward", FORWARD),
            ("backward", BACKWARD),
            ("communication", COMMUNICATION),
            ("exposed: nothing computes meanwhile", EXPOSED),
        ):
            axes.plot([], [], "s", ms=6, color=colour, label=kind)
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4, handletextpad=0.1, columnspacing=1.2,
            borderaxespad=1.5,
        )  # fmt: skip
        return figure
