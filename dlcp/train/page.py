"""A record as one HTML file: the picture, the tables behind it, what the language model writes, and where it all ran.

It refers to nothing outside itself, so it can be mailed. The numbers are table.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from dlcp.train.figure import as_svg, colour
from dlcp.train.plan import Configuration
from dlcp.train.record import Record, RunRecord
from dlcp.train.table import NETWORK_COLUMNS, circumstances, findings, model_table, network_rows, rows, title

_STYLE = """
:root { --ink: #1f2933; --soft: #66717e; --line: #e4e8ed; --paper: #f6f7f9; --card: #ffffff; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #333b45; --paper: #14181d; --card: #1d232a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.55 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .2rem; }
p { margin: .2rem 0 .8rem; }
.soft { color: var(--soft); }
.picture { background: #ffffff; border: 1px solid var(--line); border-radius: 12px; padding: .4rem; }
.picture svg { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; background: var(--card); border: 1px solid var(--line);
        border-radius: 12px; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .9rem; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; font-size: .88rem; }
th:first-child, td:first-child { text-align: left; }
tbody tr { border-top: 1px solid var(--line); }
i.configuration { display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .55em; }
ul { margin: .6rem 0; padding-left: 1.2rem; }
li.wrong { color: #c92a2a; font-weight: 600; }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 1rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .9rem 1rem;
      margin: .4rem 0 0; overflow-x: auto; white-space: pre-wrap;
      font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
details { margin-top: .8rem; } summary { cursor: pointer; color: var(--soft); }
"""


def write_page(record: Record, path: Path) -> None:
    """Writes the page, UTF-8."""
    path.write_text("".join(f"{line}\n" for line in _page(record)), encoding="utf-8")


def _page(record: Record) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>dlcp train, {escape(record.started)}</title><style>{_STYLE}</style></head><body><main>"
    yield f'<div class="picture">{as_svg(record)}</div>'
    yield "<h2>What it shows</h2><ul>"
    for line in findings(record):
        yield f"<li{' class=wrong' if line.startswith('WRONG') else ''}>{escape(line)}</li>"
    yield "</ul>"
    for model in record.models:
        yield from _model(record, model)
    if found := network_rows(record):
        yield '<h2>What the network did</h2><p class="soft">'
        yield f"All ranks together. {escape(record.network)}.</p>"
        yield from _table(NETWORK_COLUMNS, [list(map(escape, row)) for row in found])
    yield "<h2>Where it ran</h2>"
    facts = {"started": record.started, "took": f"{record.wall_s:.0f} s", **record.host}
    yield from _table(("", ""), [[escape(name), escape(value)] for name, value in facts.items()])
    yield "</main></body></html>"


def _model(record: Record, model: str) -> Iterator[str]:
    yield f'<h2>{escape(title(model))}</h2><p class="soft">{escape(circumstances(record, model))}</p>'
    found = rows(record, model)
    names, body = model_table(found)
    named = zip(found, body, strict=True)
    yield from _table(names, [[_named(row.configuration), *map(escape, cells)] for row, cells in named])
    yield "<details><summary>after every epoch</summary>"
    yield from _epochs(record.of_model(model))
    yield "</details>"
    samples = [one for one in record.of_model(model) if one.sample and one.run.seed == 0]
    if samples:
        yield '<p class="soft" style="margin-top:1rem">What it writes after “def ”:</p><div class="samples">'
        for one in samples:
            yield f"<div>{_named(one.run.configuration)}"
            yield f"<pre>{escape(one.sample)}</pre></div>"
        yield "</div>"


def _named(configuration: Configuration) -> str:
    """Its name behind its colour."""
    return f'<i class="configuration" style="background:{colour(configuration)}"></i>{escape(configuration.name)}'


def _epochs(runs: Sequence[RunRecord]) -> Iterator[str]:
    """A row per epoch, and of each run loss and accuracy."""
    names = [f"{one.run.configuration.name}, seed {one.run.seed}" for one in runs]
    body = []
    for epochs in zip(*(one.epochs for one in runs), strict=False):
        body.append([str(epochs[0].epoch), *(f"{e.loss:.4f} · {e.accuracy * 100:.1f} %" for e in epochs)])
    yield from _table(("epoch", *names), body)


def _table(columns: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of cells that are HTML already."""
    yield '<div class="scroll"><table>'
    if any(columns):
        yield "<thead><tr>" + "".join(f"<th>{escape(name)}</th>" for name in columns) + "</tr></thead>"
    yield "<tbody>"
    for row in body:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</tbody></table></div>"
