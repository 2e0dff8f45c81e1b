"""Training speed: dlcp under layer priority against P3 and ByteScheduler over TCP, with parameter servers and rings.

Published for ten V100 machines on one SN2100 switch (arXiv 2008.08445, by notes on it): up to 84.3 % faster with
parameter servers, up to 11 % in a ring, where few packets are dropped. Here all overlap both passes with
communication. TCP is CUBIC on persistent connections, with tail loss probes; packets are jumbo frames for all. The
paper's buffers, least retransmission timeout and server count are not known here, so the first two are swept: between
a switch that shares 16 MB and one that gives each port its even share, and between Linux's timeout and one two hundred
times shorter. ByteScheduler's sizes are the best of three, as it would find them. dlcp has its least timeout of real
hosts, and a largest window that a delayed acknowledgement cannot exhaust. Gains are over the best of all that TCP
carries, plain order of readiness included: in a ring whose ranks are out of step a credit is what they wait for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlcp.study.network import _sweep
from dlcp.study.network._sweep import MEAN, ms, signed
from dlcp_sim import switches
from dlcp_sim.fabrics import ThreeTier
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dlcp, Tcp
from dlcp_sim.transports.dlcp import HEADER_BYTES
from dlcp_sim.workloads.models import Model
from dlcp_sim.workloads.training import TrainingJob, training_report

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.transports.base import Transport

NAME = "training"
HEADING = "An iteration beside that of layers in turn over TCP (fifo), by model and Gb/s"
SUMMARY = "training speed: dlcp against P3 and ByteScheduler over TCP, parameter servers and rings"

MODELS = ("resnet50", "vgg16", "inception_v3", "transformer_base")
SHORT = {"resnet50": "ResNet", "vgg16": "VGG", "inception_v3": "Incept.", "transformer_base": "Transf."}
RATES_BPS = (10e9, 25e9, 100e9)
WORKERS, SERVERS = 8, 2
"""Ten machines with parameter servers, eight in a ring."""
SHARED_BYTES = 16_000_000
"""The SN2100's buffer, which its ports share by dynamic thresholds."""
STOCK_RTO_S, TUNED_RTO_S = 0.2, 1e-3
"""Linux's least retransmission timeout, and one that operators of data centres set."""
LOSS_RATIO = 0.1
"""MLT's evaluation (NSDI 2024)."""
CRITICAL_RATIO = 0.9
"""As in the completion study: what is droppable is the budget."""
PIECE_BYTES = 1 << 20
"""In which a hub sends back what dlcp brings it."""
JITTER = 0.02
"""Of compute times: seeds differ by it."""
JUMBO_BYTES, SMALL_BYTES = 9000, 4096 + HEADER_BYTES + 28
"""IP packets: of the tables by model, and of those by buffer, which are shallow."""
BYTE_SCHEDULER_SIZES = ((1 << 20, 4 << 20), (1 << 20, 16 << 20), (4 << 20, 16 << 20))
"""Partition and credit."""
PUBLISHED = {"hub": 0.843, "ring": 0.11}

TCP_SYSTEMS = ("fifo", "p3", "byte_scheduler 0", "byte_scheduler 1", "byte_scheduler 2")
# Layers by priority of packets; with servers also in P3's slices: a server sends back what all workers have sent it, so
# workers that send the same things at the same time keep both directions busy. In a ring also the transpose.
DLCP_SYSTEMS = {
    "hub": ("dlcp reliable", "dlcp bounded", "dlcp p3 bounded"),
    "ring": ("dlcp reliable", "dlcp bounded", "dlcp direct bounded"),
}
SWEPT_SYSTEMS = ("dlcp reliable", "dlcp bounded")


@dataclass(frozen=True)
class Case:
    """One job over one system."""

    model: str | Model
    topology: str
    """"hub" or "ring"."""
    system: str
    rate_bps: float
    port_bytes: int | None = None
    """Per port; None: the shared buffer."""
    min_rto_s: float = TUNED_RTO_S
    """TCP's."""
    packet_bytes: int = JUMBO_BYTES

    @property
    def fabric(self) -> ThreeTier:
        hosts = WORKERS + (SERVERS if self.topology == "hub" else 0)
        return ThreeTier(hosts_per_edge=hosts, rate_bps=self.rate_bps, delay_s=1e-6)

    def scenario(self, iterations: int, seed: int) -> Scenario:
        transport, policy = self._network()
        return Scenario(
            fabric=self.fabric,
            transport=transport,
            switch=policy,
            workload=TrainingJob(
                model=self.model,
                workers=WORKERS,
                servers=SERVERS,
                iterations=iterations,
                jitter=JITTER,
                **self._job(),
            ),
            seed=seed,
            name=self.system,
        )

    def _job(self) -> dict[str, Any]:
        scheduler, _, which = self.system.partition(" ")
        if scheduler == "byte_scheduler":
            partition, credit = BYTE_SCHEDULER_SIZES[int(which)]
            return {
                "topology": self.topology,
                "scheduler": scheduler,
                "partition_bytes": partition,
                "credit_bytes": credit,
            }
        if scheduler != "dlcp":
            return {"topology": self.topology, "scheduler": scheduler}
        bounded = which.endswith("bounded")
        return {
            "topology": "bounded" if which == "direct bounded" else self.topology,
            "scheduler": "p3" if which == "p3 bounded" else "layer_priority",
            "pipeline_bytes": PIECE_BYTES if self.topology == "hub" and which != "p3 bounded" else None,
            "loss_ratio": LOSS_RATIO if bounded else 0.0,
            "critical_ratio": CRITICAL_RATIO if bounded else 1.0,
        }

    def _network(self) -> tuple[Transport, Policy]:
        transport: Transport
        port_bytes = self.port_bytes or SHARED_BYTES
        if self.system.startswith("dlcp"):
            datagram = self.packet_bytes - 28
            window = 4 * self.fabric.bandwidth_delay_bytes(self.packet_bytes) + 8 * self.packet_bytes
            # As those of TCP beside it, these switches drop.
            transport = Dlcp(
                datagram_bytes=datagram,
                max_window_bytes=window,
                trim=False,
                trim_critical=False,
            )
            policy = switches.dlcp(
                self.fabric, packet_bytes=transport.packet_bytes, port_bytes=port_bytes, trim=False
            )
        else:
            transport = Tcp(mtu_bytes=self.packet_bytes, min_rto_s=self.min_rto_s, persistent=True)
            policy = switches.drop_tail(self.fabric, port_bytes=port_bytes)
        if self.port_bytes is None:
            policy = switches.with_shared_buffer(policy, SHARED_BYTES)
        return transport, policy


@dataclass(frozen=True)
class Found:
    iteration_s: float = field(metadata=MEAN)
    exposed_s: float = field(metadata=MEAN)
    abandoned_ratio: float = field(metadata=MEAN)
    timeouts: float = field(metadata=MEAN)
    dropped_packets: float = field(metadata=MEAN)
    cpu_s: float = field(metadata=MEAN)


def simulate(job: tuple[Case, int, int]) -> Found:
    case, iterations, seed = job
    result = case.scenario(iterations, seed).run()
    report = training_report(result)
    flows = result.flows
    sent = max(1, int(flows.bytes.sum()))
    return Found(
        float(report.iteration_s.mean()),
        float(report.exposed_s.mean()),
        float(flows.abandoned_bytes.sum() / sent),
        float(flows.timeouts.sum()) / iterations,
        float(result.ports.packets_dropped.sum()) / iterations,
        float(result.metadata["cpu_s"]),
    )


def measure(
    cases: Sequence[Case], iterations: int, seeds: Sequence[int], processes: int | None = None
) -> dict[Case, Found]:
    """All cases over all seeds, the longest first, so that the last ones to finish are short."""
    ordered = sorted(cases, key=lambda case: (case.model != "vgg16", "dlcp" not in case.system))
    return _sweep.measure(simulate, ordered, iterations, seeds, processes)


# --- what is compared -------------------------------------------------------------------------------------------


def main_cases(models: Sequence[str], rates: Sequence[float]) -> list[Case]:
    return [
        Case(model, topology, system, rate)
        for rate in rates
        for model in models
        for topology in ("hub", "ring")
        for system in (*TCP_SYSTEMS, *DLCP_SYSTEMS[topology])
    ]


def sweep_cases(
    model: str, rate_bps: float, buffers: Sequence[int | None], timeouts: Sequence[float]
) -> list[Case]:
    """Parameter servers under several buffers and least timeouts."""
    cases = []
    for port_bytes in buffers:
        for timeout in timeouts:
            cases += [
                Case(model, "hub", system, rate_bps, port_bytes, timeout, SMALL_BYTES)
                for system in ("p3", "byte_scheduler 0")
            ]
        cases += [
            Case(model, "hub", system, rate_bps, port_bytes, packet_bytes=SMALL_BYTES)
            for system in SWEPT_SYSTEMS
        ]
    return cases


def best(found: Mapping[Case, Found], case: Case) -> Found:
    """Of ByteScheduler's sizes the fastest; of other systems the one that there is."""
    if case.system != "byte_scheduler":
        return found[case]
    sizes = (replace(case, system=f"byte_scheduler {number}") for number in range(len(BYTE_SCHEDULER_SIZES)))
    return min((found[one] for one in sizes if one in found), key=_iteration_s)


def _iteration_s(one: Found) -> float:
    return one.iteration_s


def faster(ours: Found, theirs: Found) -> float:
    """By how much more samples a second; 0.5: half as many again."""
    return theirs.iteration_s / ours.iteration_s - 1


def by_model(found: Mapping[Case, Found], models: Sequence[str], rates: Sequence[float]) -> Table:
    """Iteration times, and dlcp beside the best over TCP."""

    def row(model: str, rate: float, topology: str) -> dict[str, _sweep.Cell]:
        systems = ("fifo", "p3", "byte_scheduler", *DLCP_SYSTEMS[topology])
        of_systems = [best(found, Case(model, topology, system, rate)) for system in systems]
        fifo, p3, byte_scheduler, reliable, plain_bounded, other = of_systems
        rival = min(fifo, p3, byte_scheduler, key=_iteration_s)
        bounded = min(plain_bounded, other, key=_iteration_s)
        return {
            "model": model,
            "Gb/s": (f"{rate / 1e9:g}", rate),
            "topology": "servers" if topology == "hub" else "ring",
            "FIFO": ms(fifo.iteration_s),
            "P3": ms(p3.iteration_s),
            "ByteScheduler": ms(byte_scheduler.iteration_s),
            "dlcp reliable": ms(reliable.iteration_s),
            "dlcp bounded": ms(plain_bounded.iteration_s),
            "P3's slices / direct": ms(other.iteration_s),
            "exposed, dlcp": ms(bounded.exposed_s),
            "reliable vs best": signed(faster(reliable, rival)),
            "bounded vs best": signed(faster(bounded, rival)),
            "abandoned": _sweep.percent(bounded.abandoned_ratio),
        }

    return _sweep.table(
        f"Iteration time, {WORKERS} workers; 16 MB shared buffer, TCP's least timeout 1 ms",
        itertools.starmap(row, itertools.product(models, rates, ("hub", "ring"))),
    )


def by_condition(
    found: Mapping[Case, Found],
    model: str,
    rate_bps: float,
    buffers: Sequence[int | None],
    timeouts: Sequence[float],
) -> Table:
    """How much of the gain is the baseline's buffer and timeout."""
    table = Table(
        f"{model}, parameter servers, {rate_bps / 1e9:g} Gb/s, 4 KB packets: by buffer and TCP's least timeout",
        (
            "buffer",
            "least timeout",
            "P3",
            "timeouts",
            "ByteScheduler",
            "timeouts",
            "dlcp reliable",
            "dlcp bounded",
            "bounded vs P3",
            "bounded vs ByteScheduler",
        ),
    )
    for port_bytes in buffers:
        ours = [
            found[Case(model, "hub", system, rate_bps, port_bytes, packet_bytes=SMALL_BYTES)]
            for system in SWEPT_SYSTEMS
        ]
        for timeout in timeouts:
            theirs = [
                found[Case(model, "hub", system, rate_bps, port_bytes, timeout, SMALL_BYTES)]
                for system in ("p3", "byte_scheduler 0")
            ]
            table.add(
                "16 MB shared" if port_bytes is None else f"{port_bytes // 1000} kB per port",
                (f"{1e3 * timeout:g} ms", timeout),
                *(
                    cell
                    for one in theirs
                    for cell in (ms(one.iteration_s), (f"{one.timeouts:.0f}", one.timeouts))
                ),
                *(ms(one.iteration_s) for one in ours),
                *(signed(faster(ours[1], one)) for one in theirs),
            )
    return table


def notes(found: Mapping[Case, Found], sweep: Table, main: Table) -> list[str]:
    """What came of the published figures."""
    lines = []
    for topology, word in (("hub", "servers"), ("ring", "ring")):
        gains = [(_float(row[11]), row[0], _float(row[1])) for row in main.numbers if row[2] == word]
        (low, _, _), (high, model, rate) = min(gains), max(gains)
        lines.append(
            f"{word}, tuned TCP, deep buffer: {signed(low)[0]} to {signed(high)[0]} ({model}, {rate / 1e9:g} Gb/s) "
            f"over the best baseline; published: up to {signed(PUBLISHED[topology])[0]} over P3 and ByteScheduler"
        )
    for column, rival in ((8, "P3"), (9, "ByteScheduler")):
        spans = []
        for end in (min, max):
            row = end(sweep.numbers, key=lambda row: _float(row[column]))
            spans.append(f"{signed(_float(row[column]))[0]} ({row[0]}, {1e3 * _float(row[1]):g} ms)")
        lines.append(f"by buffer and TCP's least timeout, over {rival}: {' to '.join(spans)}")
    lines.append(
        "what is gained with servers is the baseline's timeouts: the published figure needs shallow buffers and "
        "Linux's timeout, and little of it is left over TCP that waits a millisecond"
    )
    lines.append(f"CPU time of all runs: {sum(one.cpu_s for one in found.values()):.0f} s per seed")
    return lines


def _float(value: object) -> float:
    assert isinstance(value, float)
    return value


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    models = ("resnet50", "inception_v3") if quick else MODELS
    rates = (10e9,) if quick else RATES_BPS
    buffers: tuple[int | None, ...] = (128_000, None) if quick else (128_000, 512_000, None)
    timeouts = (STOCK_RTO_S, TUNED_RTO_S) if quick else (STOCK_RTO_S, 10e-3, TUNED_RTO_S)
    swept = ("resnet50", 10e9)
    iterations = 1 if quick else 2
    cases = [*main_cases(models, rates), *sweep_cases(*swept, buffers, timeouts)]
    found = measure(cases, iterations, range(1, seeds + 1))
    main = by_model(found, models, rates)
    sweep = by_condition(found, *swept, buffers, timeouts)
    lines = notes(found, sweep, main)
    return _sweep.leave(
        output / NAME,
        [main, sweep],
        lines,
        markdown=[f"# {SUMMARY}", main, sweep, _sweep.bullets(lines)],
        csv=f"{main.csv()}\n{sweep.csv()}",
        draw=partial(draw, found, models, rates),
    )


def draw(found: Mapping[Case, Found], models: Sequence[str], rates: Sequence[float], path: Path) -> None:
    """Iteration times as bars: computed and exposed, a group per model and rate."""
    from dlcp_sim.report import pictures

    with pictures.new_figure(2, heading=HEADING) as (figure, axes):
        for axis, topology in zip(axes, ("hub", "ring"), strict=True):
            systems = ("fifo", "p3", "byte_scheduler", *DLCP_SYSTEMS[topology])
            groups = [(model, rate) for rate in rates for model in models]
            width = 0.8 / len(systems)
            for place, system in enumerate(systems):
                ratios = [
                    best(found, Case(model, topology, system, rate)).iteration_s
                    / best(found, Case(model, topology, "fifo", rate)).iteration_s
                    for model, rate in groups
                ]
                at = np.arange(len(groups)) + width * (place - (len(systems) - 1) / 2)
                axis.bar(at, ratios, width * 0.9, label=system.replace("_", " "))
            axis.axhline(1, color=pictures.INK, linewidth=0.8)
            axis.set_xticks(
                np.arange(len(groups)),
                [f"{SHORT.get(model, model)}\n{rate / 1e9:g}" for model, rate in groups],
                fontsize="x-small",
            )
            axis.set_ylabel("time of an iteration, fifo = 1")
            axis.set_ylim(top=1.35 * axis.get_ylim()[1])
            axis.set_title("parameter servers" if topology == "hub" else "ring")
            axis.legend(fontsize="x-small", ncols=3, loc="upper right")
        pictures.save(figure, path)
