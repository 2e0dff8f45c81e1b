"""The study of precision as one picture: by problem, how many rounds an exchange is worth, by the bits that it sends.

What is to be seen: where the line of flat codes leaves full worth, and whether a layered exchange lies above it.
Needs matplotlib; draws without a display.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dlcp.plot_style import FAINT, INK, PAPER
from dlcp.study.training.page import curves, page
from dlcp.study.training.precision.arm import Arm
from dlcp.study.training.precision.plan import EXACT
from dlcp.study.training.precision.quality import Results
from dlcp_sim.cosimulation.tasks import WORKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLAT_LINE = ("int2", "int4", "int8", "fp16")
# Shape, colour and words of the marks, by kind of arm.
MARKS = {
    "flat": ("o", INK, "flat, two residuals"),
    "float8": ("s", INK, "fp8_e4m3, bf16"),
    "less": ("x", "#c92a2a", "residual at the sender alone, or none"),
    "fixed": ("D", "#1c7ed6", "layered, fixed share, by importance"),
    "random": ("v", "#9aa8b8", "layered, in random order"),
    "network": ("^", "#e8590c", "layered, the network decides"),
    "more": ("*", "#9c36b5", "flat: 4 bits up and 8 down, other scales, turned"),
    "chosen": ("P", "#2f9e44", "flat, by capacity"),
}
TITLES = {
    "mlp sgd": "Perceptron, SGD",
    "mlp adam": "Perceptron, Adam",
    "cnn sgd": "Convolutional, SGD",
    "tfs adam": "Transformer, Adam",
    "tfn adam": "Narrow transformer, Adam",
}
# What is worth less is drawn at the edge.
ROUNDS_MIN = 0.5


def draw(results: Results, path: Path) -> None:
    # Of a problem without shorter dense runs there is nothing to see.
    points = {problem: found for problem in results.problems() if (found := _points(results, problem))}
    problems = list(points)
    worst = min([rounds for found in points.values() for _, rounds in found.values()], default=ROUNDS_MIN)
    about = (
        f"{WORKERS} workers, data-parallel  ·  groups of 64 values with a scale each  ·  {len(results)} runs  ·  "
        f"residuals at the sender and at the owner"
    )
    with page(path, "How many bits a gradient needs", about, 5.4) as figure:
        left, gap = 0.055, 0.022
        width = (0.985 - left - gap * (len(problems) - 1)) / len(problems)
        for place, problem in enumerate(problems):
            axes = figure.add_axes((left + place * (width + gap), 0.24, width, 0.53))
            _panel(axes, problem, points[problem], first=place == 0)
            # A step of the grid below the worst.
            axes.set_ylim(max(ROUNDS_MIN, math.floor(worst * 10) / 10 - 0.02), 1.03)
        marks = [
            Line2D([], [], marker=shape, color=colour, ls="-" if kind == "flat" else "", ms=6, label=words)
            for kind, (shape, colour, words) in MARKS.items()
        ]
        figure.legend(handles=marks, loc="lower center", ncols=4, frameon=False, fontsize=9)


def _points(results: Results, problem: str) -> dict[Arm, tuple[float, float]]:
    """Of each arm its bits, and the rounds that it is worth."""
    points = {}
    for arm in results.arms(problem):
        rounds = results.rounds(problem, arm)
        if arm != EXACT and rounds is not None:
            points[arm] = (results.bits(problem, arm), max(rounds, ROUNDS_MIN))
    return points


def _panel(axes: Axes, problem: str, points: dict[Arm, tuple[float, float]], *, first: bool) -> None:
    curves(axes, TITLES.get(problem, problem))
    axes.axhline(1, color=FAINT, lw=1.2, zorder=0)
    line = [points[Arm(codec)] for codec in FLAT_LINE if Arm(codec) in points]
    if line:
        axes.plot(*zip(*line, strict=True), color=INK, lw=1.4, zorder=2)
    for arm, (bits, rounds) in points.items():
        shape, colour, _ = MARKS[_kind(arm)]
        edge, width = (colour, 1.6) if shape == "x" else (PAPER, 0.7)
        axes.plot(bits, rounds, shape, color=colour, ms=6.5, mec=edge, mew=width, zorder=3, clip_on=False)
    axes.set_xscale("log", base=2)
    axes.set_xlim(1.9, 20)
    axes.xaxis.set_major_locator(FixedLocator([2.25, 4.25, 8.25, 16]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("bits per value")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}" if first else ""))
    if first:
        axes.set_ylabel("rounds of float32 that end as well")


def _kind(arm: Arm) -> str:
    if arm.feedback != "both":
        return "less"
    if arm.wider:
        return "chosen"
    if arm.layers:
        return "random" if arm.order == "random" else "fixed" if arm.capacity == "fixed" else "network"
    if arm != Arm(arm.codec):
        return "more"
    return "flat" if arm.codec in FLAT_LINE else "float8"
