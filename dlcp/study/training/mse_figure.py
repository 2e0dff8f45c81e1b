"""What was measured of one tensor as a picture: the error of each way over the rate of drops. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib.ticker import NullLocator

from dlcp.study.training.mse import OURS, OURS_STEPS, RATES, RING, SERVER, STEPS, TAR, Found
from dlcp.study.training.page import curves, page, share_axis

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
TITLES = {"flat": "blocks all alike", "uneven": "blocks of scales that differ"}


def draw(found: Found, path: Path) -> None:
    panels = [(f"One tensor, {TITLES[kind]}", ways, COLOURS) for kind, ways in found.mse.items()]
    panels += [
        (f"Sum over {STEPS} steps, {TITLES[kind]}", fills, COLOURS_STEPS)
        for kind, fills in found.steps.items()
    ]
    about = (
        f"{found.entries / 1e6:.0f} M entries, {found.ranks} ranks  ·  mean squared error, 1: knowing nothing  ·  "
        "behind the comma: what takes the place of a lost block\n"
        "TAR: each rank sends a part to its owner, who sends the sum to all (OptiReduce)  ·  residual: what was lost "
        "waits for the next step"
    )
    with page(path, "What equal drops do to an aggregated tensor", about, height=9.2) as figure:
        for place, (title, ways, colours) in enumerate(panels):
            axes = figure.add_axes((0.06 + 0.49 * (place % 2), 0.51 - 0.45 * (place // 2), 0.29, 0.34))
            curves(axes, title)
            # The names from the worst to the best, as the curves end.
            for name, values in sorted(ways.items(), key=lambda item: -item[1][RATES[-1]]):
                points = [values[rate] for rate in RATES]
                axes.plot(
                    RATES, points, "-o", color=colours[name], lw=2, ms=4.5, label=name.replace("ours", "dlcp")
                )
            share_axis(axes, RATES)
            axes.set_yscale("log")
            axes.yaxis.set_minor_locator(NullLocator())
            axes.set_xlabel("drops per packet and hop")
            axes.set_ylabel("mean squared error")
            axes.legend(
                loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, handlelength=1
            )
