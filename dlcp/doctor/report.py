"""How findings are shown: a line each with what mends it below, matrices over pairs of ranks, or JSON."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from dlcp.doctor.finding import Finding, Verdict, worst
from dlcp.doctor.probe import RankPair
from dlcp.units import plural

# Wider tables are not read; then the extremes are named.
RANKS_SHOWN_MAX = 16
_COLOURS = {Verdict.OK: "32", Verdict.WARN: "33", Verdict.FAIL: "31"}
_Number = Callable[[RankPair], float | None]


@dataclass(frozen=True)
class Host:
    """What was found on one host."""

    name: str
    findings: list[Finding]
    ranks: list[int] = field(default_factory=list)
    """Empty: there is no job."""


@dataclass(frozen=True)
class Examination:
    """All that was found."""

    names: list[str]
    """Of the members that were measured pairwise; pairs refer to places in it."""
    hosts: list[Host]
    findings: list[Finding]
    """Between members."""
    pairs: list[RankPair]

    @property
    def everything(self) -> list[Finding]:
        """All findings, those of hosts first."""
        return [one for host in self.hosts for one in host.findings] + self.findings

    def to_json(self) -> dict[str, Any]:
        """The whole report, as `--json` prints it."""
        hosts = [asdict(host) for host in self.hosts]
        return {
            "verdict": worst(self.everything),
            "hosts": [
                {name: value for name, value in host.items() if value or name != "ranks"} for host in hosts
            ],
            "between": [asdict(one) for one in self.findings],
            "pairs": [asdict(pair) for pair in self.pairs],
        }

    def lines(self, *, verbose: bool, colour: bool, columns: int | None = None) -> Iterator[str]:
        """The whole report for people. `verbose`: what is in order on each host as well, a line each.

        `columns`: as finding_lines has it.
        """
        for host in self.hosts:
            yield f"{host.name}:"
            shown = [one for one in host.findings if verbose or one.verdict != Verdict.OK]
            chosen = None if self.names else _chosen(host.findings)
            if chosen is not None and chosen not in shown:
                shown.insert(0, chosen)
            yield from finding_lines(shown, colour, columns)
            if others := [one for one in host.findings if one not in shown]:
                topics = ", ".join(dict.fromkeys(one.topic for one in others))
                yield from textwrap.wrap(
                    f"{len(others)} in order: {topics} (--verbose shows them)",
                    78,
                    initial_indent="  ",
                    subsequent_indent="  ",
                )
        if self.names:
            yield f"\nbetween {', '.join(self.names)}:"
            yield from finding_lines(self.findings, colour, columns)
            yield from pair_lines(self.names, self.pairs)
        yield f"\n{summary_line(self.everything)}"


def _chosen(findings: Sequence[Finding]) -> Finding | None:
    """What says by which interface a job would go: to know also where all is in order."""
    return next((one for one in findings if one.topic == "interface"), None)


def finding_lines(
    findings: Iterable[Finding], colour: bool = False, columns: int | None = None
) -> Iterator[str]:
    """A line per finding and one for what mends it. `columns`: of the terminal; None: nobody looks, so one may grep.

    What mends it stays in one line, which the terminal breaks: a command is copied.
    """
    listed = list(findings)
    width = max((len(one.topic) for one in listed), default=0)
    for one in listed:
        verdict = f"{one.verdict:<4}"
        if colour:
            verdict = f"\x1b[{_COLOURS[one.verdict]}m{verdict}\x1b[0m"
        first, *more = [one.text]
        if columns is not None:
            room = max(20, columns - width - 10)
            first, *more = textwrap.wrap(one.text, room, break_long_words=False, break_on_hyphens=False)
        yield f"  {verdict}  {one.topic:<{width}}  {first}"
        for text in more:
            yield f"  {'':4}  {'':{width}}  {text}"
        if one.remedy is not None:
            yield f"  {'':4}  {'':{width}}    {'better' if one.verdict == Verdict.OK else 'mend'}: {one.remedy}"


def summary_line(findings: Sequence[Finding]) -> str:
    """How many of each verdict."""
    count = {verdict: sum(one.verdict == verdict for one in findings) for verdict in Verdict}
    return f"{count[Verdict.FAIL]} failed, {plural(count[Verdict.WARN], 'warning')}, {count[Verdict.OK]} in order"


def pair_lines(names: Sequence[str], pairs: Sequence[RankPair]) -> Iterator[str]:
    """Tables of what was measured, row to column; for many ranks the extremes instead.

    `names`: of the ranks; pairs refer to places in them.
    """
    quantities: tuple[tuple[str, _Number, str], ...] = (
        ("least round trip, µs", lambda pair: None if pair.rtt_s is None else pair.rtt_s * 1e6, ".0f"),
        ("goodput, Gbit/s", lambda pair: None if pair.goodput_bps is None else pair.goodput_bps / 1e9, ".2f"),
        ("packets lost, %", _loss_percent, ".2f"),
        ("largest datagram, bytes", lambda pair: pair.datagram_bytes, ".0f"),
    )
    if all(pair.error is not None for pair in pairs):
        return  # the findings have said so
    for title, number, form in quantities:
        yield ""
        if len(names) <= RANKS_SHOWN_MAX:
            yield from _table(
                title, names, {(pair.source, pair.target): pair for pair in pairs}, number, form
            )
        else:
            yield _extremes(title, names, pairs, number, form)


def terminal_columns() -> int | None:
    """Of the terminal that standard output is; None: it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wants_colour(stream: TextIO | None = None) -> bool:
    """Whether a person looks on (https://no-color.org)."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not os.environ.get("NO_COLOR")


def _loss_percent(pair: RankPair) -> float | None:
    return None if pair.goodput_bps is None else 100 * pair.lost_packets / max(1, pair.sent_packets)


def _table(
    title: str, names: Sequence[str], pairs: dict[tuple[int, int], RankPair], number: _Number, form: str
) -> Iterator[str]:
    def cell(source: int, target: int) -> str:
        if source == target:
            return "·"
        pair = pairs.get((source, target))
        if pair is None:
            return "?"
        value = number(pair)
        return "none" if value is None else format(value, form)

    width = max(6, *(len(name) for name in names))
    yield f"{title} (row to column)"
    yield "  " + " ".join(f"{name:>{width}}" for name in ("", *names))
    for source, name in enumerate(names):
        yield "  " + " ".join(
            f"{text:>{width}}" for text in (name, *(cell(source, target) for target in range(len(names))))
        )


def _extremes(title: str, names: Sequence[str], pairs: Sequence[RankPair], number: _Number, form: str) -> str:
    known = [(value, pair) for pair in pairs if (value := number(pair)) is not None]
    if not known:
        return f"{title}: nothing was measured"
    low, high = min(known, key=lambda one: one[0]), max(known, key=lambda one: one[0])
    middle = statistics.median(value for value, _ in known)
    return (
        f"{title}: {format(low[0], form)} ({names[low[1].source]} to {names[low[1].target]}), median"
        f" {format(middle, form)}, {format(high[0], form)} ({names[high[1].source]} to {names[high[1].target]})"
    )
