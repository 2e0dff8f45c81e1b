"""The study of tolerance as one picture: how a training's end worsens with loss, and below how much each way bears.

What is to be seen: where a curve leaves the band of what costs no extra round. Zero fill at random is drawn broad and
pale behind what is compared with it. Needs matplotlib; draws without a display.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from dlcp.plot_style import FAINT, INK, PAPER, SOFT
from dlcp.study.training.arm import Arm
from dlcp.study.training.network import PROCESSES, Process
from dlcp.study.training.page import curves, page, share_axis
from dlcp.study.training.plan import ARMS, BASELINE
from dlcp.study.training.tolerance import EXTRA_ROUNDS, Results
from dlcp_sim.cosimulation.tasks import WORKERS, open_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = "#f1f3f6"
# The curves: in this order, each with a colour, a width and a kind of line.
CURVES: dict[Arm, tuple[str, float, str]] = {
    BASELINE: ("#9aa8b8", 5.0, "-"),
    Arm("random", "residual", 1.0): ("#5f3dc4", 1.8, "-"),
    Arm("random", "residual", 0.9): ("#1c7ed6", 1.8, "-"),
    Arm("transport", "zero"): ("#9aa8b8", 1.8, "--"),
    Arm("transport", "residual", 1.0): ("#5f3dc4", 1.8, "--"),
    Arm("transport", "residual", 0.9): ("#e8590c", 2.6, "-"),
}
# Of the curves' axis: what is worse than so many allowances is drawn at the edge.
EXCESS_MAX = 6.0
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
TITLES = {"transformer": "Transformer", "cnn": "Convolutional network", "mlp": "Perceptron"}


def draw(results: Results, path: Path) -> None:
    tasks = results.tasks()
    every = {arm for task in tasks for arm in results.arms(task)}
    arms = sorted(
        (arm for arm in every if arm.process == "independent"),
        key=lambda arm: (arm.who, ARMS.index(arm) if arm in ARMS else len(ARMS)),
    )
    processes = sorted({arm.process for arm in every}, key=PROCESSES.index)
    height = 5.6 + 0.24 * len(arms) + 0.9
    about = (
        f"{WORKERS} workers, data-parallel  ·  the way to the owner loses blocks  ·  {len(results)} runs  ·  "
        f"the pale band: no worse than ending {EXTRA_ROUNDS:.0%} earlier without loss\n"
        "transport: the sender repeats critical blocks (a tenth, unless it says otherwise) and abandons the rest as "
        "far as the budget goes; the network hits no more, or twice as much (2x)\n"
        "behind the comma: what a lost block becomes: zero; a residual of so much each step that it waits; masked: a "
        "residual under momentum masking"
    )
    with page(path, "How much of its gradients a training bears to lose", about, height) as figure:
        left, width, gap = 0.055, 0.275, 0.045
        for place, task in enumerate(tasks):
            axes = figure.add_axes((left + place * (width + gap), 1 - 4.75 / height, width, 3.1 / height))
            _curves(axes, results, task, first=place == 0)
        _legend(figure, every, 1 - 5.35 / height)
        left, gap = 0.185, 0.03
        width = (0.975 - left - gap * (len(tasks) - 1)) / len(tasks)
        for place, task in enumerate(tasks):
            bounds = (left + place * (width + gap), 0.62 / height, width, 0.24 * len(arms) / height)
            _dots(figure.add_axes(bounds), results, task, arms, processes, first=place == 0)


def _curves(axes: Axes, results: Results, task: str, *, first: bool) -> None:
    """Excess in allowances by loss, at the loss-free rate."""
    curves(axes, f"{TITLES[task]}  ·  {OPTIMIZERS[open_task(task).optimizer]}")
    axes.axhspan(-2, 1, color=BAND, zorder=0)
    for arm, (colour, thick, kind) in CURVES.items():
        points = [
            (loss, min(EXCESS_MAX + 1, end / results.allowance(task)))
            for loss in results.losses(task, arm)
            if (end := results.end(task, arm, loss, tuned=False)) is not None
        ]
        ends = zip(*points, strict=True) if points else ((), ())
        axes.plot(*ends, kind, color=colour, lw=thick, solid_capstyle="round")
    _loss_axis(axes)
    axes.set_ylim(-1, EXCESS_MAX)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * EXTRA_ROUNDS * value:+.0f} %"))
    if first:
        axes.set_ylabel("worse at the end, as so many rounds fewer")
    axes.set_xlabel("gradient blocks lost")


def _legend(figure: Figure, known: set[Arm], level: float) -> None:
    lines = [
        Line2D([], [], color=colour, lw=min(thick, 4), ls=kind, label=arm.name)
        for arm, (colour, thick, kind) in CURVES.items()
        if arm in known
    ]
    figure.legend(
        handles=lines,
        loc="center left",
        bbox_to_anchor=(0.03, level),
        ncols=len(lines),
        frameon=False,
        fontsize=9,
    )


def _dots(
    axes: Axes, results: Results, task: str, arms: list[Arm], processes: list[Process], *, first: bool
) -> None:
    """A row per arm: its tolerance by how losses come."""
    marks = {"independent": ("o", INK), "bursty": ("D", "#e8590c"), "uneven": ("^", "#1c7ed6")}
    for row, arm in enumerate(reversed(arms)):
        axes.axhline(row, color=FAINT, lw=0.8, zorder=0)
        for process in processes:
            found = results.tolerance(task, arm.under(process), tuned=False)
            if found is None:
                continue
            shape, colour = marks[process]
            axes.plot(found.loss, row, shape, color=colour, ms=6, mec=PAPER, mew=0.8, zorder=3, clip_on=False)
            if found.at_least:
                axes.plot(found.loss * 1.09, row, ">", color=colour, ms=3, zorder=3, clip_on=False)
        if arm.process == "independent" and (tuned := results.tolerance(task, arm, tuned=True)) is not None:
            axes.plot(tuned.loss, row, "o", mfc="none", mec=INK, ms=9, mew=0.9, zorder=2, clip_on=False)
    _loss_axis(axes)
    axes.set_ylim(-0.6, len(arms) - 0.4)
    names = [arm.name if first else "" for arm in reversed(arms)]
    axes.set_yticks(range(len(arms)), names, fontsize=9, color=INK)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("largest loss without extra rounds", labelpad=2)
    if first:
        words = "dot: losses independent; ring: at the best learning rate"
        if len(processes) > 1:
            words += "; diamond: bursty; triangle: uneven"
        axes.text(0, 1.0, words, transform=axes.transAxes, fontsize=9, color=SOFT, va="bottom")


def _loss_axis(axes: Axes) -> None:
    share_axis(axes, (0.003, 0.01, 0.03, 0.1, 0.3, 0.9))
    axes.set_xlim(0.003, 1.0)
