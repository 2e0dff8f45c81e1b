"""The counters of a software switch as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_COLUMNS = ("sent", "marked", "trimmed", "dropped", "max_waiting_bytes")


def table(status: Mapping[str, Any]) -> str:
    """Per port and class what was sent, marked, trimmed and dropped, and the deepest queue; then what else was lost."""
    lines = [
        f"{'port':<12}{'class':>6}{'sent':>12}{'marked':>10}{'trimmed':>10}{'dropped':>10}{'depth max':>12}"
    ]
    for name, port in status["ports"].items():
        lines += _rows(name, port)
    for group, what in status["groups"].items():
        shares = ", ".join(f"{member} {packets}" for member, packets in what["members"].items())
        lines.append(f"group {group}: {shares}")
    known = status["addresses"]
    lines.append(f"addresses: {known['known']} known, {known['moved']} moved")
    return "\n".join(lines)


def _rows(name: str, port: Mapping[str, Any]) -> Iterator[str]:
    shown = name
    for number in reversed(range(len(port["classes"]))):
        row = port["classes"][number]
        if any(row[column] for column in _COLUMNS):
            sent, marked, trimmed, dropped, depth = (row[column] for column in _COLUMNS)
            yield f"{shown:<12}{number:>6}{sent:>12}{marked:>10}{trimmed:>10}{dropped:>10}{depth:>12}"
            shown = ""
    if shown:
        yield f"{shown:<12}{'-':>6}{0:>12}"
    lost = ", ".join(f"{reason} {count}" for reason, count in port["drops"].items() if count)
    if lost:
        yield f"{'':<12}not forwarded: {lost}"
