"""The transports that scenarios choose from, by name: `TRANSPORTS["ndp"]`, and each class: `transports.Ndp`.

Their fields come from native tables, so the types that editors and mypy see are in `__init__.pyi`, which
`python -m dlcp_sim.transports` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlcp.checks import did_you_mean
from dlcp.errors import ArgumentError
from dlcp_sim.transports import baselines, dlcp, tcp  # noqa: F401  each registers its transports
from dlcp_sim.transports.base import TRANSPORTS, Transport, native, setting

CLASSES: dict[str, type[Transport]] = {kind.__name__: kind for kind in TRANSPORTS.values()}
globals().update(CLASSES)


def transport_named(name: str, settings: Mapping[str, Any] | None = None) -> Transport:
    """A transport by its name and its settings; ArgumentError names what is unknown and what is near."""
    if name not in TRANSPORTS:
        hint = did_you_mean(name, TRANSPORTS)
        raise ArgumentError(f"transport {name!r} is unknown; {hint}accepted: {', '.join(TRANSPORTS)}")
    kind = TRANSPORTS[name]
    known = kind.setting_names()
    for key in settings or {}:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ArgumentError(f"{name} has no setting {key!r}; {hint}accepted: {', '.join(known)}")
    return kind(**(settings or {}))


__all__ = ["CLASSES", "TRANSPORTS", "Transport", "native", "setting", "transport_named", *CLASSES]
