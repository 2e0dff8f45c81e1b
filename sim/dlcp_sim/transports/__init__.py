"""The transports that scenarios choose from, by name: `TRANSPORTS["ndp"]`, and each class: `transports.Ndp`.

Every other module of this package holds one family of them, and is found by being here. Their fields come from native
tables, so the types that editors and mypy see are in `__init__.pyi`, which `python -m dlcp_sim.transports` writes.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from dlcp.errors import ArgumentError
from dlcp_sim.transports.base import Transport, native, setting


def _found() -> dict[str, type[Transport]]:
    kinds: dict[str, type[Transport]] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name in ("base", "__main__"):
            continue
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Transport) and value.name:
                kinds[value.name] = value
    return kinds


TRANSPORTS: dict[str, type[Transport]] = _found()
CLASSES: dict[str, type[Transport]] = {kind.__name__: kind for kind in TRANSPORTS.values()}
globals().update(CLASSES)


def transport_named(name: str, settings: Mapping[str, Any] | None = None) -> Transport:
    """A transport by its name and its settings; ArgumentError names what is unknown and what is near."""
    if name not in TRANSPORTS:
        near = difflib.get_close_matches(name, TRANSPORTS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ArgumentError(f"transport {name!r} is unknown; {hint}accepted: {', '.join(TRANSPORTS)}")
    kind = TRANSPORTS[name]
    known = kind.setting_names()
    for key in settings or {}:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ArgumentError(f"{name} has no setting {key!r}; {hint}accepted: {', '.join(known)}")
    return kind(**(settings or {}))


__all__ = ["CLASSES", "TRANSPORTS", "Transport", "native", "setting", "transport_named", *CLASSES]
