"""What was measured of one tensor as a picture: the error of each way over the rate of drops. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dlcp.plot_style import FAINT, INK, PAPER, SOFT, STYLE
from studies.training.mse import OURS, OURS_STEPS, RATES, RING, SERVER, STEPS, TAR, Found

COLOURS = {
    RING: "#c92a2a",
    SERVER: "#9c36b5",
    TAR: "#66758a",
    OURS[0]: "#e8590c",
    OURS[1]: "#f59f00",
    OURS[2]: "#1c7ed6",
    OURS[3]: "#2b8a3e",
}
COLOURS_STEPS = dict(zip(OURS_STEPS, ("#e8590c", "#74c0fc", "#1c7ed6", "#5f3dc4"), strict=True))
# Between two names, as a share of the height.
_LINE = 0.021
TITLES = {"flat": "blocks all alike", "uneven": "blocks of scales that differ"}


def draw(found: Found, path: Path) -> Path:
    """Writes the picture and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    panels = [(f"One tensor, {TITLES[kind]}", ways, COLOURS) for kind, ways in found.mse.items()]
    panels += [
        (f"Sum over {STEPS} steps, {TITLES[kind]}", fills, COLOURS_STEPS)
        for kind, fills in found.steps.items()
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(14, 9.2))
        FigureCanvasAgg(figure)
        figure.text(
            0.04,
            0.965,
            "What equal drops do to an aggregated tensor",
            fontsize=19,
            fontweight="bold",
            va="center",
        )
        figure.text(
            0.04,
            0.928,
            f"{found.entries / 1e6:.0f} M entries, {found.ranks} ranks  ·  mean squared error, 1: knowing nothing",
            fontsize=10.5,
            color=SOFT,
            va="center",
        )
        for place, (title, curves, colours) in enumerate(panels):
            axes = figure.add_axes((0.06 + 0.48 * (place % 2), 0.53 - 0.46 * (place // 2), 0.29, 0.34))
            axes.set_title(title, fontsize=11.5, fontweight="bold", color=INK, loc="left", pad=9)
            ends = []
            for name, values in curves.items():
                points = [values[rate] for rate in RATES]
                axes.plot(RATES, points, "-o", color=colours[name], lw=2, ms=4.5)
                ends.append((points[-1], name))
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.xaxis.set_major_locator(FixedLocator(RATES))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
            axes.grid(True, axis="y", color=FAINT, lw=0.8)
            axes.spines["left"].set_visible(False)
            axes.set_xlabel("drops per packet and hop" if place > 1 else "")
            _names(figure, axes.get_position().x1 + 0.008, axes, sorted(ends), colours)
        return _save(figure, path)


def _names(
    figure: Figure, left: float, axes: object, ends: list[tuple[float, str]], colours: dict[str, str]
) -> None:
    """Each curve's name at its end, moved apart where two would overlap."""
    to_figure, to_pixels = figure.transFigure.inverted().transform, axes.transData.transform  # type: ignore[attr-defined]
    wanted = [float(to_figure(to_pixels((RATES[-1], value)))[1]) for value, _ in ends]
    # Names that would overlap form a stack around the middle of where they belong.
    stacks: list[list[int]] = []
    for index in range(len(wanted)):
        stacks.append([index])
        while len(stacks) > 1 and _bottom(stacks[-1], wanted) < _top(stacks[-2], wanted):
            stacks[-2:] = [stacks[-2] + stacks[-1]]
    for stack in stacks:
        for place, index in enumerate(stack):
            level = _bottom(stack, wanted) + (place + 0.5) * _LINE
            figure.text(left, level, ends[index][1], fontsize=9, color=colours[ends[index][1]], va="center")


def _bottom(stack: list[int], wanted: list[float]) -> float:
    return sum(wanted[index] for index in stack) / len(stack) - len(stack) * _LINE / 2


def _top(stack: list[int], wanted: list[float]) -> float:
    return _bottom(stack, wanted) + len(stack) * _LINE


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110, facecolor=PAPER)
    return path
