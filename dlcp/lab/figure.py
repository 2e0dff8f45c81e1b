"""The demo's picture: what waits in each class's queue and what part of each class is delivered, over time.

Classes differ by colour (Okabe and Ito's, seen by colour-blind eyes) and named beside them. Needs
matplotlib; draws without a display.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dlcp.lab.demo import BUFFER_BYTES, CLASSES, LIMIT_BYTES, DemoRun
from dlcp.lab.fault import rate_words
from dlcp.plot_style import FAINT, INK, PAPER, SOFT, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = dict(zip(CLASSES, ("#0072b2", "#009e73", "#e69f00", "#d55e00"), strict=True))
# Over which delivery is taken: long enough for some packets of each class.
_WINDOW_S = 0.1
# Where curves lie on each other, the more urgent class is drawn thinner and on top.
_WIDTHS = dict(zip(CLASSES, (1.2, 2.4, 3.8, 5.4), strict=True))


def draw(run: DemoRun, path: Path) -> None:
    """Writes the picture; the kind of file is that of the path's ending."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 6.0), layout="constrained")
        FigureCanvasAgg(figure)
        upper, lower = figure.subplots(2, 1, sharex=True)
        figure.suptitle(
            f"{run.offered_bps / run.rate_bps:.1f} times a port's rate in four classes: what thresholds are for",
            x=0.01,
            ha="left",
            fontsize=13,
            fontweight="bold",
        )
        _queues(upper, run)
        _delivery(lower, run)
        for axes in (upper, lower):
            axes.axvline(run.change_s, color=INK, linewidth=1, linestyle=(0, (4, 3)))
            axes.axvspan(run.seconds, run.seconds + 1, color="#f1f3f5", linewidth=0)
            axes.grid(axis="y", color=FAINT, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.set_xlim(-0.1, run.seconds + 0.2)
            _key(axes)
        figure.savefig(path, dpi=110, facecolor=PAPER)


def _queues(axes: Axes, run: DemoRun) -> None:
    times_s = [one.time_s for one in run.moments]
    for number in reversed(CLASSES):
        depths = [one.waiting_bytes[number] / 1e3 for one in run.moments]
        axes.plot(times_s, depths, color=COLOURS[number], linewidth=0.6 * _WIDTHS[number])
    top = BUFFER_BYTES / 1e3 * 1.2
    axes.set_ylim(-3, top)
    axes.set_ylabel("waiting at the port, kB")
    title = f"Queues of a software switch's port of {rate_words(run.rate_bps)}; class 6 is served first"
    axes.set_title(title, loc="left", fontsize=10, color=SOFT)
    policies = (
        f"each class may wait up to {LIMIT_BYTES // 1000} kB",
        f"no limits but the buffer's, {BUFFER_BYTES // 1000} kB",
    )
    for words, side, place_s in zip(policies, ("right", "left"), (-0.05, 0.05), strict=True):
        axes.text(run.change_s + place_s, top * 0.91, words, ha=side, fontsize=9.5, fontweight="bold")


def _delivery(axes: Axes, run: DemoRun) -> None:
    steps = int(run.seconds / _WINDOW_S)
    middles = [(step + 0.5) * _WINDOW_S for step in range(steps)]
    for number in reversed(CLASSES):
        parts = [100 * run.delivered(number, t - _WINDOW_S / 2, t + _WINDOW_S / 2) for t in middles]
        axes.plot(middles, parts, color=COLOURS[number], linewidth=_WIDTHS[number])
    axes.set_ylim(-4, 108)
    axes.set_ylabel("delivered, % of packets")
    axes.set_xlabel("time since the load began, s")
    axes.set_title(
        f"Delivered of each class, over {_WINDOW_S * 1e3:.0f} ms", loc="left", fontsize=10, color=SOFT
    )
    for first_s, last_s in ((0.3, run.change_s), (run.change_s + 0.3, run.seconds)):
        groups: dict[int, list[int]] = {}
        for number in CLASSES:
            groups.setdefault(round(100 * run.delivered(number, first_s, last_s)), []).append(number)
        if max(groups) - min(groups) < 5:
            groups = {round(sum(groups) / len(groups)): list(CLASSES)}
        for percent, numbers in groups.items():
            words = f"class{'es' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"
            words = "all classes" if len(numbers) == len(CLASSES) else words
            place = percent - 10 if percent > 90 else percent + (5 if percent < 10 else 14)
            axes.text((first_s + last_s) / 2, place, f"{words}: {percent} %", ha="center", fontsize=9.5)


def _key(axes: Axes) -> None:
    """Names the colours, most urgent first."""
    for row, number in enumerate(CLASSES):
        words = f"class {number}" + {CLASSES[0]: ", first", CLASSES[-1]: ", last"}.get(number, "")
        axes.annotate(
            words,
            (1.01, 0.95 - 0.1 * row),
            xycoords="axes fraction",
            color=COLOURS[number],
            fontweight="bold",
            va="center",
        )
