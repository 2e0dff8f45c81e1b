"""The transports that scenarios choose from, by name: `TRANSPORTS["ndp"]`.

One module per family, listed here; a module that does not import fails here, at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from dlcp.errors import ArgumentError
from dlcp_sim.transports.base import Transport, setting
from dlcp_sim.transports.dcqcn import Dcqcn
from dlcp_sim.transports.dlcp import Dlcp
from dlcp_sim.transports.line_rate import LineRate
from dlcp_sim.transports.ndp import Ndp
from dlcp_sim.transports.pfabric import PFabric
from dlcp_sim.transports.tcp import Dctcp, Tcp
from dlcp_sim.transports.uet import Uet

TRANSPORTS: dict[str, type[Transport]] = {
    kind.name: kind for kind in (Dlcp, Tcp, Dctcp, PFabric, Ndp, Dcqcn, Uet, LineRate)
}


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


__all__ = [
    "TRANSPORTS",
    "Dcqcn",
    "Dctcp",
    "Dlcp",
    "LineRate",
    "Ndp",
    "PFabric",
    "Tcp",
    "Transport",
    "Uet",
    "setting",
    "transport_named",
]
