"""The timeline as a picture: two steps of DDP above two steps of ours, a row per layer, time to the right.

What to see: DDP's forward begins when the last gradient is in; ours begins with the front layer while gradients of the
layers behind it are still under way. Needs matplotlib; draws without a display.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.layer_order.timeline import SHOWN, SKIPPED, Timeline
from dlcp import plot_style
from dlcp.plot_style import FAINT, PAPER, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"forward": "#1c7ed6", "backward": "#0b3d75", "gradient": "#ffc078"}
WORDS = {"forward": "forward", "backward": "backward", "gradient": "gradient ready, until it is in"}
STYLE = plot_style.STYLE | {"axes.spines.left": False}
WIDTH_INCHES, HEAD_INCHES, GAP_INCHES, FOOT_INCHES = 13.0, 1.45, 0.85, 0.7


def draw(timelines: Mapping[str, Mapping[str, Timeline]], path: Path) -> None:
    """Writes the picture. `timelines`: by kind of computation, by way; each kind becomes a column."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ways = list(next(iter(timelines.values())))
    layers = next(iter(next(iter(timelines.values())).values())).layers
    panel = 0.17 * layers + 0.2
    height = HEAD_INCHES + FOOT_INCHES + len(ways) * panel + (len(ways) - 1) * GAP_INCHES
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, height))
        FigureCanvasAgg(figure)
        _head(figure, height)
        width = 0.89 / len(timelines)
        for column, (kind, found) in enumerate(timelines.items()):
            left = 0.07 + column * (width + 0.01)
            span_s = max(_span_s(timeline) for timeline in found.values())
            for row, way in enumerate(ways):
                lower = height - HEAD_INCHES - panel - row * (panel + GAP_INCHES)
                axes = figure.add_axes((left, lower / height, width - 0.03, panel / height))
                _panel(axes, found[way], span_s, f"{way}  ·  {kind}", first=column == 0)
            axes.set_xlabel("ms")
        figure.savefig(path, dpi=150, facecolor=PAPER)


def _head(figure: Any, height: float) -> None:
    figure.text(
        0.035,
        1 - 0.36 / height,
        "A layer's forward waits for that layer's gradient alone",
        fontsize=17,
        fontweight="bold",
        va="center",
    )
    left = 0.035
    for kind, words in WORDS.items():
        level = 1 - 0.74 / height
        figure.text(left, level, "■", color=COLOURS[kind], fontsize=13, va="center")
        figure.text(left + 0.016, level, words, fontsize=10.5, color=SOFT, va="center")
        left += 0.035 + 0.0075 * len(words)


def _panel(axes: Axes, timeline: Timeline, span_s: float, title: str, *, first: bool) -> None:
    begin_s = timeline.steps_s[SKIPPED]
    marks_ms = [1e3 * (mark_s - begin_s) for mark_s in timeline.steps_s[SKIPPED : SKIPPED + SHOWN + 1]]
    for interval in timeline.intervals:
        here = 1e3 * (interval.begin_s - begin_s), 1e3 * (interval.end_s - begin_s)
        if here[1] < 0 or here[0] > 1e3 * span_s:
            continue
        thin = interval.kind == "gradient"
        axes.barh(
            interval.layer,
            here[1] - here[0],
            left=here[0],
            height=0.4 if thin else 0.82,
            color=COLOURS[interval.kind],
            zorder=2 if thin else 3,
            lw=0,
        )
    for mark_ms in marks_ms:
        axes.axvline(mark_ms, color=SOFT, lw=1, zorder=1)
    for left, right in itertools.pairwise(marks_ms):
        axes.annotate(
            f"{right - left:.0f} ms",
            ((left + right) / 2, -0.9),
            ha="center",
            va="bottom",
            fontsize=10.5,
            fontweight="bold",
            annotation_clip=False,
        )
    axes.set_title(title, loc="left", fontsize=10.5, color=SOFT, pad=22)
    axes.set_xlim(0, 1e3 * span_s)
    axes.set_ylim(timeline.layers - 0.5, -0.6)
    ticks = range(0, timeline.layers, 5)
    axes.set_yticks(ticks, [f"layer {layer}" if first else "" for layer in ticks])
    axes.grid(True, axis="x", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)


def _span_s(timeline: Timeline) -> float:
    """From the first step that is shown to the end of the last."""
    return timeline.steps_s[SKIPPED + SHOWN] - timeline.steps_s[SKIPPED]
