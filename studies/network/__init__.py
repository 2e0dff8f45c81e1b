"""How transports do on simulated networks: `dlcp study NAME` prints a table and leaves NAME.md, NAME.csv and NAME.png.

A study is a module of this package with `NAME`, `SUMMARY` and `run(output, quick, seeds)`; being there is being listed.
What several studies share is in modules whose names begin with `_`.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlcp.arguments import Parser
from dlcp.errors import ArgumentError

DEFAULT_SEEDS = 3


@dataclass(frozen=True)
class Study:
    """What a study's module offers."""

    name: str
    summary: str
    run: Callable[[Path, bool, int], None]
    """Output folder, whether a quick look is enough, number of seeds."""


def studies() -> dict[str, Study]:
    """All studies by name."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        study = importlib.import_module(f"{__name__}.{module.name}")
        # A module that lacks one of these is a mistake of ours; it must not vanish from the list.
        found[study.NAME] = Study(study.NAME, study.SUMMARY, study.run)
    return dict(sorted(found.items()))


def main(arguments: Sequence[str]) -> int:
    """`dlcp study NAME …` for one of these. Returns the exit status."""
    study = studies()[arguments[0]]
    parser = Parser(prog=f"dlcp study {study.name}", description=study.summary)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("dlcp-study"),
        metavar="DIR",
        help="folder for tables and pictures; default: dlcp-study",
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs: a minute or two")
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=None,
        metavar="N",
        help=f"1 to 1000; default: {DEFAULT_SEEDS}, quick: 1",
    )
    options = parser.parse_args(arguments[1:])
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out {options.out} is a file; give a folder")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {options.out}: {error.strerror or error}") from None
    study.run(options.out, options.quick, options.seeds or (1 if options.quick else DEFAULT_SEEDS))
    return 0


def _seeds(text: str) -> int:
    if not re.fullmatch(r"\d+", text) or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted: 1 to 1000")
    return int(text)
