"""DLCP's flow-completion study: gradients pushed to parameter servers, by dlcp, DCTCP, pFabric and NDP.

Published for 144 hosts at 100 Gb/s (arXiv 2008.08445, by notes on it): tail −91.8 % and mean −43.1 % against DCTCP,
−88.6 % and −35.5 % against pFabric. The paper's message sizes, buffers and least retransmission timeout are not known
here, and they make the difference: so there are two workloads, and buffer and timeout are swept for all transports
that have them. All packets carry 4096 bytes of payload, with the headers that each transport has: NDP and pFabric 64
bytes, DCTCP 90, dlcp 130.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.study.network import _sweep
from dlcp.study.network._sweep import ALL, MEAN, TOTAL, change
from dlcp.units import PS_PER_S
from dlcp_sim import switches
from dlcp_sim.fabrics import LeafSpine
from dlcp_sim.report import pictures
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dctcp, Dlcp, Ndp, PFabric
from dlcp_sim.transports.dlcp import HEADER_BYTES
from dlcp_sim.transports.tcp import ETHERNET_BYTES
from dlcp_sim.workloads.flows import FlowWorkload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.transports.base import Transport
    from dlcp_sim.workloads.load import Load

NAME = "completion"
SUMMARY = "flow completion of gradients pushed to parameter servers: dlcp against DCTCP, pFabric and NDP"

FABRIC = LeafSpine(9, 4, 16, rate_bps=100e9, uplink_rate_bps=400e9, delay_s=1e-6)
"""pFabric's (SIGCOMM 2013, section 5), ten times as fast: 144 hosts, full bisection."""
PAYLOAD_BYTES = 4096
TCP_HEADER_BYTES = 52
"""IPv4, TCP and its timestamps."""
PUBLISHED = {"dctcp": (-0.431, -0.918), "dctcp, no probes": (-0.431, -0.918), "pfabric": (-0.355, -0.886)}
"""dlcp's change of mean and tail against a rival. The paper's DCTCP is ns-3's, which knows no tail loss probes."""
LOSS_RATIO = 0.1
"""Of each message may be abandoned: MLT's evaluation (NSDI 2024)."""
CRITICAL_RATIO = 0.9
"""Of each message's blocks is never abandoned. What is droppable is then the budget: if there is more, it is dropped
all the same, and has to be repaired; "dlcp half droppable" shows by how much that is worse."""
BUFFERS_BYTES = (100_000, 500_000, 2_000_000)
TIMEOUTS_S = (200e-3, 10e-3, 1e-3, 200e-6)
"""Linux's default minimum, what DCTCP's authors set, and what takes a kernel of one's own."""
BUFFER_BYTES = 500_000
TIMEOUT_S = 10e-3
"""Where only the load is varied."""
LOADS = (0.2, 0.4, 0.6, 0.8)
LOAD = 0.6
"""Where buffer and timeout are varied."""


@dataclass(frozen=True, kw_only=True)
class PushRounds(FlowWorkload):
    """Parameter servers to which workers push: in each round some of them one tensor each, at nearly the same time.

    Each server has a Poisson process of rounds of its own. Workers, how many, and the size are drawn anew every round.
    """

    kind: ClassVar[str] = "push_rounds"
    servers: int = 12
    load: float = LOAD
    """What rounds ask for, of the servers' links."""
    fan_in: tuple[int, ...] = (8, 16, 32)
    sizes: tuple[int, ...] = (1_000_000, 2_000_000, 4_000_000)
    """Bytes of a tensor; the same for all workers of a round."""
    jitter_s: float = 20e-6
    """Workers start within this time of each other."""
    duration_s: float = 0.01
    """Rounds begin within this time."""

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """Rounds in order of time, server by server."""
        most = fabric.hosts - max(self.fan_in)
        if not 1 <= self.servers <= most:
            raise ArgumentError(f"servers is {self.servers}; accepted: 1 to {most}")
        servers = np.arange(self.servers) * fabric.hosts // self.servers
        workers = np.setdiff1d(np.arange(fabric.hosts), servers)
        round_bytes = float(np.mean(self.fan_in)) * float(np.mean(self.sizes))
        rounds = self.load * fabric.rate_bps / 8 / round_bytes * self.duration_s
        for index, server in enumerate(servers):
            generator = np.random.default_rng((seed, 4, index))
            for start_s in np.sort(generator.random(generator.poisson(rounds))) * self.duration_s:
                source = generator.choice(workers, int(generator.choice(self.fan_in)), replace=False)
                late_s = generator.random(len(source)) * self.jitter_s
                self._add(
                    load,
                    source=source,
                    destination=server,
                    bytes=int(generator.choice(self.sizes)),
                    start_ps=np.round((start_s + late_s) * PS_PER_S).astype(np.int64),
                )


WORKLOADS = {
    "tensors": PushRounds(),
    "layers": PushRounds(fan_in=(32, 64, 128), sizes=(64_000, 128_000, 256_000)),
}
"""Large tensors from few workers, which fill links; small layers from many, which overflow buffers."""


@dataclass(frozen=True)
class Case:
    """One transport under one condition; None: as its authors would."""

    workload: str
    transport: str
    load: float = LOAD
    buffer_bytes: int | None = None
    """Per port."""
    timeout_s: float | None = None
    """The least retransmission timeout; pFabric's only one."""

    def scenario(self, duration_s: float, seed: int) -> Scenario:
        """What is run; rounds begin within `duration_s`."""
        workload = replace(WORKLOADS[self.workload], load=self.load, duration_s=duration_s)
        if self.transport in ("dlcp bounded", "dlcp half droppable"):
            critical_ratio = CRITICAL_RATIO if self.transport == "dlcp bounded" else 0.5
            workload = replace(workload, loss_ratio=LOSS_RATIO, critical_ratio=critical_ratio)
        transport, policy = self._transport()
        return Scenario(
            fabric=FABRIC,
            transport=transport,
            workload=workload,
            switch=policy,
            seed=seed,
            name=self.transport,
        )

    def _transport(self) -> tuple[Transport, Policy | None]:
        timeout: dict[str, Any] = {} if self.timeout_s is None else {"min_rto_s": self.timeout_s}
        if self.transport.startswith("dctcp"):
            probes = self.transport == "dctcp"
            dctcp = Dctcp(mtu_bytes=PAYLOAD_BYTES + TCP_HEADER_BYTES, tail_probe=probes, **timeout)
            packet_bytes = dctcp.mtu_bytes + ETHERNET_BYTES
            return dctcp, switches.dctcp(FABRIC, packet_bytes=packet_bytes, port_bytes=self.buffer_bytes)
        if self.transport == "pfabric":
            pfabric = PFabric(payload_bytes=PAYLOAD_BYTES, header_bytes=64, rto_s=self.timeout_s or 0.0)
            packet_bytes = pfabric.payload_bytes + pfabric.header_bytes
            return pfabric, switches.pfabric(FABRIC, packet_bytes=packet_bytes, port_bytes=self.buffer_bytes)
        if self.transport == "ndp":
            return Ndp(payload_bytes=PAYLOAD_BYTES), None
        # The paper's switches drop.
        dlcp = Dlcp(
            datagram_bytes=PAYLOAD_BYTES + HEADER_BYTES,
            trim=False,
            trim_critical=False,
        )
        policy = switches.dlcp(
            FABRIC, packet_bytes=dlcp.packet_bytes, port_bytes=self.buffer_bytes, trim=False
        )
        return dlcp, policy


def by_load_cases(workload: str, loads: Sequence[float]) -> list[Case]:
    """Every transport at each load, in one condition."""
    transports = (
        ("dctcp", BUFFER_BYTES, TIMEOUT_S),
        ("pfabric", None, None),
        ("ndp", None, None),
        ("dlcp reliable", BUFFER_BYTES, None),
        ("dlcp bounded", BUFFER_BYTES, None),
    )
    return [Case(workload, name, load, *own) for load in loads for name, *own in transports]


def by_condition_cases(workload: str, buffers: Sequence[int], timeouts: Sequence[float]) -> list[Case]:
    """Rivals under every buffer and timeout, dlcp under every buffer; pFabric as published."""
    found = [Case(workload, "pfabric")]
    for buffer in buffers:
        found += [
            Case(workload, name, LOAD, buffer)
            for name in ("dlcp reliable", "dlcp bounded", "dlcp half droppable")
        ]
        for timeout in timeouts:
            found += [Case(workload, name, LOAD, buffer, timeout) for name in PUBLISHED]
    return found


@dataclass(frozen=True)
class Found:
    """What flows of a case did, all seeds together."""

    completion_s: NDArray[np.float64] = field(metadata=ALL)
    """Infinite: not over when the run was."""
    abandoned_ratio: float = field(metadata=MEAN)
    timeouts: int = field(metadata=TOTAL)
    dropped_packets: int = field(metadata=TOTAL)
    cpu_s: float = field(metadata=TOTAL)

    @property
    def mean(self) -> float:
        return float(self.completion_s.mean())

    @property
    def p99(self) -> float:
        """Seconds: the tail that is compared."""
        return self.quantile(0.99)

    def quantile(self, share: float) -> float:
        """Seconds that so many flows do not exceed."""
        return float(np.quantile(self.completion_s, share, method="higher"))


def simulate(job: tuple[Case, float, int]) -> Found:
    case, duration_s, seed = job
    result = case.scenario(duration_s, seed).run()
    flows = result.flows
    return Found(
        np.where(flows.finished, flows.completion_s, np.inf),
        float(flows.abandoned_bytes.sum() / flows.bytes.sum()),
        int(flows.timeouts.sum()),
        int(result.ports.packets_dropped.sum()),
        float(result.metadata["cpu_s"]),
    )


# --- reports --------------------------------------------------------------------------------------------------


def beside(ours: float, theirs: float) -> float:
    """By how much more; −0.5: half."""
    return ours / theirs - 1


def _range(ratios: Iterable[float]) -> str:
    """From the least to the greatest, in per cent."""
    listed = list(ratios)
    low, high = change(min(listed))[0], change(max(listed))[0]
    return low if low == high else f"{low} to {high}"


def _buffer(number: int | None) -> str:
    return "own" if number is None else f"{number // 1000} kB"


def _timeout(seconds: float | None) -> str:
    return "own" if seconds is None else f"{seconds * 1e3:g} ms"


def by_load(workload: str, found: Mapping[Case, Found]) -> Table:
    """Every transport at each load, beside DCTCP."""

    def row(case: Case) -> dict[str, _sweep.Cell]:
        one, base = found[case], found[Case(workload, "dctcp", case.load, BUFFER_BYTES, TIMEOUT_S)]
        return {
            "transport": case.transport,
            "load": (f"{case.load:.1f}", case.load),
            "flows": _sweep.count(len(one.completion_s)),
            "mean": _sweep.time(one.mean),
            "p50": _sweep.time(one.quantile(0.5)),
            "p99": _sweep.time(one.p99),
            "p99.9": _sweep.time(one.quantile(0.999)),
            "mean vs DCTCP": change(beside(one.mean, base.mean)),
            "p99 vs DCTCP": change(beside(one.p99, base.p99)),
            "abandoned": _sweep.percent(one.abandoned_ratio),
            "timeouts": _sweep.count(one.timeouts),
        }

    return _sweep.table(
        f"{workload}: completion by load; buffer {_buffer(BUFFER_BYTES)}, DCTCP's least timeout {_timeout(TIMEOUT_S)}",
        [row(case) for case in by_load_cases(workload, LOADS) if case in found],
    )


@dataclass(frozen=True)
class Gain:
    """dlcp against a rival under the rival's buffer (pFabric's own: BUFFER_BYTES)."""

    rival: Case
    mean: float
    """Change of the mean, bounded; likewise the tail."""
    p99: float
    reliable_p99: float
    """If dlcp gives nothing up."""


def gains(workload: str, found: Mapping[Case, Found]) -> list[Gain]:
    """Against every rival that has a published figure, at the load of the sweep; longest timeouts first."""
    listed = []
    for rival, theirs in found.items():
        if (rival.workload, rival.load) != (workload, LOAD) or rival.transport not in PUBLISHED:
            continue
        ours = Case(workload, "dlcp bounded", LOAD, rival.buffer_bytes or BUFFER_BYTES)
        bounded, reliable = found[ours], found[replace(ours, transport="dlcp reliable")]
        listed.append(
            Gain(
                rival,
                beside(bounded.mean, theirs.mean),
                beside(bounded.p99, theirs.p99),
                beside(reliable.p99, theirs.p99),
            )
        )
    order = list(PUBLISHED)

    def place(gain: Gain) -> tuple[int, int, float]:
        rival = gain.rival
        return order.index(rival.transport), rival.buffer_bytes or 0, -(rival.timeout_s or 0)

    return sorted(listed, key=place)


def by_condition(workload: str, found: Mapping[Case, Found]) -> Table:
    """Each rival by buffer and timeout, and dlcp against it."""

    def row(gain: Gain) -> dict[str, _sweep.Cell]:
        rival, theirs = gain.rival, found[gain.rival]
        return {
            "rival": rival.transport,
            "buffer": (_buffer(rival.buffer_bytes), rival.buffer_bytes or ""),
            "timeout": (_timeout(rival.timeout_s), rival.timeout_s or ""),
            "mean": _sweep.time(theirs.mean),
            "p99": _sweep.time(theirs.p99),
            "p99.9": _sweep.time(theirs.quantile(0.999)),
            "timeouts": _sweep.count(theirs.timeouts),
            "dlcp: mean": change(gain.mean),
            "dlcp: p99": change(gain.p99),
            "reliable: p99": change(gain.reliable_p99),
        }

    return _sweep.table(
        f"{workload}: dlcp (up to {LOSS_RATIO:.0%} abandoned) against rivals by buffer and timeout, load {LOAD}",
        map(row, gains(workload, found)),
    )


def verdict(workload: str, found: Mapping[Case, Found]) -> Iterator[str]:
    """What the sweep says about the published figures, in sentences made of the figures alone."""
    listed = gains(workload, found)
    for rival, (published_mean, published_p99) in PUBLISHED.items():
        mine = [gain for gain in listed if gain.rival.transport == rival]
        near = min(mine, key=lambda g: abs(g.p99 - published_p99) + abs(g.mean - published_mean))
        yield (
            f"{workload}, against {rival}: dlcp's p99 changes by {_range(g.p99 for g in mine)}, its mean by "
            f"{_range(g.mean for g in mine)}. Published: {change(published_p99)[0]} and "
            f"{change(published_mean)[0]}. Nearest here: {change(near.p99)[0]} and {change(near.mean)[0]}, "
            f"with buffer {_buffer(near.rival.buffer_bytes)}, timeout {_timeout(near.rival.timeout_s)}."
        )
        by_timeout: dict[float, list[Gain]] = {}
        for gain in mine:
            if gain.rival.timeout_s:
                by_timeout.setdefault(gain.rival.timeout_s, []).append(gain)
        steps = (
            f"{_timeout(timeout)}: {_range(gain.p99 for gain in some)}"
            for timeout, some in by_timeout.items()
        )
        yield f"{workload}, against {rival}, p99, by the rival's least timeout: {'; '.join(steps)}."

    def against(ours: str, theirs: str, *, own_buffer: bool = False) -> str:
        """Changes over all conditions in which both ran; `own_buffer`: theirs does not have the switches' of ours."""
        pairs = [
            (one, found[other])
            for case, one in found.items()
            if (case.workload, case.transport, case.timeout_s) == (workload, ours, None)
            and (case.buffer_bytes == BUFFER_BYTES or not own_buffer)
            and (
                other := replace(
                    case, transport=theirs, buffer_bytes=None if own_buffer else case.buffer_bytes
                )
            )
            in found
        ]
        mean, p99 = (_range(beside(getattr(a, q), getattr(b, q)) for a, b in pairs) for q in ("mean", "p99"))
        return f"mean {mean}, p99 {p99}"

    yield (
        f"{workload}: what abandoning up to {LOSS_RATIO:.0%} of a message changes of dlcp itself, over all loads and "
        f"buffers: {against('dlcp bounded', 'dlcp reliable')}; if half of the blocks are droppable, not a tenth: "
        f"{against('dlcp half droppable', 'dlcp reliable')}."
    )
    for name in ("pfabric", "ndp"):
        changes = against("dlcp bounded", name, own_buffer=True)
        yield f"{workload}, against {name} as published, over all loads: {changes}."


def every_case(found: Mapping[Case, Found]) -> str:
    return _sweep.numbers(
        {
            "workload": case.workload,
            "transport": case.transport,
            "load": case.load,
            "buffer_bytes": case.buffer_bytes,
            "min_rto_s": case.timeout_s,
            "flows": len(one.completion_s),
            "mean_s": one.mean,
            "p50_s": one.quantile(0.5),
            "p99_s": one.p99,
            "p999_s": one.quantile(0.999),
            "max_s": one.quantile(1.0),
            "abandoned_ratio": one.abandoned_ratio,
            "timeouts": one.timeouts,
            "dropped_packets": one.dropped_packets,
            "cpu_s": round(one.cpu_s, 3),
        }
        for case, one in found.items()
    )


_DRAWN = ("dctcp", "pfabric", "ndp", "dlcp reliable", "dlcp bounded", "dctcp, no probes")
COLOURS = dict(zip(_DRAWN, pictures.COLOURS, strict=False))


def draw(found: Mapping[Case, Found], path: Path) -> None:
    """Per workload: mean and tail by load; rivals' tails by timeout, beside dlcp's."""
    with pictures.style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(15, 4.2 * len(WORKLOADS)), layout="constrained")
        pictures.head(figure, "Completion of gradients pushed to parameter servers")
        rows = figure.subplots(len(WORKLOADS), 3, squeeze=False)
        for workload, (mean, tail, sweep) in zip(WORKLOADS, rows, strict=True):
            _by_load_lines(mean, workload, "mean", found)
            _by_load_lines(tail, workload, "p99", found)
            mean.legend(fontsize="small")
            _by_timeout_lines(sweep, workload, found)
    pictures.save(figure, path)


def _by_load_lines(axes: Axes, workload: str, quantity: str, found: Mapping[Case, Found]) -> None:
    """A line per transport."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for case in by_load_cases(workload, LOADS):
        if case in found:
            lines.setdefault(case.transport, []).append((case.load, getattr(found[case], quantity) * 1e3))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), "o-", color=COLOURS[name], label=name)
    what = "99th percentile" if quantity == "p99" else quantity
    axes.set(
        xlabel="load of the servers' links, of 1",
        ylabel="completion, ms",
        title=f"{workload}: {what}",
    )
    axes.set_yscale("log")
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which("{x:g}")


def _by_timeout_lines(axes: Axes, workload: str, found: Mapping[Case, Found]) -> None:
    """A line per rival and buffer, and dlcp's tail under each buffer across."""
    for buffer, style in zip(BUFFERS_BYTES, (":", "-", "--"), strict=True):
        for name in PUBLISHED:
            points = [
                (timeout * 1e3, found[case].p99 * 1e3)
                for timeout in TIMEOUTS_S
                if (case := Case(workload, name, LOAD, buffer, timeout)) in found
            ]
            if points:
                label = f"{name}, {_buffer(buffer)}"
                axes.plot(*zip(*points, strict=True), f"o{style}", color=COLOURS[name], label=label)
        if one := found.get(Case(workload, "dlcp bounded", LOAD, buffer)):
            label = f"dlcp bounded, {_buffer(buffer)}"
            axes.axhline(one.p99 * 1e3, ls=style, color=COLOURS["dlcp bounded"], label=label)
    axes.set(xlabel="the rival's least timeout, ms", title=f"{workload}: 99th percentile, load {LOAD}")
    axes.set(xscale="log", yscale="log")
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    cases: list[Case] = []
    for workload in WORKLOADS:
        cases += by_load_cases(workload, (LOAD,) if quick else LOADS)
        cases += by_condition_cases(
            workload,
            (BUFFER_BYTES,) if quick else BUFFERS_BYTES,
            (TIMEOUT_S, TIMEOUTS_S[-1]) if quick else TIMEOUTS_S,
        )
    duration_s = 0.002 if quick else 0.01
    found = _sweep.measure(simulate, cases, duration_s, range(1, seeds + 1))
    tables = [table(workload, found) for workload in WORKLOADS for table in (by_load, by_condition)]
    sentences = [sentence for workload in WORKLOADS for sentence in verdict(workload, found)]
    return _sweep.leave(
        output / NAME,
        tables,
        sentences,
        markdown=[
            *_sweep.heading(SUMMARY, __doc__),
            _sweep.bullets(sentences),
            *tables,
        ],
        csv=every_case(found),
        draw=partial(draw, found),
    )
