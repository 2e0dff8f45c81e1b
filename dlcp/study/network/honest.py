"""The honest baseline: what bounded loss gains beside trimming, selective repeat and window control.

A gain over TCP with long timeouts says little about a fabric that trims and a transport that repairs within a round
trip. So here the baseline is UET (and DCQCN on a lossless fabric, which such work is mostly compared with), and three
things are told apart: what bounded loss does by itself (the same engine, reliable and bounded), what relaxing
congestion control does by itself (the same engine, window and line rate), and both together. A step is 64 ranks at
400 Gb/s, eight to a leaf, with one or four times the traffic that the spines carry; after FORGIVE's setting
(unpublished, ns-3), which saved 16.1 to 16.7 % at a budget of 10 % by relaxing congestion control, over DCQCN.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlcp.study.network import _sweep
from dlcp.study.network._sweep import ALL, MEAN, ROUNDED
from dlcp.switch.policy import Policy
from dlcp.units import duration, plural
from dlcp_sim import switches
from dlcp_sim.fabrics import Fabric, LeafSpine
from dlcp_sim.faults import RandomLoss
from dlcp_sim.report.tables import Table
from dlcp_sim.result import Flows
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dcqcn, Dlcp, Uet
from dlcp_sim.workloads.collectives import CollectiveRun
from dlcp_sim.workloads.flows import together

if TYPE_CHECKING:
    from dlcp_sim.transports.base import Transport
    from dlcp_sim.workloads.load import Workload

NAME = "honest"
HEADING = "A training step beside UET's, by traffic, oversubscription and switches"
SUMMARY = (
    "bounded loss beside trimming, selective repeat and window control, with and without relaxed control"
)

LEAVES, HOSTS_PER_LEAF, RATE_BPS, DELAY_S = 8, 8, 400e9, 1e-6
LOSS_RATIO = 0.1
CRITICAL_RATIO, CRITICAL_RATIOS = 0.3, (0.3, 0.6, 0.9)
"""Of the blocks: what docs/studies recommends for training, and what is tried beside it."""
GRAY_LINK, GRAY_RATIO = "edge 0 -> aggregation 0", 0.01
DEPTHS = (1.0, 0.25, 0.0625)
"""Of droppable packets' thresholds, of the default, which is half to three quarters of a buffer."""
FULL_BYTES, QUICK_BYTES = 4_000_000, 1_000_000
"""Of the tensor at a rank."""
LARGE = 4
"""Times that; 2 MB between two ranks, in place of half a megabyte."""
UET_HEADER_BYTES = 64 + 66
"""The reference model's 64, and what dlcp is charged below its own: Ethernet, IPv4 and UDP."""
LIMIT_S = 0.5
"""Of simulated time: what is not over by then is not over."""

UET, DCQCN, SPRAYED = "UET", "DCQCN", "DCQCN, sprayed"
RELIABLE, BOUNDED = "dlcp reliable", "dlcp bounded"
RELAXED = ", line rate"
CONFIGURATIONS = (UET, RELIABLE, BOUNDED, RELIABLE + RELAXED, BOUNDED + RELAXED)
"""On fabrics that trim or drop; DCQCN has a fabric of its own."""


@dataclass(frozen=True)
class Condition:
    """A load on a fabric."""

    load: str
    """rails: eight groups of one rank per leaf, each a direct all-reduce (seven peers). servers: 56 workers push to one
    server per leaf and pull the sum."""
    oversubscription: int
    switch: str
    """trimming, dropping or lossless"""
    gray: bool = False
    scale: int = 1
    """How many times larger the tensor is: the smaller one fits into the first windows."""

    @property
    def spines(self) -> int:
        return HOSTS_PER_LEAF // self.oversubscription

    @property
    def fabric(self) -> Fabric:
        """Spines of the hosts' rate, so that thresholds mean the same at every port."""
        return LeafSpine(LEAVES, self.spines, HOSTS_PER_LEAF, rate_bps=RATE_BPS, delay_s=DELAY_S)

    def __str__(self) -> str:
        link = ", gray link" if self.gray else ""
        load = self.load if self.scale == 1 else f"{self.load} x {self.scale}"
        return f"{load}, {self.oversubscription}:1, {self.switch}{link}"

    def bound_s(self, size: int, abandoned: float = 0) -> float:
        """No transport can be faster: payload on the busiest link, there and back; `abandoned` of one way never sent.

        Rails: each rank sends 7/8 of the tensor each way, all of it by way of the spines. Servers: each takes an
        eighth of the tensor from 56 workers, 49 of them on other leaves.
        """
        size *= self.scale
        if self.load == "rails":
            host, leaf = size * 7 / 8, HOSTS_PER_LEAF * size * 7 / 8
        else:
            host, leaf = 56 * size / 8, 49 * size / 8
        one_way_s = 8 * max(host / RATE_BPS, leaf / (self.spines * RATE_BPS))
        return one_way_s * (2 - abandoned)


@dataclass(frozen=True)
class Case:
    """A transport under a condition."""

    condition: Condition
    configuration: str
    critical_ratio: float = CRITICAL_RATIO
    """Of bounded messages."""
    depth: float = 1.0
    """Droppable packets are dropped at this share of the depth that is the default."""

    def scenario(self, size: int, seed: int) -> Scenario:
        transport, policy = self._transport()
        loss_ratio = LOSS_RATIO if self.configuration.startswith(BOUNDED) else 0.0
        where = self.condition
        return Scenario(
            fabric=where.fabric,
            transport=transport,
            workload=workload(where.load, size * where.scale, loss_ratio, self.critical_ratio),
            switch=policy,
            faults=[RandomLoss(GRAY_LINK, ratio=GRAY_RATIO)] if where.gray else [],
            seed=seed,
            until_s=LIMIT_S,
            name=self.configuration,
        )

    def _transport(self) -> tuple[Transport, Policy]:
        fabric, trims = self.condition.fabric, self.condition.switch == "trimming"
        transport: Transport
        if self.configuration in (DCQCN, SPRAYED):
            transport = Dcqcn(spray=self.configuration == SPRAYED)
            return transport, transport.policy(fabric)
        if self.configuration == UET:
            transport = Uet(trimming=trims, header_bytes=UET_HEADER_BYTES)
            # Over switches that choose paths as dlcp's do: for each packet.
            return transport, replace(transport.policy(fabric), path_choice=Dlcp().policy(fabric).path_choice)
        congestion = "line_rate" if self.configuration.endswith(RELAXED) else "window"
        transport = Dlcp(congestion=congestion, trim=trims, trim_critical=trims)
        policy = transport.policy(fabric)
        if self.depth != 1:
            droppable = policy.traffic_class(0).droppable
            least, most = droppable[0].drop_above_bytes, droppable[-1].drop_above_bytes
            assert least is not None
            assert most is not None
            policy = switches.dlcp(
                fabric,
                packet_bytes=transport.packet_bytes,
                drop_from_bytes=round(self.depth * least),
                drop_full_bytes=round(self.depth * most),
                trim=trims,
            )
        return transport, policy


def workload(load: str, size: int, loss_ratio: float, critical_ratio: float = CRITICAL_RATIO) -> Workload:
    """The step. The way to where sums are made may lose; the way back is reliable."""
    if not loss_ratio:
        critical_ratio = 1.0
    if load == "servers":
        servers = tuple(range(HOSTS_PER_LEAF - 1, LEAVES * HOSTS_PER_LEAF, HOSTS_PER_LEAF))
        return CollectiveRun(
            algorithm="hub", servers=servers, bytes=size, loss_ratio=loss_ratio, critical_ratio=critical_ratio
        )
    rails = [tuple(range(r, LEAVES * HOSTS_PER_LEAF, HOSTS_PER_LEAF)) for r in range(HOSTS_PER_LEAF)]
    return together(
        *(
            CollectiveRun(
                collective="bounded_all_reduce",
                algorithm="direct",
                hosts=hosts,
                bytes=size,
                loss_ratio=loss_ratio,
                critical_ratio=critical_ratio,
            )
            for hosts in rails
        )
    )


def completion_s(flows: Flows) -> float:
    """When the last flow was over; infinite: not all are."""
    if not flows.finished.all():
        return float("inf")
    return float(np.max(flows.start_s + flows.completion_s))


# --- runs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a case did: of each seed the time of the step, and shares of all seeds together."""

    step_s: Sequence[float] = field(metadata=ALL)
    """Until the last rank has all; infinite: it was not over."""
    abandoned_ratio: float = field(metadata=MEAN)
    """Of the bytes that may be abandoned."""
    repeated_ratio: float = field(metadata=MEAN)
    """Packets sent again beside those sent first."""
    trimmed: int = field(metadata=ROUNDED)
    dropped: int = field(metadata=ROUNDED)
    lost: int = field(metadata=ROUNDED)
    timeouts: int = field(metadata=ROUNDED)
    pauses: int = field(metadata=ROUNDED)

    @property
    def mean_s(self) -> float:
        return float(np.mean(self.step_s))


def simulate(job: tuple[Case, int, int]) -> Found:
    case, size, seed = job
    result = case.scenario(size, seed).run()
    flows, ports = result.flows, result.ports
    return Found(
        step_s=(completion_s(flows),),
        # Half of the bytes, those of the way there, are under the budget.
        abandoned_ratio=float(flows.abandoned_bytes.sum() / (flows.bytes.sum() / 2)),
        repeated_ratio=float(flows.retransmitted_packets.sum() / flows.sent_packets.sum()),
        trimmed=int(ports.packets_trimmed.sum()),
        dropped=int(ports.packets_dropped.sum()),
        lost=int(ports.packets_lost.sum()),
        timeouts=int(flows.timeouts.sum()),
        pauses=int(ports.pauses.sum()),
    )


def conditions(quick: bool) -> list[Condition]:
    """What is looked at. Quick: the oversubscribed step alone."""
    found = []
    for switch in ("trimming", "dropping"):
        found.append(Condition("rails", 4, switch))
        if quick:
            continue
        found += [
            Condition("rails", 4, switch, scale=LARGE),
            Condition("rails", 4, switch, gray=True),
            Condition("rails", 1, switch),
            Condition("rails", 1, switch, gray=True),
            Condition("servers", 4, switch),
        ]
    return found


def cases_of(found: Sequence[Condition]) -> list[Case]:
    """All transports of all conditions; DCQCN once for each pair of a trimming and a dropping one."""
    cases = [Case(condition, configuration) for condition in found for configuration in CONFIGURATIONS]
    for condition in found:
        if condition.switch == "trimming":
            lossless = replace(condition, switch="lossless")
            cases += [Case(lossless, DCQCN), Case(lossless, SPRAYED)]
    return cases


def varied_cases(found: Sequence[Condition]) -> list[Case]:
    """Bounded loss with other shares of critical blocks, and other thresholds where switches drop.

    In the first condition of each kind of switch.
    """
    first = {condition.switch: condition for condition in reversed(found)}
    return [
        Case(condition, BOUNDED, ratio, depth)
        for condition in first.values()
        for depth in (DEPTHS if condition.switch == "dropping" else (1.0,))
        for ratio in CRITICAL_RATIOS
    ]


# --- report ---------------------------------------------------------------------------------------------------


def saved(ours: Found, theirs: Found) -> float:
    """The share of their time that we do not need; negative: we need more."""
    return 1 - ours.mean_s / theirs.mean_s


def percent(ratio: float) -> _sweep.Cell:
    return (f"{100 * ratio:+.1f} %" if np.isfinite(ratio) else "–", ratio)


def steps(found: Mapping[Case, Found], size: int) -> Table:
    return _sweep.table(
        f"One step of {size / 1e6:g} MB per rank, unless it says more",
        (
            {
                "": f"{case.condition}: {case.configuration}",
                "step": _sweep.time(one.mean_s, "–"),
                "of all seeds": (
                    f"{duration(min(one.step_s))} to {duration(max(one.step_s))}",
                    max(one.step_s),
                ),
                "above bound": percent(one.mean_s / case.condition.bound_s(size) - 1),
                "abandoned": _sweep.percent(one.abandoned_ratio, 1),
                "sent again": _sweep.percent(one.repeated_ratio, 1),
                "trimmed": _sweep.count(one.trimmed),
                "dropped": _sweep.count(one.dropped),
                "lost": _sweep.count(one.lost),
                "timeouts": _sweep.count(one.timeouts),
                "pauses": _sweep.count(one.pauses),
            }
            for case, one in found.items()
        ),
    )


GAINS = (
    ("reliable beside UET", RELIABLE, UET),
    ("bounded alone", BOUNDED, RELIABLE),
    ("relaxed alone", RELIABLE + RELAXED, RELIABLE),
    ("both", BOUNDED + RELAXED, RELIABLE),
    ("bounded beside UET", BOUNDED, UET),
    ("both beside UET", BOUNDED + RELAXED, UET),
    ("both beside DCQCN", BOUNDED + RELAXED, DCQCN),
    ("both beside DCQCN, sprayed", BOUNDED + RELAXED, SPRAYED),
    ("UET beside DCQCN", UET, DCQCN),
    ("UET beside DCQCN, sprayed", UET, SPRAYED),
)


def gains(found: Mapping[Case, Found], size: int) -> Table:
    """A row per condition: time saved by the first beside the second; last, what anybody could save at all."""
    return _sweep.table(
        "Time saved",
        (
            {"": str(one)}
            | {name: percent(gain(found, one, ours, theirs)) for name, ours, theirs in GAINS}
            | {"left beside UET": percent(1 - one.bound_s(size, LOSS_RATIO) / found[Case(one, UET)].mean_s)}
            for one in compared(found)
        ),
    )


def compared(found: Mapping[Case, Found]) -> list[Condition]:
    """The conditions; DCQCN's lossless fabrics are counted with those that they are compared with."""
    return list(dict.fromkeys(case.condition for case in found if case.condition.switch != "lossless"))


def gain(found: Mapping[Case, Found], condition: Condition, ours: str, theirs: str) -> float:
    """Time saved under a condition; DCQCN's is that of its own fabric."""
    return saved(found[Case(condition, ours)], found[Case(fabric_of(condition, theirs), theirs)])


def fabric_of(condition: Condition, configuration: str) -> Condition:
    """Where a configuration runs to be compared under a condition."""
    return replace(condition, switch="lossless") if configuration in (DCQCN, SPRAYED) else condition


def variations(found: Mapping[Case, Found], cases: Sequence[Case]) -> Table:
    """What the share of critical blocks and droppable packets' thresholds do."""
    return _sweep.table(
        "Bounded loss, varied: time saved beside the same engine, reliable with its window, and beside UET",
        (
            {
                "": f"{case.condition}: {case.configuration}",
                "critical": (f"{100 * case.critical_ratio:g} %", case.critical_ratio),
                "depth": (f"x {case.depth:g}", case.depth),
                "step": _sweep.time(found[case].mean_s, "–"),
                "abandoned": _sweep.percent(found[case].abandoned_ratio, 1),
                "sent again": _sweep.percent(found[case].repeated_ratio, 1),
                "saved": percent(saved(found[case], found[Case(case.condition, RELIABLE)])),
                "beside UET": percent(saved(found[case], found[Case(case.condition, UET)])),
            }
            for case in cases
        ),
    )


def words(found: Mapping[Case, Found], size: int) -> list[str]:
    """What follows, from the figures alone."""
    conditions = compared(found)
    forgive = ("rails", "trimming", 4, False)
    shape = [c for c in conditions if (c.load, c.switch, c.oversubscription, c.gray) == forgive]
    return [
        *_by_switch(found, conditions),
        *(_room(found, condition, size) for condition in shape),
        f"FORGIVE's 16.1 to 16.7 % are beside DCQCN. In its shape (rails, 4:1) bounded loss at line rate saves "
        f"{_span(found, shape, BOUNDED + RELAXED, DCQCN)} beside DCQCN with a path per flow, and UET, which loses "
        f"nothing, {_span(found, shape, UET, DCQCN)}; beside DCQCN over sprayed paths they save "
        f"{_span(found, shape, BOUNDED + RELAXED, SPRAYED)} and {_span(found, shape, UET, SPRAYED)}.",
        f"A budget of {100 * LOSS_RATIO:g} % of one way is {100 * LOSS_RATIO / 2:g} % of a step's bytes, and what a "
        "switch cuts or drops has crossed the links before it, so that it saves less than it abandons.",
        *(_cost_of_gray(found, one) for one in conditions if one.gray and one.switch == "trimming"),
    ]


def _span(found: Mapping[Case, Found], chosen: Sequence[Condition], ours: str, theirs: str) -> str:
    """From the least gain to the greatest."""
    values = [100 * gain(found, condition, ours, theirs) for condition in chosen]
    least, most = f"{min(values):+.1f}", f"{max(values):+.1f}"
    return f"{least} %" if least == most else f"{least} to {most} %"


def _by_switch(found: Mapping[Case, Found], conditions: Sequence[Condition]) -> Iterator[str]:
    for switch, ratio in itertools.product(("trimming", "dropping"), (4, 1)):
        chosen = [c for c in conditions if c.switch == switch and c.oversubscription == ratio]
        if chosen:
            span = partial(_span, found, chosen)
            yield (
                f"{switch.capitalize()}, {ratio}:1: beside the same engine, reliable with its window, bounded loss "
                f"alone saves {span(BOUNDED, RELIABLE)}, relaxed congestion control alone "
                f"{span(RELIABLE + RELAXED, RELIABLE)}, both {span(BOUNDED + RELAXED, RELIABLE)}. "
                f"Beside UET bounded loss saves {span(BOUNDED, UET)}, both {span(BOUNDED + RELAXED, UET)}."
            )


def _room(found: Mapping[Case, Found], condition: Condition, size: int) -> str:
    uet_s = found[Case(condition, UET)].mean_s
    left = 1 - condition.bound_s(size, LOSS_RATIO) / uet_s
    return (
        f"UET ({condition}) ends {100 * (uet_s / condition.bound_s(size) - 1):.1f} % above what the links allow for "
        f"these bytes. Who never sent what may be abandoned, and lost no time at all, would save {100 * left:.1f} % "
        "beside it: there is no more room than that."
    )


def _cost_of_gray(found: Mapping[Case, Found], gray: Condition) -> str:
    def times(configuration: str) -> float:
        where = fabric_of(gray, configuration)
        clean = replace(where, gray=False)
        return found[Case(where, configuration)].mean_s / found[Case(clean, configuration)].mean_s

    told = ", ".join(f"{one} {times(one):.2f}" for one in (UET, RELIABLE, BOUNDED, DCQCN))
    return (
        f"A gray link, {gray.oversubscription}:1: times its own step on a clean fabric, {told}. Where it is many "
        f"times, a flow's last packet was lost and waits for the card's timeout, {1e3 * Dcqcn().rto_s:.1f} ms."
    )


def draw(found: Mapping[Case, Found], path: Path) -> None:
    """A table: the step of each transport beside UET's, by condition."""
    from dlcp_sim.report import pictures

    rows, columns = compared(found), [one for one in (*CONFIGURATIONS, DCQCN, SPRAYED) if one != UET]
    ratios = np.array(
        [
            [found[Case(fabric_of(c, one), one)].mean_s / found[Case(c, UET)].mean_s for one in columns]
            for c in rows
        ]
    )
    with pictures.new_figure(1, height=1.6 + 0.28 * len(rows), heading=HEADING) as (figure, axes):
        heads = [one.replace(" ", "\n").replace(",", "") for one in columns]
        pictures.heat(axes[0], ratios, [str(c) for c in rows], heads)
        axes[0].set_xlabel("time of a step, UET = 1; blue: less, orange: more")
    pictures.save(figure, path)


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    size = QUICK_BYTES if quick else FULL_BYTES
    looked_at = conditions(quick)
    cases, varied = cases_of(looked_at), varied_cases(looked_at)
    # A quick look is over before other processes would have started.
    everything = _sweep.measure(
        simulate, [*cases, *varied], size, range(1, seeds + 1), processes=1 if quick else None
    )
    found = {case: everything[case] for case in cases}
    tables = [gains(found, size), steps(found, size), variations(everything, varied)]
    notes = words(found, size)
    setting = (
        f"{plural(seeds, 'seed')}; 64 ranks, 8 leaves of 8, {RATE_BPS / 1e9:g} Gb/s, payloads of 4096 "
        f"bytes; a budget of {100 * LOSS_RATIO:g} % of the way there, {100 * CRITICAL_RATIO:g} % of its blocks "
        f"critical unless it says otherwise; a gray link loses {100 * GRAY_RATIO:g} % from leaf 0 to spine 0. Bounds "
        "count payload on the busiest link."
    )
    return _sweep.leave(
        output / NAME,
        tables,
        [*notes, setting],
        markdown=["# The honest baseline", *notes, setting, *tables],
        csv=tables[1].csv(),
        draw=partial(draw, found),
    )
