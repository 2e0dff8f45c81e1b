"""How long runs of packets over one path should be, on hosts that pay for each run as Linux does.

A kernel takes a run of packets in one piece, so hosts want long runs; a switch that hashes sees a burst on one link, so
fabrics want short ones; a switch that chooses a path for each packet does not mind. dlcp's default follows what it
measures (`native/engine/run_length.hpp`); here it is beside fixed lengths. 64 ranks in eight leaves of eight make a
direct all-reduce by rails, or push to a server per leaf and pull the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from dlcp.study.network import _sweep
from dlcp.study.network._sweep import ALL
from dlcp.study.network.honest import DELAY_S, HOSTS_PER_LEAF, LEAVES, LIMIT_S, completion_s, workload
from dlcp.units import plural
from dlcp_sim.fabrics import LeafSpine
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dlcp

NAME = "runs"
SUMMARY = "how long runs of packets over one path should be: dlcp's default beside fixed lengths"

RATES_BPS = {1e9: 1_000_000, 10e9: 1_000_000, 400e9: 4_000_000}
"""By the hosts' rate, bytes of the tensor at a rank."""
LOADS = (("rails", 4), ("rails", 1), ("servers", 4))
"""And how much more traffic than the spines carry."""
CHOICES = {"hash": "path_id", "spray": "adaptive"}
LENGTHS = (None, 1, 4, 16)
"""In packets; None: the default."""


@dataclass(frozen=True)
class Condition:
    rate_bps: float
    load: tuple[str, int]
    switches: str
    """What they do with packets: of CHOICES."""

    def __str__(self) -> str:
        return f"{self.rate_bps / 1e9:g} Gb/s, {self.load[0]}, {self.load[1]}:1, switches {self.switches}"


@dataclass(frozen=True)
class Case:
    condition: Condition
    run_packets: int | None

    def scenario(self, seed: int) -> Scenario:
        where, fixed = self.condition, self.run_packets
        load, oversubscription = where.load
        spines = HOSTS_PER_LEAF // oversubscription
        fabric = LeafSpine(LEAVES, spines, HOSTS_PER_LEAF, rate_bps=where.rate_bps, delay_s=DELAY_S)
        return Scenario(
            fabric=fabric,
            transport=Dlcp() if fixed is None else Dlcp(run_packets=fixed, min_run_packets=fixed),
            workload=workload(load, RATES_BPS[where.rate_bps], 0.0),
            switch=replace(Dlcp().policy(fabric), path_choice=CHOICES[where.switches]),
            hosts="sockets",
            seed=seed,
            until_s=10 * LIMIT_S,
            name=str(self.run_packets),
        )


@dataclass(frozen=True)
class Found:
    step_s: Sequence[float] = field(metadata=ALL)
    """Of each seed."""

    @property
    def mean_s(self) -> float:
        return float(np.mean(self.step_s))


def simulate(job: tuple[Case, None, int]) -> Found:
    case, _, seed = job
    return Found((completion_s(case.scenario(seed).run().flows),))


def conditions(quick: bool) -> list[Condition]:
    rates = [10e9] if quick else RATES_BPS
    return [Condition(rate, load, choice) for rate in rates for load in LOADS for choice in CHOICES]


def beside(found: Mapping[Case, Found], condition: Condition, length: int | None) -> float:
    """The time of a length in that of the best fixed one."""
    best = min(found[Case(condition, fixed)].mean_s for fixed in LENGTHS if fixed is not None)
    return found[Case(condition, length)].mean_s / best


def times(found: Mapping[Case, Found], looked_at: Sequence[Condition]) -> Table:
    def row(one: Condition) -> dict[str, _sweep.Cell]:
        cells: dict[str, _sweep.Cell] = {"": str(one)}
        for length in LENGTHS:
            cells["default" if length is None else str(length)] = _sweep.time(found[Case(one, length)].mean_s)
        ratio = beside(found, one, None)
        return cells | {"default / best fixed": (f"{ratio:.3f}", ratio)}

    return _sweep.table("A step, by packets in a run", map(row, looked_at))


def draw(found: Mapping[Case, Found], looked_at: Sequence[Condition], path: Path) -> None:
    """Lines: times by length in those of the best, a panel for each rate."""
    from dlcp_sim.report import pictures

    rates = list(dict.fromkeys(one.rate_bps for one in looked_at))
    lengths = [*(length for length in LENGTHS if length is not None), None]
    with pictures.new_figure(len(rates), heading="How long runs of packets over one path should be") as (
        figure,
        axes,
    ):
        for axis, rate in zip(axes, rates, strict=True):
            for place, one in enumerate(one for one in looked_at if one.rate_bps == rate):
                axis.plot(
                    range(len(lengths)),
                    [beside(found, one, length) for length in lengths],
                    marker="o",
                    color=pictures.COLOURS[place % len(pictures.COLOURS)],
                    label=str(one).partition(", ")[2] if rate == rates[0] else None,
                )
            axis.set_title(f"{rate / 1e9:g} Gb/s")
            axis.set_xticks(range(len(lengths)), ["default" if one is None else str(one) for one in lengths])
            axis.set_ylim(bottom=0)
            axis.set_xlabel("packets in a run")
        figure.supylabel("time of a step, best fixed length = 1", color=pictures.INK, fontsize="medium")
        figure.legend(loc="outside lower center", ncols=2)
    pictures.save(figure, path)


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    looked_at = conditions(quick)
    cases = [Case(condition, length) for condition in looked_at for length in LENGTHS]
    found = _sweep.measure(simulate, cases, None, range(1, seeds + 1), processes=1 if quick else None)
    table, notes = times(found, looked_at), []
    for choice in CHOICES:
        ratios = [beside(found, one, None) for one in looked_at if one.switches == choice]
        notes.append(
            f"Switches that {choice}: the default takes {min(ratios):.3f} to {max(ratios):.3f} of the best fixed "
            f"length's time, {np.mean(ratios):.3f} in the mean."
        )
    notes.append(f"{plural(seeds, 'seed')}; times are means of all seeds.")
    return _sweep.leave(
        output / NAME,
        [table],
        notes,
        markdown=[*_sweep.heading(SUMMARY, __doc__), _sweep.bullets(notes), table],
        csv=table.csv(),
        draw=partial(draw, found, looked_at),
    )
