"""What was measured of one size, and how it is shown: a line of a table at 80 columns, or an object of JSON.

Bandwidths are nccl-tests' (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): the algorithm bandwidth is bytes of the
buffer per time; the bus bandwidth is what each link had to carry for it at least, so that it can be compared with the
link's rate whatever the collective and the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcp.units import duration, plural, size

BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
}
"""Bus by algorithm bandwidth, by collective. Its buffer is the largest that a rank has: of all_gather the output."""


@dataclass(frozen=True)
class TimedCalls:
    """Calls of one size over one backend. A call takes as long as its slowest rank."""

    collective: str
    ranks: int
    backend: str
    nbytes: int
    times_s: Sequence[float]
    wrong: int
    """Values of all results on all ranks that are not what they should be."""
    algorithm: str
    """What dlcp took; empty for others."""

    @property
    def p50_s(self) -> float:
        return self._time_s(0.5)

    @property
    def p99_s(self) -> float:
        """Of fewer than 100 calls the longest."""
        return self._time_s(0.99)

    @property
    def algorithm_bandwidth_bps(self) -> float:
        """By the median time; bits."""
        return 8 * self.nbytes / self.p50_s

    @property
    def bus_bandwidth_bps(self) -> float:
        return self.algorithm_bandwidth_bps * BUS_FACTORS[self.collective](self.ranks)

    def to_json(self) -> dict[str, Any]:
        """The fields, without each call's time, and what follows from them."""
        fields = {name: value for name, value in vars(self).items() if name != "times_s"}
        names = ("p50_s", "p99_s", "algorithm_bandwidth_bps", "bus_bandwidth_bps")
        return {**fields, "calls": len(self.times_s), **{name: getattr(self, name) for name in names}}

    def _time_s(self, share: float) -> float:
        """The least time that this share of all is not above."""
        return sorted(self.times_s)[math.ceil(share * len(self.times_s)) - 1]


# Widths are fixed: a line is printed when its size is done.
_HEAD = ("size", "over", "p50", "p99", "GB/s", "bus", "wrong", "ratio", "algorithm")
_WIDTHS = (6, -4, 8, 8, 6, 6, 5, 5, -16)


def heading(collective: str, ranks: int, hosts: int, backends: Sequence[str]) -> list[str]:
    """The lines above the table."""
    where = f"{plural(ranks, 'rank')} on {plural(hosts, 'host')}"
    lines = [f"{collective} of float32, {where}, over {' and '.join(backends)}"]
    if len(backends) > 1:
        lines[0] += " in turns"
        lines.append("ratio: how much longer the median call takes over the other than over dlcp")
    return [*lines, "", _line(_HEAD)]


def row(sample: TimedCalls, beside: TimedCalls | None) -> str:
    """The line of a sample. `beside`: the same over the other backend, for the ratio."""
    return _line(
        (
            size(sample.nbytes),
            sample.backend,
            duration(sample.p50_s),
            duration(sample.p99_s),
            f"{sample.algorithm_bandwidth_bps / 8e9:.3f}",
            f"{sample.bus_bandwidth_bps / 8e9:.3f}",
            str(sample.wrong),
            "" if beside is None else f"{beside.p50_s / sample.p50_s:.2f}",
            sample.algorithm,
        )
    )


def _line(cells: Sequence[str]) -> str:
    placed = (f"{cell:<{-w}}" if w < 0 else f"{cell:>{w}}" for cell, w in zip(cells, _WIDTHS, strict=True))
    return "  ".join(placed).rstrip()
