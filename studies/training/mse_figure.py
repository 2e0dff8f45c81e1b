"""What was measured of one tensor as a picture: the error of each way over the rate of drops. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.ticker import NullLocator

from studies.training.mse import OURS, OURS_STEPS, RATES, RING, SERVER, STEPS, TAR, Found
from studies.training.page import curves, page, share_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def draw(found: Found, path: Path) -> None:
    panels = [(f"One tensor, {TITLES[kind]}", ways, COLOURS) for kind, ways in found.mse.items()]
    panels += [
        (f"Sum over {STEPS} steps, {TITLES[kind]}", fills, COLOURS_STEPS)
        for kind, fills in found.steps.items()
    ]
    about = (
        f"{found.entries / 1e6:.0f} M entries, {found.ranks} ranks  ·  mean squared error, 1: knowing nothing"
    )
    with page(path, "What equal drops do to an aggregated tensor", about, height=9.2) as figure:
        for place, (title, ways, colours) in enumerate(panels):
            axes = figure.add_axes((0.06 + 0.48 * (place % 2), 0.51 - 0.45 * (place // 2), 0.29, 0.34))
            curves(axes, title)
            for name, values in ways.items():
                axes.plot(RATES, [values[rate] for rate in RATES], "-o", color=colours[name], lw=2, ms=4.5)
            share_axis(axes, RATES)
            axes.set_yscale("log")
            axes.yaxis.set_minor_locator(NullLocator())
            axes.set_xlabel("drops per packet and hop" if place > 1 else "")
            ends = sorted((values[RATES[-1]], name) for name, values in ways.items())
            _names(figure, axes, ends, colours)


def _names(figure: Figure, axes: Axes, ends: list[tuple[float, str]], colours: dict[str, str]) -> None:
    """Each curve's name at its end, moved apart where two would overlap."""
    left = axes.get_position().x1 + 0.008
    to_figure, to_pixels = figure.transFigure.inverted().transform, axes.transData.transform
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
