"""A record as one picture: per model the curves of all configurations, time and bytes of a step, and the network.

What is to be seen: whether the curves lie on each other although packets were lost, and what a step cost. The reference
is drawn broad and pale, what is compared with it thin and dark on top, so that both are seen where they coincide.
Needs matplotlib; draws without a display.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from dlcp.plot_style import FAINT, INK, PAPER, SOFT, STYLE
from dlcp.train.plan import GLOO, Configuration, percent
from dlcp.train.record import Epoch, LinkCounts, Network, Record, together
from dlcp.train.table import Row, circumstances, data_size, findings, quantile, rows, spread, title
from dlcp.units import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

PALE, GLOO_LOSSY, CLEAN, LOSSY = "#9aa8b8", "#5f3dc4", "#1c7ed6", "#e8590c"
INEXACT = {"low_bit": "#2b8a3e", "dlcp": "#0b7285"}
BY_EXCHANGE = {"ring": CLEAN, "hierarchical": "#2b8a3e", "hub": LOSSY, "switch": "#9c36b5"}
"""By recipe."""
WIDTH_INCHES, HEAD_INCHES, ROW_INCHES, NETWORK_INCHES, LINE_INCHES = 14.0, 1.25, 4.05, 1.35, 0.21
MODELS = {"digits": "convolutional network", "language": "transformer"}
# More points than this say no more, and a vector picture of them would be large.
POINTS_MAX = 400


def draw(record: Record, path: Path) -> None:
    """Writes the picture; the kind of file is that of the path's ending: .png, .svg, .pdf."""
    with mpl.rc_context(STYLE):
        _figure(record).savefig(path, dpi=150, facecolor=PAPER)


def as_svg(record: Record) -> str:
    """The picture as the text of an <svg> element."""
    text = io.StringIO()
    with mpl.rc_context(STYLE):
        _figure(record).savefig(text, format="svg", facecolor="none", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def colour(configuration: Configuration) -> str:
    """The colour of a configuration, here and on the page."""
    if configuration.backend == "gloo":
        return GLOO_LOSSY if configuration.loss_ratio else PALE
    if configuration.exchange:
        return BY_EXCHANGE[configuration.exchange]
    if not configuration.is_exact:
        return INEXACT[configuration.recipe]
    return LOSSY if configuration.loss_ratio else CLEAN


# --- layout ---------------------------------------------------------------------------------------------------


def _figure(record: Record) -> Figure:
    models = record.models
    total = lossy_total(record)
    foot = 0.25 + LINE_INCHES * len(findings(record))
    height = HEAD_INCHES + ROW_INCHES * len(models) + foot + (NETWORK_INCHES if total else 0.0)
    figure = Figure(figsize=(WIDTH_INCHES, height))
    FigureCanvasAgg(figure)  # measures words
    _head(figure, record, height)
    top = height - HEAD_INCHES
    for place, model in enumerate(models):
        _model(figure, record, model, top - place * ROW_INCHES, height)
    if total is not None:
        _network(figure, record, *total, foot + NETWORK_INCHES, height)
    _foot(figure, record, height)
    return figure


def _head(figure: Figure, record: Record, height: float) -> None:
    lossy = next((one.run.configuration for one in record.runs if one.run.configuration.loss_ratio), None)
    title = (
        f"Training over a network that loses {percent(lossy.loss_ratio)} of its packets"
        if lossy is not None
        else "Training over a network that loses no packet"
    )
    _say(figure, 0.04, 1 - 0.42 / height, title, 19, fontweight="bold")
    # What TCP fills of the links stands in the table and on the page; here a fabric's words fill the line.
    words = f"{record.world_size} ranks, data-parallel  ·  {record.network.partition('; TCP ')[0]}"
    _say(figure, 0.04, 1 - 0.78 / height, words, 10.5, color=SOFT)


def _model(figure: Figure, record: Record, model: str, top: float, height: float) -> None:
    """One row of panels; `top` in inches from the figure's lower edge."""
    _say(figure, 0.04, (top - 0.1) / height, title(model), 13, fontweight="bold")
    words = f"{MODELS[model]}, {circumstances(record, model)}"
    _say(figure, 0.04, (top - 0.33) / height, words, 10, color=SOFT)
    found = rows(record, model)
    lower, panel = (top - ROW_INCHES + 0.75) / height, (ROW_INCHES - 1.65) / height
    # Not of a rank alone, which sends nothing.
    counted = all(row.step_bytes for row in found)
    curve, time = (0.21, 0.165) if counted else (0.26, 0.2)
    loss = figure.add_axes((0.055, lower, curve, panel))
    accuracy = figure.add_axes((0.115 + curve, lower, curve, panel))
    steps = figure.add_axes((0.2 + 2 * curve, lower, time, panel))
    _curves(loss, found, "loss")
    _curves(accuracy, found, "accuracy")
    _steps(steps, found)
    if counted:
        _bytes(figure.add_axes((0.86, lower, 0.115, panel)), found)
    _legend(figure, found, (top - 0.1) / height)


def _legend(figure: Figure, found: Sequence[Row], level: float) -> None:
    """The configurations, with their colours, at the right end of a model's headline."""
    right = 0.975
    for row in reversed(found):
        words = figure.text(right, level, row.configuration.name, fontsize=10.5, ha="right", va="center")
        left = float(words.get_window_extent().x0 / figure.bbox.width)
        _line(figure, left - 0.027, left - 0.009, level, colour(row.configuration), _width(row.configuration))
        right = left - 0.045


# --- panels ---------------------------------------------------------------------------------------------------


def _curves(axes: Axes, found: Sequence[Row], name: str) -> None:
    """A line per run over the epochs, and the last values."""
    _frame(axes, f"{name} on data kept out of the training")
    every = [_value(epoch, name) for row in found for run in row.runs for epoch in run.epochs]
    # A loss that falls by much shows its end only on a logarithmic scale.
    log = name == "loss" and max(every) > 10 * min(every)
    for depth, row in enumerate(found):
        for run in row.runs:
            places = [epoch.epoch for epoch in run.epochs]
            values = [_value(epoch, name) for epoch in run.epochs]
            several = len(row.runs) > 1
            axes.plot(
                places,
                values,
                color=colour(row.configuration),
                lw=_width(row.configuration) * (0.6 if several else 1),
                alpha=0.75 if several else 1,
                zorder=3 + depth,
                solid_capstyle="round",
                solid_joinstyle="round",
                marker="o" if row.configuration.loss_ratio and not several else None,
                ms=3.2,
                clip_on=False,
            )
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(0, max(run.last.epoch for row in found for run in row.runs))
    if log:
        axes.set_yscale("log")
        _mark_decades(axes.yaxis)
    elif name == "accuracy":
        axes.set_ylim(0, 100 if max(every) > 80 else max(every) * 1.12)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    _last_values(axes, found, name)


def _value(epoch: Epoch, name: str) -> float:
    return epoch.accuracy * 100 if name == "accuracy" else epoch.loss


def _last_values(axes: Axes, found: Sequence[Row], name: str) -> None:
    """The final value of each configuration, in its colour, listed where the curves leave room."""
    for place, row in enumerate(found):
        values = [_value(run.last, name) for run in row.runs]
        words = spread(values, "{:.1f}", " %") if name == "accuracy" else spread(values, "{:.3f}")
        level = 0.93 - 0.105 * place if name == "loss" else 0.07 + 0.105 * (len(found) - 1 - place)
        look: dict[str, Any] = {
            "color": _dark(row.configuration),
            "fontweight": "bold",
            "ha": "right",
            "va": "center",
        }
        axes.text(0.99, level, words, transform=axes.transAxes, fontsize=12, **look)


def _steps(axes: Axes, found: Sequence[Row]) -> None:
    """Every step as a point, a row per configuration; median and 99th percentile as marks with their values."""
    _frame(axes, "time per step")
    axes.text(1.275, 1.052, "in all-reduce", transform=axes.transAxes, fontsize=10, color=SOFT, ha="right")
    times = {row.configuration: [step * 1e3 for run in row.runs for step in run.step_s] for row in found}
    low = min(min(values) for values in times.values())
    high = max(quantile(values, 0.99) for values in times.values())
    axes.set_xscale("log")
    axes.set_xlim(low * 0.85, high * 1.25)
    draw = random.Random(0)
    beside = axes.get_yaxis_transform()  # along the panel's width in shares of it, along its height in data
    for place, row in enumerate(reversed(found)):
        values = times[row.configuration]
        shown = values if len(values) <= POINTS_MAX else draw.sample(values, POINTS_MAX)
        heights = [place + draw.uniform(-0.16, 0.16) for _ in shown]
        points: dict[str, Any] = {"color": colour(row.configuration), "alpha": 0.45, "rasterized": True}
        axes.plot(shown, heights, ".", ms=4.5, mew=0, zorder=3, **points)
        ink = _dark(row.configuration)
        middle, tail = median(values), quantile(values, 0.99)
        for value, size in ((middle, 0.3), (tail, 0.2)):
            axes.plot([value, value], [place - size, place + size], color=ink, lw=2.2, zorder=5)
        bold: dict[str, Any] = {"color": ink, "fontweight": "bold"}
        axes.text(middle, place + 0.37, f"{middle:.0f} ms", ha="center", fontsize=10, zorder=6, **bold)
        axes.text(
            tail * 1.04, place + 0.2, f"p99 {tail:.0f}", va="center", fontsize=8.5, color=SOFT, zorder=6
        )
        share = f"{row.communication_ratio:.0%}".replace("%", " %")
        axes.text(1.275, place, share, transform=beside, ha="right", va="center", fontsize=10.5, **bold)
    axes.set_ylim(-0.5, len(found) - 0.5 + 0.2)
    axes.set_yticks(
        range(len(found)), [row.configuration.name.replace(", ", ",\n") for row in reversed(found)]
    )
    axes.grid(False, axis="y")
    axes.grid(True, axis="x", color=FAINT, lw=0.8)
    axes.spines["left"].set_visible(False)
    _mark_decades(axes.xaxis)
    axes.set_xlabel("ms")


def _bytes(axes: Axes, found: Sequence[Row]) -> None:
    """What a rank sends in a step, a bar per configuration in the order of the steps' panel, with its value."""
    _frame(axes, "sent per step and rank")
    high = max(row.step_bytes or 0.0 for row in found)
    for place, row in enumerate(reversed(found)):
        count = row.step_bytes or 0.0
        axes.barh(place, count, height=0.34, color=colour(row.configuration), alpha=0.8)
        bold: dict[str, Any] = {"color": _dark(row.configuration), "fontweight": "bold"}
        axes.text(0, place + 0.37, data_size(count), va="center", fontsize=10, **bold)
    axes.set_xlim(0, high)
    axes.set_ylim(-0.5, len(found) - 0.5 + 0.2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)


def _network(
    figure: Figure, record: Record, total: Network, lost: LinkCounts, top: float, height: float
) -> None:
    """What happened to all packets of the lossy runs, as large numbers; `top` in inches from the lower edge."""
    level = (top - 0.3) / height
    _line(figure, 0.04, 0.975, level + 0.22 / height, FAINT, 1)
    extra = (total.sent_bytes - total.gradient_bytes) / max(1, total.gradient_bytes)
    tiles = [
        (grouped(total.sent_packets), "packets sent", data_size(total.sent_bytes)),
        (grouped(lost.dropped_packets), "lost on the way", f"{lost.loss_ratio * 100:.2f} % of them"),
        (grouped(total.repair_packets), "sent again", data_size(total.repair_bytes)),
        (grouped(total.marked_packets), "marked as congested", "by the network"),
        (data_size(total.abandoned_bytes), "of gradients abandoned", _budget_words(record)),
        (f"{extra * 100:.1f} %", "overhead", "headers, tags, control, repairs"),
    ]
    step = (0.975 - 0.04) / len(tiles)
    for place, (value, what, more) in enumerate(tiles):
        left = 0.04 + place * step
        strong = LOSSY if what == "lost on the way" else INK
        _say(figure, left, level - 0.18 / height, value, 19, fontweight="bold", color=strong)
        _say(figure, left, level - 0.5 / height, what, 10.5)
        _say(figure, left, level - 0.71 / height, more, 9, color=SOFT)


def _budget_words(record: Record) -> str:
    """How much might have been abandoned."""
    budgets = {one.run.configuration.loss_budget for one in record.runs} - {0.0}
    if budgets:
        return f"within {percent(max(budgets))} of a run's"
    exact = all(one.run.configuration.is_exact for one in record.runs)
    return "plain collectives are exact" if exact else "none may be"


def _foot(figure: Figure, record: Record, height: float) -> None:
    """What follows from it all, a line each at the lower edge."""
    found = findings(record)
    for place, line in enumerate(found):
        level = (0.24 + LINE_INCHES * (len(found) - 1 - place)) / height
        _say(figure, 0.04, level, line, 9.5, color="#c92a2a" if line.startswith("WRONG") else SOFT)


# --- small things ---------------------------------------------------------------------------------------------


def lossy_total(record: Record) -> tuple[Network, LinkCounts] | None:
    """All runs that lost packets and whose backend counts, together; None: there were none."""
    runs = [one for one in record.runs if one.run.configuration.loss_ratio and one.network]
    if not runs:
        return None
    lost = [lost for one in runs if (lost := one.lost()) is not None]
    links = LinkCounts(sum(one.packets for one in lost), sum(one.dropped_packets for one in lost))
    return together([rank for one in runs for rank in one.network]), links


def _frame(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, color=SOFT, loc="left", pad=9)
    axes.grid(True, axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


def _width(configuration: Configuration) -> float:
    return 5.0 if configuration == GLOO else 1.9


def _dark(configuration: Configuration) -> str:
    """A colour for words: what is pale as a line is not to be read."""
    return {PALE: "#66758a"}.get(colour(configuration), colour(configuration))


def _mark_decades(axis: Axis) -> None:
    """Marks a logarithmic axis at 1, 2, 5, 10 and so on, in plain numbers."""
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


def _say(figure: Figure, left: float, level: float, words: str, size: float, **look: str) -> None:
    """Words whose middle is at that level; places are shares of the figure."""
    figure.text(left, level, words, fontsize=size, va="center", **look)  # type: ignore[arg-type]


def _line(figure: Figure, left: float, right: float, level: float, ink: str, width: float) -> None:
    """A horizontal line in shares of the figure."""
    figure.add_artist(Line2D([left, right], [level, level], color=ink, lw=width, solid_capstyle="round"))
