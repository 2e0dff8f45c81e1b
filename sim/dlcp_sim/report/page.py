"""Results as one HTML file: comparison, pictures, what each run was and cost, and the scenario to run it again.

It refers to nothing outside itself, so it can be mailed; it follows the reader's light or dark scheme and is read on a
phone. The numbers are those of tables.py; without matplotlib the page has no pictures and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dlcp.units import duration, grouped, rate
from dlcp_sim.report import pictures, timeline
from dlcp_sim.report.tables import Table, comparison, names, run_costs
from dlcp_sim.result import Result
from dlcp_sim.toml import to_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { --ink: #1f2933; --soft: #66717e; --line: #dfe4ea; --paper: #f6f7f9; --card: #ffffff; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #37404b; --paper: #14181d; --card: #1d232a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.55 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p { margin: .2rem 0 .8rem; }
.soft { color: var(--soft); }
.pictures { display: grid; gap: 1rem; align-items: start;
            grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .6rem; }
figure svg { display: block; width: 100%; height: auto; }
figure.wide { grid-column: 1 / -1; overflow-x: auto; }
figure.wide svg { min-width: 620px; max-width: 1000px; margin: 0 auto; }
figcaption { color: var(--soft); font-size: .85rem; padding: .3rem .3rem 0; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 12px; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .8rem; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; font-size: .88rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--card); }
tbody tr { border-top: 1px solid var(--line); }
.warning { border-left: 4px solid #e8590c; padding: .2rem .8rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .9rem 1rem;
      margin: .4rem 0 0; overflow-x: auto; font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
details { margin-top: .8rem; } summary { cursor: pointer; color: var(--soft); }
"""


def write_report(
    results: Result | Sequence[Result],
    path: Path | str,
    *,
    title: str = "",
    timelines: Mapping[str, timeline.Iterations] | None = None,
    tables: Sequence[Table] = (),
) -> Path:
    """Writes the page, UTF-8, and returns its path. The first result is what the others are compared with.

    `timelines`: iterations of training by a title each. `tables`: more of them, shown after the comparison.
    """
    chosen = [results] if isinstance(results, Result) else list(results)
    if not chosen:
        raise pictures.PictureError("a report needs at least one result")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in _page(chosen, title, timelines or {}, tables))
    path.write_text(text, encoding="utf-8")
    return path


def _page(
    results: Sequence[Result],
    title: str,
    timelines: Mapping[str, timeline.Iterations],
    tables: Sequence[Table],
) -> Iterator[str]:
    if not title and len(results) == 1:
        title = str(results[0].metadata.get("title") or results[0].name)
    elif not title:
        called = names(results)
        title = ", ".join(called[:4]) + (f" and {len(called) - 4} more" if len(called) > 4 else "")
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{escape(title)}</h1>"
    yield f"<p>{escape(_what_was_simulated(results))}</p>"
    count = "1 run" if len(results) == 1 else f"{len(results)} runs"
    seeds = sorted({result.seed for result in results})
    words = f"seed {seeds[0]}" if len(seeds) == 1 else "seeds " + ", ".join(map(str, seeds))
    yield f'<p class="soft">{count} of the packet-level simulator, {escape(words)}</p>'
    for name, result in zip(names(results), results, strict=True):
        if result.partial:
            words = f"{name} was stopped before it was over: its figures are of what it reached."
            yield f'<p class="warning">{escape(words)}</p>'
    yield "<h2>Completion times</h2>"
    yield f'<div class="scroll">{comparison(results).html()}</div>'
    yield '<p class="soft">Slowdown: completion time over a lower bound that no transport can beat. “beside first”: '
    yield "mean completion time over that of the first row. Packets are dropped, trimmed and marked by switches, "
    yield "lost by faults.</p>"
    for table in tables:
        yield f'<h2>{escape(table.title)}</h2><div class="scroll">{table.html()}</div>'
    yield from _pictures(results, timelines)
    yield "<h2>What the runs cost</h2>"
    yield f'<div class="scroll">{run_costs(results).html()}</div>'
    yield "<h2>To run it again</h2>"
    for name, result in zip(names(results), results, strict=True):
        scenario = to_text(result.scenario)
        versions = (result.metadata.get("versions") or {}).items()
        about = ", ".join(
            [f"{name}, seed {result.seed}", *(f"{part} {version}" for part, version in versions)]
        )
        opened = " open" if len(results) == 1 else ""
        yield f"<details{opened}><summary>{escape(about)}</summary><pre>{escape(scenario)}</pre></details>"
    yield "</main></body></html>"


def _what_was_simulated(results: Sequence[Result]) -> str:
    """A sentence: fabric, load, flows, time, and every transport. What runs do not share is said of each."""

    def of_each(say: Callable[[Result], str]) -> str:
        return " and ".join(dict.fromkeys(map(say, results)))

    def between(values: Sequence[float], say: Callable[[float], str]) -> str:
        return " to ".join(dict.fromkeys((say(min(values)), say(max(values)))))

    def fabric(result: Result) -> str:
        rates = between(result.ports.rate_bps.tolist(), rate) if len(result.ports) else "no rate"
        return f"{result.metadata['hosts']} hosts ({result.scenario['fabric']['kind']}, links of {rates})"

    def load(result: Result) -> str:
        workload = result.scenario["workload"]
        return str(workload["kind"]) + (f" at load {workload['load']:g}" if "load" in workload else "")

    # Collectives that the transport's executor runs are tasks, and no flows.
    tasks = [0 if result.tasks is None else len(result.tasks.finish_s) for result in results]
    flows = [len(result.flows) for result in results]
    many = (
        f"{between(flows, grouped)} flows"
        if any(flows) or not any(tasks)
        else f"{between(tasks, grouped)} tasks"
    )
    time = between([result.simulated_s for result in results], duration)
    transports = ", ".join(dict.fromkeys(str(result.scenario["transport"]["kind"]) for result in results))
    return (
        f"Simulated: {of_each(fabric)}; {of_each(load)}: {many}, {time} of simulated time; over {transports}."
    )


def _pictures(results: Sequence[Result], timelines: Mapping[str, timeline.Iterations]) -> Iterator[str]:
    drawn = list(_drawable(results, timelines))
    if not drawn:
        return
    yield "<h2>Pictures</h2>"
    try:
        with pictures.style():
            pass
    except pictures.PictureError as error:
        yield f'<p class="warning">{escape(str(error))}</p>'
        return
    yield '<div class="pictures">'
    for caption, wide, draw in drawn:
        yield f"<figure{' class=wide' if wide else ''}>{pictures.as_svg(draw())}"
        yield f"<figcaption>{escape(caption)}</figcaption></figure>"
    yield "</div>"


def _drawable(
    results: Sequence[Result], timelines: Mapping[str, timeline.Iterations]
) -> Iterator[tuple[str, bool, Callable[[], Figure]]]:
    """The pictures that the results have the data for: caption, whether it is wide, how it is drawn."""
    from dlcp_sim.workloads.training import training_report

    if any(result.flows.finished.any() for result in results):
        caption = "Dots: half of the flows, and 99 of 100."
        for quantity in ("completion", "slowdown"):
            yield caption, False, partial(pictures.completion_distribution, results, quantity)
        if len({int(size) for size in results[0].flows.bytes[:100_000]}) >= 10:
            yield "Flows in ten groups of equal number.", False, partial(pictures.slowdown_by_size, results)
    nodes = [result.metadata["node_names"] for result in results]
    if len(results[0].ports) and all(each == nodes[0] for each in nodes):
        yield "A point per link.", False, partial(pictures.link_use, results)
    elif len(results[0].ports):
        for result in results:
            yield f"{result.name}: a point per link.", False, partial(pictures.link_use, [result])
    for result in results:
        if result.samples is not None and len(result.samples.time_s) > 1:
            caption = "Waiting: bytes in the queues of a link, the packet being sent not counted."
            yield caption, False, partial(pictures.link_series, result)
            yield caption, False, partial(pictures.class_series, result)
    found = dict(timelines)
    for name, result in zip(names(results), results, strict=True):
        for number, job in enumerate(result.metadata.get("jobs") or []):
            work = timeline.iterations_of(training_report(result, number))
            if work.iterations:
                found.setdefault(f"{name}: {job.get('name', f'job {number}')}, its first worker", work)
    caption = "Iterations from the end of a backward pass to the next. Thin bars: gradients being exchanged."
    for name, work in found.items():
        yield caption, True, partial(timeline.iteration_timeline, work, name)
