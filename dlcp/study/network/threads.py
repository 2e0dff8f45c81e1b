"""What a second thread gains on 1024 hosts, and that it changes nothing: the same result, bit for bit.

Runs with one and with two threads take turns; the gain is the median over pairs of the ratio of their times in the
native loop. Wall time is what counts here, so the machine should be otherwise idle: a pair that shares its cores with
others shows less, and the load is printed (`chrt -f 10 dlcp study threads` keeps others off, as root). The result is
compared by a hash over all of its arrays.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.study.network import _reference, _sweep
from dlcp.study.network._reference import Bar
from dlcp_sim.report.tables import Table

if TYPE_CHECKING:
    from dlcp_sim.result import Result

NAME = "threads"
SUMMARY = "what two threads gain on 1024 hosts, with the same result"

THREADS = (1, 2)
REPETITIONS = 9
GAIN = 1.6
"""Asked of two threads."""


@dataclass
class Case:
    """A transport, with its times by number of threads, in the order of the pairs."""

    transport: str
    wall_s: dict[int, list[float]] = field(default_factory=lambda: {count: [] for count in THREADS})
    cpu_s: dict[int, list[float]] = field(default_factory=lambda: {count: [] for count in THREADS})
    digests: set[str] = field(default_factory=set)

    def gains(self, threads: int) -> list[float]:
        """Of each pair: time with one thread over time with so many."""
        pairs = zip(self.wall_s[1], self.wall_s[threads], strict=True)
        return [alone / together for alone, together in pairs]


def digest(result: Result) -> str:
    """A hash over every array of a result, by name."""
    found = hashlib.sha256()
    for name in sorted(result.arrays):
        array = result.arrays[name]
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    """Measures, prints, writes. The workload is one of the shared ones, so `seeds` changes nothing."""
    repetitions = 3 if quick else REPETITIONS
    cases = [Case("ndp")] if quick else [Case("ndp"), Case("dlcp")]
    for _, case, threads in _sweep.counted(itertools.product(range(repetitions), cases, THREADS)):
        result = _reference.scenario("P1024", case.transport, threads=threads).run()
        case.wall_s[threads].append(float(result.metadata["loop_s"]))
        case.cpu_s[threads].append(float(result.metadata["cpu_s"]))
        case.digests.add(digest(result))
    different = [case.transport for case in cases if len(case.digests) != 1]
    bars = [
        Bar(
            f"P1024 over {cases[0].transport}, 2 threads",
            statistics.median(cases[0].gains(2)),
            GAIN,
            "×",
            at_least=True,
        ),
        Bar("transports whose result differs between 1 and 2 threads", len(different), 0, ""),
    ]
    notes = [
        f"{repetitions} pairs on {_reference.machine()}; {len(os.sched_getaffinity(0))} cores may be used.",
        "wall: time in the native loop; gain: one thread's wall time over two threads' of the same pair.",
    ]
    told = _reference.leave(output / NAME, [_table(cases)], bars, notes, partial(_draw, cases))
    if different:
        raise AssertionError(f"{', '.join(different)}: the result depends on the number of threads")
    return told


def _table(cases: Sequence[Case]) -> Table:
    columns = ("", "threads", "wall s best", "median", "CPU s median", "gain median", "best", "result")
    table = Table("Threads, P1024", columns)
    for case in cases:
        for threads in THREADS:
            wall, gains = case.wall_s[threads], case.gains(threads)
            table.add(
                case.transport,
                (str(threads), threads),
                *((f"{value:.3f}", value) for value in (min(wall), statistics.median(wall))),
                (f"{statistics.median(case.cpu_s[threads]):.3f}", statistics.median(case.cpu_s[threads])),
                (f"{statistics.median(gains):.2f} ×", statistics.median(gains)),
                (f"{max(gains):.2f} ×", max(gains)),
                "same" if len(case.digests) == 1 else "DIFFERENT",
            )
    return table


def _draw(cases: Sequence[Case], path: Path) -> None:
    from dlcp_sim.report import pictures

    with pictures.new_figure(1, height=1.5 + 0.7 * len(cases), width=6.4) as (figure, (axes,)):
        for place, case in enumerate(cases):
            gains = case.gains(2)
            colour = pictures.COLOURS[place]
            axes.plot(gains, [place] * len(gains), "o", ms=6, alpha=0.5, mew=0, color=colour)
            middle = statistics.median(gains)
            axes.plot([middle, middle], [place - 0.3, place + 0.3], lw=2.6, color=colour)
            axes.text(middle, place - 0.36, f"{middle:.2f} ×", ha="center", va="bottom", fontsize=9)
        axes.axvline(GAIN, color="#e03131", lw=1.4)
        axes.set_yticks(range(len(cases)), [case.transport for case in cases])
        axes.set_ylim(len(cases) - 0.4, -0.8)
        every = [gain for case in cases for gain in case.gains(2)]
        axes.set_xlim(min(0.8, min(every) - 0.05), max(2.1, max(every) + 0.05))
        axes.grid(False, axis="y")
        axes.set(xlabel="time with one thread over time with two  (point: a pair, bar: median, red: asked)")
        axes.set_title("Two threads on 1024 hosts")
        pictures.save(figure, path)
