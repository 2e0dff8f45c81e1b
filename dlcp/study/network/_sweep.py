"""What the studies that compare transports share: runs on several processes, tables, the files that are left."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import fields
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import numpy as np

from dlcp import __version__
from dlcp.progress import left, shown
from dlcp.units import duration
from dlcp_sim.report import pictures
from dlcp_sim.report.tables import Table

Cell = str | tuple[str, object]
C = TypeVar("C", bound=Hashable)
F = TypeVar("F")
J = TypeVar("J")


# --- runs -----------------------------------------------------------------------------------------------------


Told = dict[str, list[Any]]
"""What a study found, for programs: its tables, by column, and its notes."""


def parallel(function: Callable[[J], F], jobs: Iterable[J], processes: int | None = None) -> list[F]:
    """What a module's function gives for every job, in order; the same for any number of processes.

    None: as many processes as processors, 16 at most.
    """
    count, jobs = processes or min(os.cpu_count() or 1, 16), list(jobs)
    with ExitStack() as stack:
        at_work = stack.enter_context(ProcessPoolExecutor(count, get_context("spawn"))) if count > 1 else None
        found = at_work.map(function, jobs) if at_work else map(function, jobs)
        return [one for _, one in zip(counted(jobs), found, strict=True)]


def counted(jobs: Iterable[J]) -> Iterator[J]:
    """The jobs, one after the other; how many are done is shown to who looks on."""
    jobs, begin_s = list(jobs), monotonic()
    with shown() as show:
        show(f"0 of {len(jobs)} runs")
        for done, job in enumerate(jobs, 1):
            yield job
            show(f"{done} of {len(jobs)} runs{left(begin_s, done / len(jobs))}")


def measure(
    simulate: Callable[[tuple[C, Any, int]], F],
    cases: Iterable[C],
    scope: object,
    seeds: Sequence[int],
    processes: int | None = None,
) -> dict[C, F]:
    """`simulate((case, scope, seed))` of all cases over all seeds, and the runs of a case put together."""
    cases = list(dict.fromkeys(cases))
    runs = parallel(simulate, [(case, scope, seed) for case in cases for seed in seeds], processes)
    return {case: together(runs[i * len(seeds) : (i + 1) * len(seeds)]) for i, case in enumerate(cases)}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


# Metadata of dataclass fields: the rule by which `together` makes one value of those of several runs.
TOTAL: Mapping[str, Callable[[list[Any]], object]] = {"rule": sum}
MEAN = {"rule": _mean}
ROUNDED = {"rule": lambda values: round(np.mean(values))}
ALL = {"rule": np.concatenate}


def together(runs: Sequence[F]) -> F:
    """Runs of several seeds as one; every field has one of the rules above."""
    kind: Any = type(runs[0])
    return kind(  # type: ignore[no-any-return]
        **{one.name: one.metadata["rule"]([getattr(run, one.name) for run in runs]) for one in fields(kind)}
    )


# --- tables ---------------------------------------------------------------------------------------------------


def table(title: str, rows: Iterable[Mapping[str, Cell]]) -> Table:
    """One row or more, each a cell by heading."""
    listed = list(rows)
    found = Table(title, list(listed[0]))
    for row in listed:
        found.add(*row.values())
    return found


def numbers(rows: Iterable[Mapping[str, object]]) -> str:
    """All figures of all cases as CSV; None is an empty cell."""
    return table("", ({name: ("", "" if v is None else v) for name, v in row.items()} for row in rows)).csv()


def signed(ratio: float) -> tuple[str, float]:
    """A change in per cent: +1.0 %, −1.0 %."""
    return f"{100 * ratio:+.1f} %".replace("-", "−"), ratio


def change(ratio: float) -> tuple[str, float]:
    """As `signed`; what rounds to nothing has no sign."""
    text, _ = signed(ratio)
    return "0.0 %" if text in ("+0.0 %", "−0.0 %") else text, ratio


def percent(ratio: float, digits: int = 2) -> Cell:
    return f"{100 * ratio:.{digits}f} %", ratio


def time(seconds: float, otherwise: str = "unfinished") -> Cell:
    """A time in a unit that suits it; `otherwise` where it is not finite."""
    return duration(seconds) if math.isfinite(seconds) else otherwise, seconds


def ms(seconds: float, digits: int = 1) -> Cell:
    return f"{1e3 * seconds:.{digits}f} ms", seconds


def count(number: int) -> Cell:
    return str(number), number


# --- what is left ---------------------------------------------------------------------------------------------


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def heading(summary: str, text: str | None) -> tuple[str, str]:
    """A study's title and its module's docstring, as paragraphs."""
    return f"# {summary[0].upper()}{summary[1:]}", (text or "").strip()


ENGINE = ("native/engine", "native/collective", "native/switch", "sim/core")
"""What a study measures."""


def _git(*arguments: str) -> str:
    """What git says of these folders; empty: it does not."""
    words = ["git", "-C", str(Path(__file__).parents[3]), *arguments, "--", *ENGINE]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def engine_tree() -> str | None:
    """Of what studies measure, as it is committed: a digest. None: there is no git repository."""
    trees = _git("ls-tree", "HEAD")
    return hashlib.sha256(trees.encode()).hexdigest()[:10] if trees else None


def _engine() -> str:
    """Commit and digest of the engine, and whether it has changes that are not committed; else dlcp's version."""
    tree = engine_tree()
    if tree is None:
        return f"Engine: that of dlcp {__version__}."
    changed = ", with changes" if _git("status", "--porcelain") else ""
    return f"Engine: commit {_git('log', '-1', '--format=%h', '--abbrev=10')}, tree {tree}{changed}."


def leave(
    stem: Path,
    tables: Sequence[Table],
    lines: Sequence[str],
    *,
    markdown: Iterable[str | Table],
    csv: str,
    draw: Callable[[Path], object],
) -> Told:
    """Prints tables and lines; writes STEM.md, of the given paragraphs, STEM.csv and STEM.png.

    Where a picture needs what is not installed, that is printed instead. Returns what --json prints.
    """
    shown = [*(one.text() for one in tables), "\n".join(lines)]
    print("\n\n".join(part for part in shown if part))
    paragraphs = [part.markdown() if isinstance(part, Table) else part for part in markdown]
    paragraphs.append(_engine())
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    stem.with_suffix(".csv").write_text(csv, encoding="utf-8")
    try:
        draw(stem.with_suffix(".png"))
        print(f"\npicture: {stem.with_suffix('.png')}")
    except pictures.PictureError as error:
        print(f"\nno picture: {error}")
    return {"tables": [one.as_dict() for one in tables], "notes": list(lines)}
