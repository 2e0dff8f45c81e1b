"""The torch.distributed backend: init_process_group("dlcp").

    import torch.distributed as dist

    dist.init_process_group("dlcp")

An installed dlcp registers itself when torch is imported (entry point of the group torch.backends). Where that is
switched off (TORCH_DEVICE_BACKEND_AUTOLOAD=0), importing this package or calling `register()` does the same, any
number of times. `Options` are what `pg_options` takes; every setting of it has a DLCP_ variable too.

The process group itself, and with it the engine, loads when the first group is made: importing this package costs
nothing in torch programs that do not use dlcp. The public names are those in `__init__.pyi`, each loaded at first use.
"""

from __future__ import annotations

import functools
from typing import Any

from dlcp.torch.registration import register


@functools.cache
def _homes() -> dict[str, str]:
    """The module of each public name."""
    import ast
    from pathlib import Path

    listing = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.name: node.module or ""
        for node in listing.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__all__":
        return sorted(_homes())
    if name.startswith("__") or name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_homes()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})


register()
