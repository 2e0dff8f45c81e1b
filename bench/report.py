"""How a benchmark says what it found: figures with their spread, and bars that are met or not."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from dlcp.lab.tcp_fill import AT_LEAST, TcpFill

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")
T = TypeVar("T")


def in_turn(repeats: int, cases: Mapping[K, C], measure: Callable[[C], T]) -> dict[K, list[T]]:
    """Every case once per repetition, A B C A B C …, so that all meet the same neighbours on the machine."""
    found: dict[K, list[T]] = {name: [] for name in cases}
    for repeat in range(repeats):
        for name, case in cases.items():
            words = ", ".join(name) if isinstance(name, tuple) else name
            progress(f"{repeat + 1}/{repeats} {words}")
            found[name].append(measure(case))
    progress("")
    return found


def progress(text: str) -> None:
    """Where a long benchmark is, on a terminal's one line."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def slowest(ranks: Iterable[Sequence[float]]) -> list[float]:
    """Of each iteration the time of its slowest rank."""
    return [max(times) for times in zip(*ranks, strict=True)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` per cent of them do not exceed (nearest rank); nan of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True)
class Figure:
    """Median of a quantity over repetitions, and its extremes."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        listed = list(values)
        return cls(statistics.median(listed), min(listed), max(listed))

    def show(self, digits: int = 3) -> str:
        def number(value: float) -> str:
            return f"{value:,.{digits}f}"

        if self.low == self.high:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


def spread(values: Iterable[float], digits: int = 3) -> str:
    """A cell: median (lowest–highest)."""
    return Figure.of(values).show(digits)


def ratios(over: Iterable[float], under: Iterable[float]) -> Figure:
    """Of the same repetition each: within one the machine was in one mood."""
    return Figure.of(a / b for a, b in zip(over, under, strict=True))


@dataclass(frozen=True)
class Bar:
    """A ratio that is required, and the one that was found."""

    what: str
    at_least: float | None
    at_most: float | None
    figure: Figure
    not_judged: str = ""
    """Why the figure says nothing; empty: it does."""

    @property
    def met(self) -> bool | None:
        """None: it is not judged."""
        if self.not_judged:
            return None
        above = self.at_least is None or self.figure.median >= self.at_least
        return above and (self.at_most is None or self.figure.median <= self.at_most)

    def show(self) -> str:
        required = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        judgement = f"not judged: {self.not_judged}" if self.not_judged else "met" if self.met else "NOT MET"
        return f"{self.what}: required {required}, found {self.figure.show()} → {judgement}"


Cell = str | Figure | float


@dataclass
class Table:
    """Rows of one kind; every cell is text by the time it is here."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        self.rows.append(
            [
                cell if isinstance(cell, str) else cell.show() if isinstance(cell, Figure) else f"{cell:,.3f}"
                for cell in cells
            ]
        )

    def show(self) -> str:
        lines = [list(self.columns), *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]

        def row(cells: Sequence[str]) -> str:
            # The first column is a name, the rest are numbers.
            first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            return "  ".join([cells[0].ljust(len(first)), *rest]).rstrip()

        return "\n".join([self.title, *(row(line) for line in lines)])


@dataclass
class Report:
    """What one benchmark found."""

    name: str
    settings: dict[str, object]
    tables: list[Table] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fills: dict[str, TcpFill] = field(default_factory=dict)
    """What TCP alone makes of the shaped links, by the words with which bars over them begin. Known before the bars."""

    def table(self, title: str, columns: Sequence[str]) -> Table:
        """Another table, to be filled."""
        self.tables.append(Table(title, columns))
        return self.tables[-1]

    def at_least(self, limit: float, what: str, figure: Figure) -> None:
        self.bars.append(Bar(what, limit, None, figure, self._why_not(what)))

    def at_most(self, limit: float, what: str, figure: Figure) -> None:
        self.bars.append(Bar(what, None, limit, figure, self._why_not(what)))

    def _why_not(self, what: str) -> str:
        """Why a bar over a link that keeps TCP from filling it is not judged; empty: it is."""
        unfair = [fill for words, fill in self.fills.items() if what.startswith(words) and not fill.is_fair]
        return f"{unfair[0]}, {100 * AT_LEAST:g} % is needed" if unfair else ""

    def show(self) -> str:
        fills = [f"{words}: {fill}" if words else str(fill) for words, fill in self.fills.items()]
        settings = ", ".join([*(f"{key} {value}" for key, value in self.settings.items()), *fills])
        parts = [f"== {self.name} ==  {settings}", *(table.show() for table in self.tables)]
        parts += ["\n".join([*self.notes, *(bar.show() for bar in self.bars)])]
        return "\n\n".join(part for part in parts if part)

    def to_json(self) -> dict[str, object]:
        bars = [{**asdict(bar), "met": bar.met} for bar in self.bars]
        return {**asdict(self), "bars": bars}
