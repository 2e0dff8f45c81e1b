"""Tables, and how they are written: as text for a terminal, as Markdown, as HTML, as CSV.

Cells are text by the time they are in a table; CSV alone takes the numbers behind them, where there are any. The
comparison of results is one such table: a row per result, completion times and what the network did, and each mean
beside that of the first row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from dlcp.units import aligned, duration, fitted, grouped, rate
from dlcp_sim.hosts import host_lines

if TYPE_CHECKING:
    from dlcp_sim.result import Result

NAMED_SETTINGS = 3
"""More differences than these say nothing beside a row."""
UNNAMED = ("name", "seed", "threads")
"""What of a scenario is said otherwise, or changes no result."""


@dataclass
class Table:
    """Rows of one kind: the first column names, the others say."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    numbers: list[list[object]] = field(default_factory=list)
    """What `rows` stand for, for CSV; the same number of columns."""

    def add(self, *cells: str | tuple[str, object]) -> None:
        """A row of as many cells as there are columns: a text, or a text and the number that it stands for."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append([cell if isinstance(cell, str) else cell[0] for cell in cells])
        self.numbers.append([cell if isinstance(cell, str) else cell[1] for cell in cells])

    def text(self) -> str:
        """For a terminal: the first column to the left, the others to the right."""
        return "\n".join([self.title, *aligned(fitted([list(self.columns), *self.rows]))])

    def markdown(self) -> str:
        """A Markdown table under its title."""
        lines = [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in (list(self.columns), *self.rows)
        ]
        rule = "|" + "|".join(["---", *["---:"] * (len(self.columns) - 1)]) + "|"
        return "\n".join([f"**{self.title}**", "", lines[0], rule, *lines[1:]])

    def html(self) -> str:
        """A <table>; its title is left to the page."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def as_dict(self) -> dict[str, object]:
        """For JSON: the title, and of each row the numbers as they are, by column; null where one is not finite."""
        names = [column or "case" for column in self.columns]
        rows = [dict(zip(names, map(finite, row), strict=True)) for row in self.numbers]
        return {"title": self.title, "rows": rows}

    def csv(self) -> str:
        """Numbers as they are, one line per row, after a line of column names."""
        content = io.StringIO()
        writer = csv.writer(content, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.numbers)
        return content.getvalue()


def finite(value: object) -> object:
    """A value as JSON takes it: of Python's types, and None for a number that is not finite."""
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not np.isfinite(plain) else plain


def names(results: Sequence[Result]) -> list[str]:
    """What to call each result beside the others: by name, and where that is not enough by what differs."""
    found = [result.name for result in results]
    for more in (
        [str(result.scenario.get("transport", {}).get("kind", "")) for result in results],
        _differences(results),
        [f"seed {result.seed}" for result in results],
        [f"#{i + 1}" for i in range(len(results))],
    ):
        words: dict[str, set[str]] = {}
        for name, word in zip(found, more, strict=True):
            words.setdefault(name, set()).add(word)
        pairs = zip(found, more, strict=True)
        found = [f"{name}, {word}" if word and len(words[name]) > 1 else name for name, word in pairs]
    return found


def _differences(results: Sequence[Result]) -> list[str]:
    """Of each result the settings in which not all are alike, as "load=0.5"; the seed and the transport's apart."""
    each = [dict(_settings(result.scenario)) for result in results]
    keys = list(dict.fromkeys(key for settings in each for key in settings))
    differ = [key for key in keys if len({settings.get(key, "") for settings in each}) > 1]
    if len({settings.get("transport.kind") for settings in each}) > 1:
        differ = [key for key in differ if not key.startswith(("transport.", "switch."))]
    if len(differ) > NAMED_SETTINGS:  # a policy's classes follow from few numbers
        differ = [key for key in differ if not any(part.isdecimal() for part in key.split("."))]
    if len(differ) > NAMED_SETTINGS:
        return [""] * len(results)
    return [
        ", ".join(f"{key.rpartition('.')[2]}={settings[key]}" for key in differ if key in settings)
        for settings in each
    ]


def _settings(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a scenario's tables by their dotted names."""
    items: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        items = [(str(key), one) for key, one in value.items() if name or key not in UNNAMED]
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        items = [(str(index), one) for index, one in enumerate(value)]
    else:
        yield name, str(value)
    for key, one in items:
        yield from _settings(one, f"{name}.{key}" if name else key)


def unlike(results: Sequence[Result]) -> list[str]:
    """Lines to stand above a comparison: what differs between the hosts and packets of its rows, beside their names.

    Empty: nothing does, or the results are older than this.
    """
    each = [
        {
            "payload, bytes": str(result.metadata.get("payload_bytes", "")),
            "header, bytes": str(result.metadata.get("header_bytes", "")),
            "connections": str(result.metadata.get("connections", "")),
            "hosts": str(result.scenario.get("hosts", "")),
            "set": _set(result.metadata.get("tuned", {})),
        }
        for result in results
    ]
    rows = [[name, *(one[name] for one in each)] for name in each[0]]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    lines = list(aligned([["what differs", *names(results)], *rows])) if rows else []
    heads = dict.fromkeys("\n".join(host_lines(result.metadata)) for result in results)
    lines += [line for line in max(heads, key=len).split("\n") if line]
    return [*lines, ""] if lines else []


def _set(tuned: Mapping[str, object]) -> str:
    words = [f"{name}={value}" for name, value in tuned.items()]
    more = f" and {len(words) - NAMED_SETTINGS} more" if len(words) > NAMED_SETTINGS else ""
    return (", ".join(words[:NAMED_SETTINGS]) + more) or "defaults"


def comparison(results: Sequence[Result], title: str = "completion time") -> Table:
    """Results beside each other; "beside first" is a mean completion time over the first row's."""
    with_training = any(result.metadata.get("iteration_s") for result in results)
    columns = [
        *("", "flows", "mean", "p50", "p99", "max", "beside first", "slowdown", "p99 slowdown", "goodput"),
        *("dropped", "trimmed", "marked", "lost", "sent again", "timeouts"),
        *(["iteration"] if with_training else []),
    ]
    table = Table(title, columns)
    first = results[0].figures()["completion_mean_s"] if results else np.nan
    for name, result in zip(names(results), results, strict=True):
        found = result.figures()
        done = result.flows.finished
        whole = int(found["finished"]) == int(found["flows"])
        flows = f"{int(found['flows'])}" if whole else f"{int(found['finished'])} of {int(found['flows'])}"
        beside = found["completion_mean_s"] / first
        goodput = float(result.flows.goodput_bps[done].mean()) if done.any() else np.nan
        cells: list[str | tuple[str, object]] = [
            name + (" (partial)" if result.partial else ""),
            (flows, int(found["finished"])),
        ]
        for key in ("completion_mean_s", "completion_p50_s", "completion_p99_s", "completion_max_s"):
            cells.append((duration(found[key]), found[key]))
        cells.append((_number(beside, 3), beside))
        cells += [(_number(found[key], 2), found[key]) for key in ("slowdown_mean", "slowdown_p99")]
        cells.append((rate(goodput), goodput))
        for key in ("packets_dropped", "packets_trimmed", "packets_marked", "packets_lost"):
            cells.append(_count(found[key]))
        cells += [_count(found["retransmitted_packets"]), _count(found["timeouts"])]
        if with_training:
            iteration = found.get("iteration_mean_s", np.nan)
            cells.append((duration(iteration), iteration))
        table.add(*cells)
    return table


def run_costs(results: Sequence[Result]) -> Table:
    """What the runs took of the machine that they ran on."""
    columns = [
        *("", "seed", "simulated", "wall", "CPU", "threads"),
        *("hops", "events", "ns per hop", "outside the loop"),
    ]
    table = Table("the runs themselves", columns)
    for name, result in zip(names(results), results, strict=True):
        data = result.metadata
        per_hop, outside = float(data.get("ns_per_hop", np.nan)), float(data.get("outside_ratio", np.nan))
        table.add(
            name,
            (str(result.seed), result.seed),
            (duration(result.simulated_s), result.simulated_s),
            (duration(float(data["wall_s"])), data["wall_s"]),
            (duration(float(data["cpu_s"])), data["cpu_s"]),
            (str(data.get("threads", 1)), data.get("threads", 1)),
            _count(float(data["hops"])),
            _count(float(data["events"])),
            (_number(per_hop, 1), per_hop),
            (f"{100 * outside:.1f} %" if np.isfinite(outside) else "–", outside),
        )
    return table


def _number(value: float, places: int) -> str:
    return f"{value:.{places}f}" if np.isfinite(value) else "–"


def _count(value: float) -> tuple[str, object]:
    return grouped(int(value)), int(value)
