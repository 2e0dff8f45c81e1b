"""The points of a sweep, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    varied: Mapping[str, Any]
    """Setting → value, as `--set` says it: "transport.window_packets" → 30."""
    tables: Mapping[str, Any]
    """The whole scenario."""
    key: str
    modules: tuple[str, ...] = ()
    """What has to be imported to know its workload, besides dlcp_sim."""

    def __str__(self) -> str:
        """Its settings in a line."""
        return ", ".join(f"{name}={value}" for name, value in self.varied.items()) or "the scenario"


@dataclass(frozen=True)
class SweepOutcome:
    """What became of a point: its result as a block, or what went wrong."""

    point: Point
    result: bytes | None
    error: str
    seconds: float
