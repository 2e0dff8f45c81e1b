"""What was measured of one tensor, as text, markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from studies.training.mse import KINDS, OURS, OURS_STEPS, PUBLISHED, RATES, STEPS, TAR, Found

JSON_NAME, MARKDOWN_NAME = "mse.json", "mse.md"

COMPARABLE = (
    "Published: OptiReduce, 500 M entries, equal drops. Its unit, rate and pattern of drops are not stated in what we",
    "have, so only ratios between its figures compare. With independent drops per packet and hop, theory gives N / 2",
    "for ring over TAR and N / (N - 1) for a server over TAR, and the measurements agree. The published ratios of",
    "5.9 and 4.0 need drops that are not independent. Our second half is repaired in full, so only the first half's",
    "losses are left.",
)


def lines(found: Found) -> Iterator[str]:
    """The whole report as plain lines."""
    yield f"One tensor of {found.entries} entries, sum over {found.ranks} ranks; mean squared error, 1: knowing nothing"
    for title, table in tables(found):
        yield ""
        yield title
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        for row in table:
            rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            yield "  " + "   ".join([row[0].ljust(widths[0]), *rest])
    yield ""
    yield from COMPARABLE


def tables(found: Found) -> Iterator[tuple[str, list[list[str]]]]:
    """Titles and tables, each with its heading as first row."""
    for kind, ways in found.mse.items():
        head = [
            "method",
            *(f"{100 * rate:g} %" for rate in RATES),
            f"over TAR at {100 * RATES[1]:g} %",
            "published, over TAR",
            f"worst block at {100 * RATES[1]:g} %",
        ]
        table = [head]
        for way in (*PUBLISHED, *OURS):
            published = f"{PUBLISHED[way] / PUBLISHED[TAR]:.2f}" if way in PUBLISHED else "-"
            table.append(
                [
                    way,
                    *(f"{ways[way][rate]:.3g}" for rate in RATES),
                    f"{ways[way][RATES[1]] / ways[TAR][RATES[1]]:.2f}",
                    published,
                    f"{found.worst[kind][way][RATES[1]]:.3g}",
                ]
            )
        yield f"One tensor, blocks {_kind(kind)}:", table
    for kind, fills in found.steps.items():
        table = [["ours", *(f"{100 * rate:g} %" for rate in RATES), f"over zero at {100 * RATES[1]:g} %"]]
        for fill in OURS_STEPS:
            table.append(
                [
                    fill,
                    *(f"{fills[fill][rate]:.3g}" for rate in RATES),
                    f"{fills[fill][RATES[1]] / fills['zero'][RATES[1]]:.2f}",
                ]
            )
        yield f"Sum over {STEPS} steps, per step, blocks {_kind(kind)}:", table


def write(found: Found, folder: Path) -> None:
    """The tables as JSON and markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON_NAME).write_text(json.dumps(asdict(found), indent=1) + "\n")
    (folder / MARKDOWN_NAME).write_text("\n".join(_markdown(found)) + "\n")


def _markdown(found: Found) -> Iterator[str]:
    yield "# How far one aggregated tensor is from the truth under equal drops"
    yield ""
    yield (
        f"`dlcp study mse --entries {found.entries} --ranks {found.ranks}`: mean squared error of the sum, per unit of "
        "its variance, at equal drop rates per packet and hop."
    )
    for title, table in tables(found):
        yield ""
        yield f"**{title}**"
        yield ""
        yield _row(table[0])
        yield f"|{'---|' * len(table[0])}"
        for row in table[1:]:
            yield _row(row)
    yield ""
    yield " ".join(COMPARABLE)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _kind(kind: str) -> str:
    return f"of scales that differ (log-normal, {KINDS[kind]:g})" if KINDS[kind] else "all alike"
