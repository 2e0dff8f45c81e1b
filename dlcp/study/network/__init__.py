"""How transports do on simulated networks: `dlcp study NAME` prints a table and leaves NAME.md, NAME.csv and NAME.png.

A study is a module of this package with `NAME`, `SUMMARY` and `run(output, quick, seeds)`; being there is being listed.
What several studies share is in modules whose names begin with `_`.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import pkgutil
from contextlib import nullcontext, redirect_stdout
from typing import Any

DEFAULT_SEEDS = 3


def studies() -> dict[str, Any]:
    names = sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {module.NAME: module for module in modules}


def run(study: Any, options: argparse.Namespace) -> None:
    """`dlcp study NAME …` for a module. With --json what it returns takes the place of what it prints."""
    with redirect_stdout(io.StringIO()) if options.json else nullcontext():
        seeds = options.seeds or (1 if options.quick else DEFAULT_SEEDS)
        told = study.run(options.output, options.quick, seeds)
    if options.json:
        print(json.dumps(told, ensure_ascii=False, indent=1))
