"""Pictures of results: distributions of flows, time series of links and classes, use of all links.

Each function returns a matplotlib figure sized for one column of a page, so that it is read on a phone too; `save`
writes one, `as_svg` makes it an <svg> element whose inks follow the page's light or dark scheme. Colours go by a
result's place among those compared, and stay the same from picture to picture. Needs matplotlib (`pip install
'.[sim]'` in a checkout), loaded here alone and when something is drawn; draws without a display.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlcp import plot_style
from dlcp.errors import DlcpError
from dlcp.plot_style import FAINT, SOFT
from dlcp.plot_style import INK as INK
from dlcp.plot_style import PAPER as PAPER
from dlcp.units import RATE_UNITS, TIME_UNITS, unit_of
from dlcp_sim.report.tables import names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from dlcp_sim.result import Result

# Each is read on white and on near-black; the first is what the others are compared with.
COLOURS = ("#1c7ed6", "#e8590c", "#7950f2", "#0c9a8c", "#d6336c", "#66a80f", "#f08c00", "#868e96")
DASHES = ("-", "--", ":", "-.")
STYLE: Any = plot_style.STYLE | {
    "font.size": 9,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.hashsalt": "dlcp",
}
WIDTH_INCHES, HEIGHT_INCHES = 5.4, 3.3
# More points than this say no more, and a vector picture of them would be large.
POINTS_MAX = 600
# Lines in one picture that a reader can still distinguish.
LINES_MAX = 6
SIZE_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class PictureError(DlcpError):
    """A picture cannot be drawn: matplotlib is missing, or the result does not hold what it needs."""


def heat(axis: Axes, ratios: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str]) -> None:
    """A table of ratios [rows, columns], each written in its colour: blue below 1, orange above; nan: an empty cell.

    Colours end where a ratio is a half more or a third less; what is farther says so itself.
    """
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("", [COLOURS[0], PAPER, COLOURS[1]]).with_extremes(bad=PAPER)
    strongest = np.log(1.5)
    axis.imshow(np.log(ratios), colours, aspect="auto", vmin=-strongest, vmax=strongest)
    for (row, column), ratio in np.ndenumerate(ratios):
        if not np.isnan(ratio):
            text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
            axis.text(column, row, text, ha="center", va="center", color=INK, fontsize=8.5)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0, labelsize="small", labelcolor=INK)
    axis.xaxis.tick_top()
    axis.grid(visible=False)


def save(figure: Figure, path: Path | str) -> Path:
    """Writes a picture; the kind of file is that of the path's ending: .png, .svg, .pdf. Returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        figure.savefig(path, dpi=150, facecolor=PAPER, metadata=_undated(path.suffix))
    return path


def as_svg(figure: Figure) -> str:
    """The picture as an <svg> element of a page that defines --ink, --soft, --line and --card."""
    text = io.StringIO()
    with style():
        figure.savefig(text, format="svg", facecolor="none", metadata=_undated(".svg"))
    svg = "<svg" + text.getvalue().partition("<svg")[2]
    for colour, name in ((INK, "ink"), (SOFT, "soft"), (FAINT, "line"), ("#b8c2cc", "line"), (PAPER, "card")):
        svg = svg.replace(f": {colour}", f": var(--{name})")
    # Its size is the page's affair; the viewBox keeps the shape.
    tag, rest = svg.split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", tag) + ">" + rest


# --- flows ----------------------------------------------------------------------------------------------------


def completion_distribution(results: Sequence[Result], quantity: str = "completion") -> Figure:
    """The share of flows that took at most so long. `quantity`: "completion" (time) or "slowdown" (over the bound).

    A flow that never finished counts among all, so its curve ends below 100 %. The dots are p50 and p99.
    """
    if quantity not in ("completion", "slowdown"):
        raise PictureError(f'quantity is {quantity!r}; accepted: "completion", "slowdown"')
    curves = [_values(result, quantity) for result in results]
    known = np.concatenate([values for values, _ in curves]) if curves else np.empty(0)
    if not len(known):
        raise PictureError("no flow of these results finished, so there is no distribution to draw")
    unit, word = (1.0, "") if quantity == "slowdown" else unit_of(float(known.max()), TIME_UNITS)
    with new_figure(1) as (figure, (axes,)):
        for place, ((values, all_flows), name) in enumerate(zip(curves, names(results), strict=True)):
            if not len(values):
                continue
            share = 100.0 * np.arange(1, len(values) + 1) / all_flows
            few = _thinned(len(values))
            x, y = np.append(values[0], values[few]) / unit, np.append(0.0, share[few])
            axes.step(x, y, where="post", label=name, zorder=3 + place, **_line(place))
            for quantile in (50.0, 99.0):
                at = int(np.ceil(all_flows * quantile / 100.0)) - 1
                if at < len(values):
                    axes.plot(
                        values[at] / unit, share[at], "o", ms=4.5, color=_line(place)["color"], zorder=20
                    )
        _scale(axes, known / unit)
        axes.set_ylim(0, 102)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
        if quantity == "slowdown":
            axes.set(title="Slowdown of flows", xlabel="completion time over its lower bound")
        else:
            axes.set(title="Completion time of flows", xlabel=f"completion time, {word}")
        axes.set_ylabel("flows")
        _legend(axes, len(results))
        return figure


def slowdown_by_size(results: Sequence[Result], quantile: float = 0.99) -> Figure:
    """The tail of the slowdown by size of flow: at most ten groups with as many flows each."""
    with new_figure(1) as (figure, (axes,)):
        for place, (result, name) in enumerate(zip(results, names(results), strict=True)):
            done = result.flows.finished
            size = np.asarray(result.flows.bytes, float)[done]
            slowdown = result.flows.slowdown[done]
            if not len(size):
                continue
            edges = np.unique(np.quantile(size, np.linspace(0, 1, 11)))
            group = np.clip(np.searchsorted(edges, size, side="right") - 1, 0, max(0, len(edges) - 2))
            present = np.unique(group)
            middle = [float(np.median(size[group == g])) for g in present]
            tail = [float(np.quantile(slowdown[group == g], quantile)) for g in present]
            axes.plot(middle, tail, marker="o", ms=4, label=name, zorder=3 + place, **_line(place))
        axes.set(xscale="log", xlabel="size of the flow", title=f"Slowdown by size, p{100 * quantile:g}")
        axes.set_ylabel("completion over lower bound")
        axes.xaxis.set_major_formatter(lambda value, _: _short_size(value))
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_ylim(bottom=0)
        _legend(axes, len(results))
        return figure


# --- links ----------------------------------------------------------------------------------------------------


def link_series(result: Result, ports: Sequence[int] | None = None) -> Figure:
    """Utilisation and waiting bytes of links over time; of `ports`, or of the sampled ones with the deepest queues."""
    samples = _samples(result)
    depth = samples.depth_bytes.sum(axis=2).astype(float)
    if ports is None:
        order = np.argsort(-depth.max(axis=0), kind="stable")[:LINES_MAX]
    else:
        where = {int(port): place for place, port in enumerate(samples.ports)}
        if missing := [port for port in ports if port not in where]:
            raise PictureError(
                f"port {missing[0]} was not sampled; sampled: {len(where)} of {len(result.ports)}"
            )
        order = np.array([where[port] for port in ports])
    rates = np.asarray(result.ports.rate_bps, float)[samples.ports[order]]
    busy = 100.0 * _carried(samples.rate_bps()[:, order].sum(axis=2) / rates)
    unit, word = unit_of(float(samples.time_s[-1]), TIME_UNITS)
    size, size_word = unit_of(float(depth[:, order].max(initial=0)), SIZE_UNITS)
    with new_figure(2) as (figure, (upper, lower)):
        for place, (column, port) in enumerate(zip(order, samples.ports[order], strict=True)):
            name = result.ports.name(int(port))
            upper.plot(
                *_mean_series(samples.time_s / unit, busy[:, place]), label=name, **_line(place, width=1.3)
            )
            lower.plot(
                *_peak_series(samples.time_s / unit, depth[:, column] / size), **_line(place, width=1.3)
            )
        upper.set(
            title=f"Links with the deepest queues · {result.name}", ylabel="utilisation, %", ylim=(0, 104)
        )
        if ports is not None:
            upper.set_title(f"Links · {result.name}")
        _share_time(upper, lower, samples.time_s / unit, word, size_word)
        _legend_above(figure, upper, len(order), columns=2)
        return figure


def class_series(result: Result) -> Figure:
    """What the sampled links carried and what waited at them, by traffic class; 7 is served first."""
    samples = _samples(result)
    rate, depth = samples.rate_bps().sum(axis=1), samples.depth_bytes.sum(axis=1).astype(float)
    present = [c for c in range(depth.shape[1]) if samples.bytes_sent[-1, :, c].any() or depth[:, c].any()]
    unit, word = unit_of(float(samples.time_s[-1]), TIME_UNITS)
    speed, speed_word = unit_of(float(rate.sum(axis=1).max(initial=0)), RATE_UNITS)
    size, size_word = unit_of(float(depth.max(initial=0)), SIZE_UNITS)
    with new_figure(2) as (figure, (upper, lower)):
        below: Any = 0.0
        for place, number in enumerate(reversed(present)):
            time, value = _mean_series(samples.time_s / unit, rate[:, number] / speed)
            colour = _line(place)["color"]
            upper.fill_between(
                time, below, below + value, color=colour, alpha=0.75, lw=0, label=f"class {number}", zorder=2
            )
            below = below + value
            lower.plot(
                *_peak_series(samples.time_s / unit, depth[:, number] / size), **_line(place, width=1.3)
            )
        links = "1 link" if len(samples.ports) == 1 else f"{len(samples.ports)} links together"
        upper.set(title=f"Traffic classes, {links} · {result.name}", ylabel=f"sent, {speed_word}")
        upper.set_ylim(bottom=0)
        _share_time(upper, lower, samples.time_s / unit, word, size_word)
        _legend_above(figure, upper, len(present), columns=4)
        return figure


def link_use(results: Sequence[Result]) -> Figure:
    """How busy every link was over the whole run, by tier: what uneven paths do to a fabric. Needs no samples."""
    tiers = _tiers(results[0])
    height = 0.9 + 0.17 * len(tiers) * max(1, len(results)) + 0.22 * len(tiers)
    draw = np.random.default_rng(0)
    with new_figure(1, height=max(2.2, height)) as (figure, (axes,)):
        ticks: list[float] = []
        level = 0.0
        for tier in tiers:
            first = level
            for place, result in enumerate(results):
                busy = 100.0 * result.ports.utilization(_duration_s(result))[_tiers(result).get(tier, [])]
                if len(busy):
                    shown = busy if len(busy) <= POINTS_MAX else draw.choice(busy, POINTS_MAX, replace=False)
                    spread = level + draw.uniform(-0.28, 0.28, len(shown))
                    colour = _line(place)["color"]
                    axes.plot(
                        shown, spread, ".", ms=4, mew=0, alpha=0.5, color=colour, rasterized=len(shown) > 200
                    )
                    mean = float(busy.mean())
                    axes.plot([mean, mean], [level - 0.36, level + 0.36], color=colour, lw=2.4, zorder=5)
                level -= 1.0
            ticks.append((first + level + 1.0) / 2)
            level -= 0.7
        axes.set_yticks(ticks, list(tiers))
        axes.set_ylim(level + 1.1, 0.6)
        axes.grid(False, axis="y")
        axes.set_xlim(0, 102)
        axes.set(
            title="Use of links over the run",
            xlabel="share of the run spent sending, %  (bar: mean of the tier)",
        )
        if len(results) > 1:
            for place, name in enumerate(names(results)):
                axes.plot([], [], "o", ms=5, color=_line(place)["color"], label=name)
            _legend_above(figure, axes, len(results), columns=3)
        return figure


# --- small things ---------------------------------------------------------------------------------------------


@contextmanager
def style() -> Iterator[None]:
    """matplotlib, drawing as all pictures here. Raises PictureError if it is not installed."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise PictureError("pictures need matplotlib: pip install '.[sim]' in a checkout of dlcp") from error
    with mpl.rc_context(STYLE):
        yield


@contextmanager
def new_figure(
    panels: int, height: float | None = None, width: float = WIDTH_INCHES, heading: str = ""
) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """A figure with so many panels under each other, and the style to draw in; `heading`: above all of them."""
    with style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        tall = height or HEIGHT_INCHES * (1.0 if panels == 1 else 0.72 * panels)
        figure = Figure(figsize=(width, tall), layout="constrained")
        FigureCanvasAgg(figure)
        head(figure, heading)
        axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
        yield figure, list(axes)


def head(figure: Figure, words: str) -> None:
    """A heading above all panels, if there are words, in lines that fit the figure."""
    if words:
        lines = textwrap.fill(words, round(9.5 * figure.get_figwidth()))
        figure.suptitle(lines, x=0.01, ha="left", fontsize=11.5, fontweight="bold", color=INK)


def _undated(suffix: str) -> dict[str, Any] | None:
    """Metadata without the time of drawing, so that the same picture is the same file."""
    return {"Date": None} if suffix == ".svg" else {"Software": None} if suffix == ".png" else None


def _line(place: int, width: float = 1.8) -> dict[str, Any]:
    dash = DASHES[place // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[place % len(COLOURS)], "ls": dash, "lw": width}


def _short_size(value: float) -> str:
    unit, word = unit_of(value, SIZE_UNITS)
    return f"{value / unit:g} {word}"


def _values(result: Result, quantity: str) -> tuple[NDArray[np.float64], int]:
    """The values of the flows that finished, in order, and how many flows there were that started."""
    flows = result.flows
    values = flows.slowdown if quantity == "slowdown" else flows.completion_s
    return np.sort(values[np.isfinite(values)]), int(np.isfinite(flows.start_s).sum())


def _thinned(count: int) -> NDArray[np.int64]:
    """Which of `count` sorted values are drawn: all, or evenly many and every one of the last."""
    if count <= POINTS_MAX:
        return np.arange(count)
    tail = np.arange(count - POINTS_MAX // 4, count)
    return np.unique(np.concatenate([np.linspace(0, count - 1, POINTS_MAX).astype(np.int64), tail]))


def _scale(axes: Axes, values: NDArray[np.float64]) -> None:
    """Logarithmic where values span more than one power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = float(values.min()), float(values.max())
    if low > 0 and high > 12 * low:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high < 200 * low else (1,), numticks=9))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif high > low:
        axes.set_xlim(max(0.0, low - 0.05 * (high - low)), high + 0.05 * (high - low))


def _samples(result: Result) -> Any:
    samples = result.samples
    if samples is None or len(samples.time_s) < 2:
        raise PictureError("this result has no time series; ask the scenario for samples")
    return samples


def _carried(use: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of intervals, [times, ports], none above one.

    A packet counts as its first bit leaves; what of it an interval has no time for leaves in the next.
    """
    found, over = np.empty_like(use), np.zeros(use.shape[1])
    for i, row in enumerate(use):
        total = row + over
        found[i] = np.minimum(total, 1.0)
        over = total - found[i]
    return found


def _mean_series(time: NDArray[np.float64], value: NDArray[np.float64]) -> tuple[Any, Any]:
    """Rates between times, thinned to their means, at the middle of what they are of."""
    return _grouped((time[1:] + time[:-1]) / 2, value, np.mean)


def _peak_series(time: NDArray[np.float64], value: NDArray[np.float64]) -> tuple[Any, Any]:
    """Depths, thinned to their peaks: a mean would hide what overflows a buffer."""
    return _grouped(time, value, np.max)


def _grouped(time: NDArray[np.float64], value: NDArray[np.float64], reduce: Any) -> tuple[Any, Any]:
    """At most POINTS_MAX points, each of as many in a row."""
    group = -(-len(value) // POINTS_MAX)
    if group <= 1:
        return time, value
    whole = len(value) // group * group
    return time[:whole].reshape(-1, group).mean(axis=1), reduce(value[:whole].reshape(-1, group), axis=1)


def _share_time(upper: Axes, lower: Axes, time: NDArray[np.float64], word: str, size_word: str) -> None:
    """Of two panels over the same time, `word`; the lower one shows what waits, in `size_word`."""
    for axes in (upper, lower):
        axes.set_xlim(float(time[0]), float(time[-1]))
    upper.tick_params(axis="x", labelbottom=False)
    lower.set(ylabel=f"waiting, {size_word}", xlabel=f"simulated time, {word}")
    lower.set_ylim(bottom=0)


def _legend(axes: Axes, count: int) -> None:
    """Beside the curves, where they leave room; a single curve needs no name."""
    if count > 1:
        axes.legend(loc="best", handlelength=1.5)


def _legend_above(figure: Figure, axes: Axes, count: int, columns: int) -> None:
    if count:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(columns, count),
            handlelength=1.4,
            columnspacing=1.2,
        )


def _duration_s(result: Result) -> float:
    """Until the last flow was there; of a run without any, all of it."""
    ends = result.flows.start_s + result.flows.completion_s
    return float(np.nanmax(ends)) if np.isfinite(ends).any() else result.simulated_s


def _tiers(result: Result) -> dict[str, list[int]]:
    """Ports by the kinds of node that they join, "host → edge" first, as the path of a packet has them."""
    found: dict[str, list[int]] = {}
    ports = result.ports
    kinds = [name.rsplit(" ", 1)[0] for name in ports.node_names]
    for port in range(len(ports)):
        tier = f"{kinds[int(ports.sender[port])]} → {kinds[int(ports.receiver[port])]}"
        found.setdefault(tier, []).append(port)
    order = {"host": 0, "edge": 1, "leaf": 1, "switch": 1, "aggregation": 2, "spine": 2, "core": 3}

    def rank(tier: str) -> tuple[int, int]:
        begin, end = (order.get(kind, 1) for kind in tier.split(" → "))
        return (0, begin) if begin <= end else (1, -begin)

    return {tier: found[tier] for tier in sorted(found, key=rank)}
