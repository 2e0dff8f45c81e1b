"""Two sites far apart: dlcp beside UET over the same switches, from 1 to 150 ms one way.

A round trip between sites is thousands of those within one. What counts is how many of them a transfer takes: a window
that starts too small, a loss that is noticed late and a queue that overflows in every one of them each cost some more.
Here a site has four hosts of 100 Gb/s, and one cable leads to the other site, at that rate or a quarter of it. Two
loads: a permutation (some of it within a site), and every host to its counterpart. Both transports meet UET's policy of
trimming and marking, and send 4096 bytes of payload with 130 of headers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlcp.study.network import _sweep
from dlcp.study.network._sweep import ALL, ROUNDED
from dlcp.units import plural
from dlcp_sim.fabrics import TwoSites
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dlcp, Uet
from dlcp_sim.workloads.flows import Flows, Permutation

if TYPE_CHECKING:
    from dlcp_sim.transports.base import Transport
    from dlcp_sim.workloads.flows import FlowWorkload

NAME = "far"
HEADING = "Transfers of dlcp between two sites, beside UET's"
SUMMARY = "two sites far apart: dlcp beside UET over the same switches"

DELAYS_S = (1e-3, 10e-3, 50e-3, 150e-3)
"""One way."""
CABLES_BPS = (100e9, 25e9)
HOSTS = 4
"""Of a site."""
NBYTES = 20_000_000
"""Of a transfer."""
PERMUTATION, ACROSS = "permutation", "across"
UET, DLCP = "UET", "dlcp"
HEADER_BYTES = 130
BAR = 1.1
"""dlcp's time may be so many times UET's."""
LIMIT_S = 60.0


@dataclass(frozen=True)
class Condition:
    """A load, and what is between the sites."""

    load: str
    cable_bps: float
    delay_s: float

    @property
    def fabric(self) -> TwoSites:
        return TwoSites(2, 2, HOSTS // 2, long_rate_bps=self.cable_bps, long_delay_s=self.delay_s)

    @property
    def workload(self) -> FlowWorkload:
        if self.load == PERMUTATION:
            return Permutation(bytes=NBYTES)
        return Flows(rows=tuple((i, (i + HOSTS) % (2 * HOSTS), NBYTES) for i in range(2 * HOSTS)))

    def __str__(self) -> str:
        return f"{self.load}, {self.cable_bps / 1e9:g} Gb/s, {1e3 * self.delay_s:g} ms"


@dataclass(frozen=True)
class Case:
    """A transport under a condition."""

    condition: Condition
    transport: str

    def scenario(self, seed: int) -> Scenario:
        uet = Uet(header_bytes=HEADER_BYTES)
        transport: Transport = uet if self.transport == UET else Dlcp(trim=True, trim_critical=True)
        fabric = self.condition.fabric
        return Scenario(
            fabric=fabric,
            transport=transport,
            workload=self.condition.workload,
            switch=uet.policy(fabric),
            seed=seed,
            until_s=LIMIT_S,
            name=self.transport,
        )


@dataclass(frozen=True)
class Found:
    """What a case did: times of each seed, packets in their mean."""

    mean_s: Sequence[float] = field(metadata=ALL)
    """Of transfers; infinite: not all were over."""
    last_s: Sequence[float] = field(metadata=ALL)
    repeated: int = field(metadata=ROUNDED)
    trimmed: int = field(metadata=ROUNDED)


def simulate(job: tuple[Case, None, int]) -> Found:
    case, _, seed = job
    result = case.scenario(seed).run()
    flows = result.flows
    times_s = flows.completion_s if flows.finished.all() else np.array([np.inf])
    return Found(
        mean_s=(float(np.mean(times_s)),),
        last_s=(float(np.max(times_s)),),
        repeated=int(flows.retransmitted_packets.sum()),
        trimmed=int(result.ports.packets_trimmed.sum()),
    )


def conditions(quick: bool) -> list[Condition]:
    loads = (PERMUTATION,) if quick else (PERMUTATION, ACROSS)
    return [Condition(load, cable, delay) for load in loads for cable in CABLES_BPS for delay in DELAYS_S]


def beside(found: Mapping[Case, Found], condition: Condition, which: str) -> float:
    """The time of dlcp in that of UET, of all seeds together."""
    return float(
        np.mean(getattr(found[Case(condition, DLCP)], which))
        / np.mean(getattr(found[Case(condition, UET)], which))
    )


def times(found: Mapping[Case, Found], looked_at: Sequence[Condition]) -> Table:
    def row(one: Condition) -> dict[str, _sweep.Cell]:
        cells: dict[str, _sweep.Cell] = {"": str(one)}
        for transport in (UET, DLCP):
            cells[f"{transport}, mean"] = _sweep.time(float(np.mean(found[Case(one, transport)].mean_s)))
            cells[f"{transport}, last"] = _sweep.time(float(np.mean(found[Case(one, transport)].last_s)))
        for heading, which in (("mean", "mean_s"), ("last", "last_s")):
            ratio = beside(found, one, which)
            cells[f"dlcp / UET, {heading}"] = (f"{ratio:.2f}", ratio)
        for transport in (UET, DLCP):
            cells[f"{transport}, sent again"] = _sweep.count(found[Case(one, transport)].repeated)
            cells[f"{transport}, trimmed"] = _sweep.count(found[Case(one, transport)].trimmed)
        return cells

    return _sweep.table("Transfers of 20 MB", map(row, looked_at))


def words(found: Mapping[Case, Found], looked_at: Sequence[Condition]) -> list[str]:
    """What follows, from the figures alone."""
    notes = []
    for delay in DELAYS_S:
        ratios = [beside(found, one, "last_s") for one in looked_at if one.delay_s == delay]
        notes.append(
            f"{1e3 * delay:g} ms one way: until the last transfer is over dlcp takes {min(ratios):.2f} to "
            f"{max(ratios):.2f} of UET's time (bar: {BAR:g})."
        )
    return notes


def draw(found: Mapping[Case, Found], looked_at: Sequence[Condition], path: Path) -> None:
    """Lines: dlcp's time until the last transfer is over in UET's, by distance."""
    from dlcp_sim.report import pictures

    with pictures.new_figure(1, height=3.7, heading=HEADING) as (
        figure,
        axes,
    ):
        axis = axes[0]
        kinds = list(dict.fromkeys((one.load, one.cable_bps) for one in looked_at))
        for place, (load, cable) in enumerate(kinds):
            chosen = [one for one in looked_at if (one.load, one.cable_bps) == (load, cable)]
            axis.plot(
                [1e3 * one.delay_s for one in chosen],
                [beside(found, one, "last_s") for one in chosen],
                marker="o",
                color=pictures.COLOURS[place % len(pictures.COLOURS)],
                label=f"{load}, cable of {cable / 1e9:g} Gb/s",
            )
        axis.axhline(1, color=pictures.INK, linewidth=0.8)
        axis.set_xscale("log")
        axis.set_xticks([1e3 * delay for delay in DELAYS_S], [f"{1e3 * delay:g}" for delay in DELAYS_S])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("ms between the sites, one way")
        axis.set_ylabel("until the last is over, UET = 1")
        figure.legend(loc="outside lower center", ncols=2)
    pictures.save(figure, path)


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    looked_at = conditions(quick)
    cases = [Case(condition, transport) for condition in looked_at for transport in (UET, DLCP)]
    found = _sweep.measure(simulate, cases, None, range(1, seeds + 1), processes=1 if quick else None)
    table, notes = times(found, looked_at), words(found, looked_at)
    setting = f"{plural(seeds, 'seed')}; times are means of all seeds."
    return _sweep.leave(
        output / NAME,
        [table],
        [*notes, setting],
        markdown=[*_sweep.heading(SUMMARY, __doc__), _sweep.bullets([*notes, setting]), table],
        csv=table.csv(),
        draw=partial(draw, found, looked_at),
    )
