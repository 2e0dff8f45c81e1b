"""What a loss budget costs and saves: one step, bounded beside reliable, over fabrics, sizes and budgets.

Whoever allows a step to lose must never wait longer for it. Droppable packets have the lower thresholds and are the
first to be dropped; a transport that took that for nothing lost would repeat them, or yield to it, and a budget would
cost time. So here the same engine runs the same step under budgets from none to 30 %: 64 ranks, eight to a leaf, up to
four times the traffic that the spines carry, behind switches that drop or trim, from tensors that the first windows
hold to such as queues settle under. Blocks are critical to 30 %, as in training.

Where a budget costs time it allows one to three blocks of a message. Switches drop droppable packets that their buffers
would have held as critical ones. What the budget does not cover of them is repeated, and for what it covers the
receiver waits until nothing late can come. This is no chance: of the 21 steps in question 18 take over 1 % longer with
sixteen other seeds too. With budgets below four blocks that allow nothing it is one step, +2.0 %, but all steps
together gain 3.0 % in place of 4.3 %. So small budgets count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from dlcp.study.network import _sweep
from dlcp.study.network._sweep import ALL, MEAN, ROUNDED
from dlcp.study.network.honest import (
    CRITICAL_RATIO,
    DELAY_S,
    HOSTS_PER_LEAF,
    LEAVES,
    LIMIT_S,
    completion_s,
    workload,
)
from dlcp.units import plural
from dlcp_sim.fabrics import LeafSpine
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dlcp

NAME = "budget"
HEADING = "What a loss budget costs and saves in a step, by what switches do"
SUMMARY = "what a loss budget costs and saves, over fabrics, sizes and budgets"

LOADS = ("rails", "servers")
OVERSUBSCRIPTIONS = (1, 2, 4)
RATES_BPS = (100e9, 400e9)
SWITCHES = ("dropping", "trimming")
SIZES = (250_000, 1_000_000, 4_000_000)
"""Bytes of the tensor at a rank."""
BUDGETS = (0.01, 0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Condition:
    """A load on a fabric; see `honest.workload`."""

    load: str
    oversubscription: int
    rate_bps: float
    switch: str
    nbytes: int

    def __str__(self) -> str:
        place = f"{self.load}, {self.oversubscription}:1, {self.rate_bps / 1e9:g} Gb/s, {self.switch}"
        return f"{place}, {self.nbytes / 1e6:g} MB"


@dataclass(frozen=True)
class Case:
    """A step under a budget; 0: reliable."""

    condition: Condition
    budget: float

    def scenario(self, seed: int) -> Scenario:
        where = self.condition
        spines = HOSTS_PER_LEAF // where.oversubscription
        fabric = LeafSpine(LEAVES, spines, HOSTS_PER_LEAF, rate_bps=where.rate_bps, delay_s=DELAY_S)
        trims = where.switch == "trimming"
        transport = Dlcp(trim=trims, trim_critical=trims)
        return Scenario(
            fabric=fabric,
            transport=transport,
            workload=workload(where.load, where.nbytes, self.budget, CRITICAL_RATIO),
            switch=transport.policy(fabric),
            seed=seed,
            until_s=LIMIT_S,
            name=f"{where}, {self.budget:g}",
        )


@dataclass(frozen=True)
class Found:
    """What a case did: the step's time of each seed, shares of all seeds together."""

    step_s: Sequence[float] = field(metadata=ALL)
    """Until the last rank has all; infinite: it was not over."""
    abandoned_ratio: float = field(metadata=MEAN)
    """Of the bytes that may be abandoned."""
    lost: int = field(metadata=ROUNDED)
    """Packets that switches dropped or trimmed."""

    @property
    def mean_s(self) -> float:
        return float(np.mean(self.step_s))


def simulate(job: tuple[Case, None, int]) -> Found:
    case, _, seed = job
    result = case.scenario(seed).run()
    flows, ports = result.flows, result.ports
    return Found(
        step_s=(completion_s(flows),),
        abandoned_ratio=float(flows.abandoned_bytes.sum() / (flows.bytes.sum() / 2)),
        lost=int(ports.packets_dropped.sum() + ports.packets_trimmed.sum()),
    )


def conditions(quick: bool) -> list[Condition]:
    sizes = SIZES[:2] if quick else SIZES
    rates = RATES_BPS[1:] if quick else RATES_BPS
    return [
        Condition(load, oversubscription, rate, switch, nbytes)
        for load in LOADS
        for switch in SWITCHES
        for rate in rates
        for oversubscription in OVERSUBSCRIPTIONS
        for nbytes in sizes
    ]


def beside(found: Mapping[Case, Found], condition: Condition, budget: float) -> float:
    """The step under the budget in the reliable step's time, of all seeds together."""
    return found[Case(condition, budget)].mean_s / found[Case(condition, 0)].mean_s


def steps(found: Mapping[Case, Found], looked_at: Sequence[Condition]) -> Table:
    def row(one: Condition) -> dict[str, _sweep.Cell]:
        reliable = found[Case(one, 0)]
        cells: dict[str, _sweep.Cell] = {"": str(one), "reliable": _sweep.time(reliable.mean_s)}
        cells["lost"] = _sweep.count(reliable.lost)
        for budget in BUDGETS:
            cells[f"{100 * budget:g} %"] = _sweep.change(beside(found, one, budget) - 1)
        most = found[Case(one, BUDGETS[-1])]
        cells[f"abandoned of {100 * BUDGETS[-1]:g} %"] = _sweep.percent(most.abandoned_ratio, 1)
        return cells

    return _sweep.table("A step under budgets, beside the reliable one", map(row, looked_at))


def words(found: Mapping[Case, Found], looked_at: Sequence[Condition]) -> list[str]:
    """What follows, from the figures alone."""
    notes = []
    for switch in SWITCHES:
        ratios = {
            (one, budget): beside(found, one, budget)
            for one in looked_at
            if one.switch == switch
            for budget in BUDGETS
        }
        (worst, budget), ratio = max(ratios.items(), key=lambda item: item[1])
        costly = sum(one > 1.01 for one in ratios.values())
        notes.append(
            f"Switches that are {switch}: of {len(ratios)} steps under a budget {costly} take over 1 % longer than "
            f"reliable ones; the worst is {worst}, {100 * budget:g} %: {_sweep.signed(ratio - 1)[0]}. The median is "
            f"{_sweep.signed(float(np.median(list(ratios.values()))) - 1)[0]}, the best "
            f"{_sweep.signed(min(ratios.values()) - 1)[0]}."
        )
    return notes


def draw(found: Mapping[Case, Found], looked_at: Sequence[Condition], path: Path) -> None:
    """A table: the step under each budget in the reliable one's time, by condition, and by what switches do."""
    from dlcp_sim.report import pictures

    rows = [one for one in looked_at if one.switch == SWITCHES[0]]
    ratios, heads = [], []
    for switch in SWITCHES:
        places = [replace(one, switch=switch) for one in rows]
        ratios += [[beside(found, one, budget) for one in places] for budget in BUDGETS]
        ratios.append([np.nan] * len(rows))
        middle = BUDGETS[len(BUDGETS) // 2]
        heads += [
            f"{switch}\n{100 * each:g} %" if each == middle else f"{100 * each:g} %" for each in BUDGETS
        ]
        heads.append("")
    names = [str(one).replace(f", {one.switch}", "") for one in rows]
    with pictures.new_figure(1, height=1.6 + 0.19 * len(rows), heading=HEADING) as (figure, axes):
        pictures.heat(axes[0], np.array(ratios[:-1]).T, names, heads[:-1])
        axes[0].set_xlabel("time of a step, reliable = 1")
    pictures.save(figure, path)


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    looked_at = conditions(quick)
    cases = [Case(condition, budget) for condition in looked_at for budget in (0, *BUDGETS)]
    found = _sweep.measure(simulate, cases, None, range(1, seeds + 1), processes=1 if quick else None)
    table, notes = steps(found, looked_at), words(found, looked_at)
    setting = (
        f"{plural(seeds, 'seed')}; {LEAVES} leaves of {HOSTS_PER_LEAF} ranks, payloads of 4096 bytes; "
        "sizes are of the tensor at a rank; lost: packets that switches dropped or trimmed in the reliable step."
    )
    return _sweep.leave(
        output / NAME,
        [table],
        [*notes, setting],
        markdown=[*_sweep.heading(SUMMARY, __doc__), _sweep.bullets([*notes, setting]), table],
        csv=table.csv(),
        draw=partial(draw, found, looked_at),
    )
