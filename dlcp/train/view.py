"""What a person sees while it runs: a living table on a terminal, a line per epoch anywhere else.

Lines are plain so that a log of them reads well: no colour, no cursor movement, the whole fact in each.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from dlcp.train.plan import GLOO, Run, TrainingPlan, percent
from dlcp.train.record import Record, RunRecord
from dlcp.train.table import data_size
from dlcp.units import grouped, plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"
COLUMNS = ("model", "over", "seed", "", "epoch", "loss", "accuracy", "time", "loss so far")
# A terminal of so many columns has room for all of these; the one without a name is a bar.
_WIDE_COLUMNS = 120


def open_view(stream: TextIO) -> View:
    """The view that suits where the output goes."""
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        try:
            return LiveView()
        except ImportError:
            pass  # rich is an extra
    return PlainView(stream)


class View:
    """A watcher of the runs; calls come in their order. This one shows nothing."""

    def begin(self, record: Record, plan: TrainingPlan) -> None:
        """The ranks are about to start."""

    def run_begins(self, current: RunRecord) -> None:
        """A run has been ordered."""

    def stepped(self, current: RunRecord, step: int, steps: int) -> None:
        """Rank 0 has done so many steps."""

    def epoch_over(self, current: RunRecord) -> None:
        """The run's record has another epoch."""

    def run_over(self, done: RunRecord) -> None:
        """The run's record is complete."""

    def close(self) -> None:
        """Nothing more comes."""


class PlainView(View):
    """A line per epoch."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._record: Record | None = None

    def begin(self, record: Record, plan: TrainingPlan) -> None:
        self._record = record
        self._print(f"{plural(plan.world_size, 'rank')} on {record.host['processor']}")
        self._print(f"network: {record.network}")
        self._print(expectation(plan))

    def run_begins(self, current: RunRecord) -> None:
        self._print(f"\n{current.run.name}")

    def epoch_over(self, current: RunRecord) -> None:
        last = current.last
        line = (
            f"  epoch {last.epoch:2}/{current.run.epochs}  loss {last.loss:7.4f}  accuracy {last.accuracy * 100:5.1f} %"
            f"  {last.wall_s:6.1f} s"
        )
        if (other := reference(self._record, current)) is not None and last.epoch < len(other.epochs):
            line += f"  ({other.run.configuration.name}: {other.epochs[last.epoch].loss:.4f})"
        self._print(line)

    def run_over(self, done: RunRecord) -> None:
        if (words := network_words(done)) is not None:
            self._print(f"  network: {words}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveView(View):
    """A table on a terminal: a row per run, drawn again as it goes on."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = console or Console()
        # A little slower than a step, so that drawing takes no processor from the ranks.
        self._live = Live(console=self._console, refresh_per_second=5, transient=False)
        self._runs: tuple[Run, ...] = ()
        self._records: dict[Run, RunRecord] = {}
        self._steps: dict[Run, tuple[int, int]] = {}
        self._words: list[str] = []
        self._network = ""

    def close(self) -> None:
        """Leaves the table as it is, and the cursor behind it."""
        self._live.stop()

    def begin(self, record: Record, plan: TrainingPlan) -> None:
        self._runs = plan.runs
        self._console.print(
            f"[bold]dlcp train[/]  {plural(plan.world_size, 'rank')} on {record.host['processor']}",
            highlight=False,
        )
        self._network = record.network
        self._console.print(f"[dim]{record.network}[/]", highlight=False)
        self._console.print(f"[dim]{expectation(plan)}[/]\n", highlight=False)
        self._live.start()
        self._draw()

    def run_begins(self, current: RunRecord) -> None:
        self._records[current.run] = current
        self._draw()

    def stepped(self, current: RunRecord, step: int, steps: int) -> None:
        self._steps[current.run] = (step, steps)
        self._draw()

    def epoch_over(self, current: RunRecord) -> None:
        self._draw()

    def run_over(self, done: RunRecord) -> None:
        if (words := network_words(done)) is not None:
            self._words.append(f"{done.run.name}: {words}")
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        self._live.update(Group(self._table(), *(Text(words, style="dim") for words in self._words)))

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        names = self._columns()
        table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
        for name in names:
            justify = "left" if name in ("model", "over", "", "loss so far") else "right"
            table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        for run in self._runs:
            current = self._records.get(run)
            step, steps = self._steps.get(run, (0, 1))
            style = "bold" if run.configuration.loss_ratio else ""
            cells: dict[str, Text | ProgressBar | str] = {
                "model": run.model,
                "over": Text(run.configuration.name, style),
                "seed": str(run.seed),
                "": ProgressBar(total=steps, completed=step, width=24),
            }
            if current is not None and current.epochs:
                last = current.last
                cells |= {
                    "epoch": f"{last.epoch}/{run.epochs}",
                    "loss": f"{last.loss:.4f}",
                    "accuracy": f"{last.accuracy * 100:.1f} %",
                    "time": f"{last.wall_s:.1f} s",
                    "loss so far": Text(sparkline([epoch.loss for epoch in current.epochs]), "cyan"),
                }
            elif run == self._next():
                waits = "starting" if current is not None or not self._records else "waits"
                cells["epoch"] = Text(waits, "dim")
            table.add_row(*(cells.get(name, "") for name in names))
        return table

    def _columns(self) -> list[str]:
        """Those that fit the terminal: no number is cut off for a picture, or for seeds that are all alike."""
        left_out = set() if self._console.width >= _WIDE_COLUMNS else {"", "loss so far"}
        if len({run.seed for run in self._runs}) == 1:
            left_out.add("seed")
        return [name for name in COLUMNS if name not in left_out]

    def _next(self) -> Run | None:
        """The first run that has said nothing yet."""
        silent = (run for run in self._runs if run not in self._records or not self._records[run].epochs)
        return next(silent, None)


def expectation(plan: TrainingPlan) -> str:
    """How much there is to wait for, in a line."""
    words = f"{plural(len(plan.runs), 'run')}, about {plan.estimate_s:.0f} s on two cores without other work"
    if plan.links is not None:
        words += ", longer over slow links"
    return words + ("; Ctrl-C keeps those that are over" if len(plan.runs) > 1 else "")


def reference(record: Record | None, current: RunRecord) -> RunRecord | None:
    """The run that the current one is to be compared with: the same model and seed over Gloo without loss."""
    sought = (current.run.model, current.run.seed, GLOO)
    for one in record.runs if record is not None else ():
        if (one.run.model, one.run.seed, one.run.configuration) == sought and one is not current:
            return one
    return None


def network_words(done: RunRecord) -> str | None:
    """What the network did to a run, in a line; None if nobody counted."""
    if done.run.configuration.exchange:
        return None if done.step_bytes is None else f"a rank sends {data_size(done.step_bytes)} per step"
    if (total := done.totals()) is None:
        return None
    lost = done.lost()
    assert lost is not None
    return (
        f"{grouped(total.sent_packets)} packets, {data_size(total.sent_bytes)}; "
        f"{grouped(lost.dropped_packets)} lost ({percent(lost.loss_ratio)}), "
        f"{grouped(total.repair_packets)} sent again, {grouped(total.marked_packets)} marked; "
        f"{sum(done.communication_s) / max(1e-9, sum(done.step_s)) * 100:.0f} % of the time in all-reduce"
    )


def sparkline(values: list[float]) -> str:
    """Values as a row of bars between their least and their largest."""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in values)
