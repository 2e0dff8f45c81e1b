"""Training over one gray link: what a worker's link costs that loses packets, all the time or in bursts.

Eight workers at 25 Gb/s on one switch train without overlap, as DBLP does: a quarter of ResNet-50 per step (25.6 MB in
one tensor and 40 ms of computing, so that runs are short and the two keep their ratio), by ring and by a parameter
server that is spread over the workers. All packets carry 4096 bytes. The gray link is worker 3's, in both directions.
TCP and DCTCP keep connections, and have Linux's least timeout (200 ms) or one tuned for the rack (1 ms); dlcp is as it
ships, bounded as MLT is: any block of a message may be abandoned, so many per cent at most (on the way back from a
server, none). A packet has 90 bytes of headers in TCP and 130 in dlcp, which is most of their difference on healthy
links.

Published: MLT under 0.01, 0.1 and 1 % of random loss, with figures that are not known here. DBLP (arXiv 2605.01989),
whose baseline is MLT with its bound fixed at 0.8 or 2.4 %, and which raises the bound by 40 points while training
tolerates it: bursts of 60 to 90 % in two or three rounds of a run on three workers and one server; time cut by 24.4 %
in the mean and 33.9 % at most over its models, rounds with a burst 5.88 times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlcp.study.network import _sweep
from dlcp.study.network._sweep import ALL, MEAN, TOTAL, change
from dlcp_sim.fabrics import Star
from dlcp_sim.faults import Fault, RandomLoss
from dlcp_sim.report import pictures
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dctcp, Dlcp, Tcp
from dlcp_sim.transports.dlcp import HEADER_BYTES
from dlcp_sim.workloads.training import TrainingJob, training_report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from dlcp_sim.result import Result
    from dlcp_sim.transports.base import Transport

NAME = "gray"
HEADING = "Training over a link that loses packets, in rounds of a healthy network"
SUMMARY = "training over a link that loses packets, at random and in bursts: dlcp against TCP and DCTCP"

WORKERS = 8
GRAY_WORKER = 3
FABRIC = Star(WORKERS, rate_bps=25e9, delay_s=2e-6)
GRAY_LINK = f"host {GRAY_WORKER}"
GRAY_EGRESS = f"host {GRAY_WORKER} -> edge 0"
"""What the worker sends, as a queue that loses on its interface has it (netem)."""
PAYLOAD_BYTES = 4096
TCP_HEADER_BYTES = 52
LOSS_RATIO = 0.1
"""MLT's evaluation."""
LOW_RATIO, HIGH_RATIO = 0.024, 0.424
"""DBLP's bounds for ResNet-50."""
STEADY_RATIOS = (1e-4, 1e-3, 1e-2)
BURST_RATIOS = (0.6, 0.9)
TOPOLOGIES = ("ring", "hub")
PUBLISHED_CUT, PUBLISHED_SPEEDUP = 0.244, 5.88

_MTU_BYTES = PAYLOAD_BYTES + TCP_HEADER_BYTES
_DATAGRAM_BYTES = PAYLOAD_BYTES + HEADER_BYTES


@dataclass(frozen=True)
class Sender:
    """A transport, and how much of a message it may abandon."""

    transport: Transport
    loss_ratio: float = 0.0


SENDERS: Mapping[str, Sender] = {
    "cubic, 200 ms": Sender(Tcp(mtu_bytes=_MTU_BYTES, min_rto_s=0.2, persistent=True)),
    "cubic, 1 ms": Sender(Tcp(mtu_bytes=_MTU_BYTES, min_rto_s=1e-3, persistent=True)),
    "dctcp, 1 ms": Sender(Dctcp(mtu_bytes=_MTU_BYTES, min_rto_s=1e-3, persistent=True)),
    "dlcp reliable": Sender(Dlcp(datagram_bytes=_DATAGRAM_BYTES)),
    "dlcp 2.4 %": Sender(Dlcp(datagram_bytes=_DATAGRAM_BYTES), LOW_RATIO),
    "dlcp 10 %": Sender(Dlcp(datagram_bytes=_DATAGRAM_BYTES), LOSS_RATIO),
    "dlcp 42.4 %": Sender(Dlcp(datagram_bytes=_DATAGRAM_BYTES), HIGH_RATIO),
    "line rate, 2.4 %": Sender(Dlcp(datagram_bytes=_DATAGRAM_BYTES, congestion="line_rate"), LOW_RATIO),
    "line rate, 42.4 %": Sender(Dlcp(datagram_bytes=_DATAGRAM_BYTES, congestion="line_rate"), HIGH_RATIO),
}
COLOURS = dict(zip(SENDERS, (*pictures.COLOURS, "#000000"), strict=True))
STEADY_SENDERS = ("cubic, 200 ms", "cubic, 1 ms", "dctcp, 1 ms", "dlcp reliable", "dlcp 10 %")
ROUND_SENDERS = tuple(name for name in SENDERS if name != "cubic, 200 ms")
"""Line rate: dlcp that does not slow down for losses, as the papers' minimal control hardly does."""


@dataclass(frozen=True)
class GrayPlan:
    iterations: int
    scale: float
    """Of ResNet-50's bytes and time."""
    cap_s: float
    """Simulated time after which a run with bursts or constant loss is stopped, however far it is."""
    round_cap_s: float
    """The same for a burst that lasts a round."""


FULL = GrayPlan(iterations=8, scale=1 / 4, cap_s=30.0, round_cap_s=5.0)
QUICK = GrayPlan(iterations=3, scale=1 / 16, cap_s=2.0, round_cap_s=0.3)


@dataclass(frozen=True)
class Case:
    """One sender under one condition."""

    topology: str
    sender: str
    loss_ratio: float = 0.0
    """Of the gray link, while it is gray."""
    when: str = "always"
    """"always"; "bursts": two, as long as a healthy round each; "round": what the worker sends, from the beginning of
    the second round until that is over."""

    def scenario(
        self,
        plan: GrayPlan,
        seed: int,
        faults: Sequence[Fault] = (),
        *,
        iterations: int | None = None,
        until_s: float | None = None,
    ) -> Scenario:
        """What is run: the plan's iterations and time, unless said otherwise."""
        sender = SENDERS[self.sender]
        job = TrainingJob(
            model="resnet50",
            max_layers=1,
            workers=WORKERS,
            topology=self.topology,
            overlap="none",
            iterations=iterations or plan.iterations,
            send_ratio=plan.scale,
            compute_scale=plan.scale,
            loss_ratio=sender.loss_ratio,
            critical_ratio=0.0 if sender.loss_ratio else 1.0,
        )
        return Scenario(
            fabric=FABRIC,
            transport=sender.transport,
            workload=job,
            faults=tuple(faults),
            seed=seed,
            until_s=until_s or plan.cap_s,
            name=self.sender,
        )


@dataclass(frozen=True)
class Found:
    """What became of a case, all seeds together."""

    iteration_s: NDArray[np.float64] = field(metadata=ALL)
    """Infinite: not over when the run was stopped. With "round": only that one."""
    abandoned_ratio: float = field(metadata=MEAN)
    """Of what the gray worker sent and may lose: abandoned. With "round": in that round."""
    timeouts: int = field(metadata=TOTAL)
    retransmitted_packets: int = field(metadata=TOTAL)
    cpu_s: float = field(metadata=TOTAL)

    @property
    def mean_s(self) -> float:
        """Of all iterations."""
        return float(self.iteration_s.mean())

    @property
    def max_s(self) -> float:
        """The slowest one: the tail of a few dozen."""
        return float(self.iteration_s.max())


def round_ends(result: Result) -> NDArray[np.float64]:
    """When each backward pass was over on average: between two of them is an iteration, its communication first."""
    ends: NDArray[np.float64] = training_report(result).backward_end_s[:, :, 0].mean(axis=1)
    return ends


def simulate(work: tuple[Case, GrayPlan, int]) -> Found:
    """One run; where a burst has its place in a round, after one without, which says when that is."""
    case, plan, seed = work
    since_s = 0.0
    faults: list[Fault] = []
    if case.when == "always":
        if case.loss_ratio:
            faults.append(RandomLoss(GRAY_LINK, ratio=case.loss_ratio))
        result = case.scenario(plan, seed, faults).run()
        iterations = plan.iterations
    elif case.when == "bursts":
        ends = round_ends(case.scenario(plan, seed, iterations=1).run())
        round_s = float(ends[1] - ends[0])
        first, later = (float(ends[0]) + round_s * at for at in (1.0, max(2.5, plan.iterations - 3.5)))
        for at_s in (first, later):
            faults.append(RandomLoss(GRAY_LINK, ratio=case.loss_ratio, at_s=at_s, until_s=at_s + round_s))
        result = case.scenario(plan, seed, faults).run()
        iterations = plan.iterations
    else:
        since_s = float(round_ends(case.scenario(plan, seed, iterations=1).run())[1])
        fault = RandomLoss(GRAY_EGRESS, ratio=case.loss_ratio, at_s=since_s)
        until_s = since_s + plan.round_cap_s
        result = case.scenario(plan, seed, (fault,), iterations=2, until_s=until_s).run()
        iterations = 2
    times = np.full(iterations, np.inf)
    steps = np.diff(round_ends(result))
    times[: len(steps)] = np.where(np.isfinite(steps), steps, np.inf)
    flows = result.flows
    # Workers begin a round within some microseconds.
    chosen = (flows.source == GRAY_WORKER) & (flows.start_s >= since_s - 1e-4)
    # Of a hub's flows, those that a worker pushes may lose: half of what it sends, as it is a server too.
    lossy_bytes = float(flows.bytes[chosen].sum()) * (0.5 if case.topology == "hub" else 1.0)
    return Found(
        iteration_s=times[1:] if case.when == "round" else times,
        abandoned_ratio=float(flows.abandoned_bytes[chosen].sum()) / lossy_bytes if lossy_bytes else 0.0,
        timeouts=int(flows.timeouts.sum()),
        retransmitted_packets=int(flows.retransmitted_packets.sum()),
        cpu_s=float(result.metadata["cpu_s"]),
    )


def cases_of(quick: bool) -> list[Case]:
    steady = STEADY_RATIOS[-1:] if quick else STEADY_RATIOS
    bursts = BURST_RATIOS[:1] if quick else BURST_RATIOS
    found = []
    for topology in TOPOLOGIES:
        for loss_ratio, when in (
            (0.0, "always"),
            *((ratio, "always") for ratio in steady),
            *((ratio, "bursts") for ratio in bursts),
        ):
            found += [Case(topology, sender, loss_ratio, when) for sender in STEADY_SENDERS]
        found += [Case(topology, sender, ratio, "round") for ratio in bursts for sender in ROUND_SENDERS]
    return found


# --- reports --------------------------------------------------------------------------------------------------


def condition(case: Case) -> str:
    if case.loss_ratio == 0:
        return "healthy"
    return (
        f"{100 * case.loss_ratio:g} %"
        + {"always": "", "bursts": ", 2 bursts", "round": ", a round"}[case.when]
    )


def _times(ratio: float) -> _sweep.Cell:
    return (f"{ratio:.2f}" if math.isfinite(ratio) else "–", ratio)


def healthy_s(found: Mapping[Case, Found], case: Case) -> float:
    """A round of the same sender, or of the nearest that was run, on a healthy network."""
    for sender in (case.sender, "dlcp 10 %" if SENDERS[case.sender].loss_ratio else "dlcp reliable"):
        one = found.get(Case(case.topology, sender))
        if one is not None:
            return one.mean_s
    return math.nan


def by_condition(topology: str, found: Mapping[Case, Found], plan: GrayPlan) -> Table:
    """Iterations under constant loss and under bursts of a healthy round's length."""

    def row(case: Case, one: Found) -> dict[str, _sweep.Cell]:
        base_s = healthy_s(found, case)
        return {
            "link": condition(case),
            "sender": case.sender,
            "mean": _sweep.time(one.mean_s, f"> {plan.cap_s:g} s"),
            "max": _sweep.time(one.max_s, f"> {plan.cap_s:g} s"),
            "mean / healthy": _times(one.mean_s / base_s),
            "max / healthy": _times(one.max_s / base_s),
            "abandoned": _sweep.percent(one.abandoned_ratio),
            "sent again": _sweep.count(one.retransmitted_packets),
            "timeouts": _sweep.count(one.timeouts),
        }

    return _sweep.table(
        f"{topology}: iterations over a gray link",
        [row(case, one) for case, one in found.items() if case.topology == topology and case.when != "round"],
    )


def by_bound(topology: str, found: Mapping[Case, Found], plan: GrayPlan) -> Table:
    """The round during which what the gray worker sends is lost, by bound and congestion control."""

    def row(case: Case, one: Found) -> dict[str, _sweep.Cell]:
        low = found[replace(case, sender="dlcp 2.4 %")]
        return {
            "loss": f"{100 * case.loss_ratio:g} %",
            "sender": case.sender,
            "mean": _sweep.time(one.mean_s, f"> {plan.round_cap_s:g} s"),
            "max": _sweep.time(one.max_s, f"> {plan.round_cap_s:g} s"),
            "mean / healthy": _times(one.mean_s / healthy_s(found, case)),
            "2.4 % / this": _times(low.mean_s / one.mean_s if math.isfinite(one.mean_s) else math.nan),
            "abandoned": _sweep.percent(one.abandoned_ratio),
        }

    return _sweep.table(
        f"{topology}: a round through which the gray worker's packets are lost",
        [row(case, one) for case, one in found.items() if case.topology == topology and case.when == "round"],
    )


def rounds_between(healthy: float, low: float, high: float, cut: float = PUBLISHED_CUT) -> float:
    """One round in how many must be a burst for raising the bound to cut the mean by so much; NaN: no number is."""
    rounds = 1 + ((low - high) / cut - low) / healthy
    return rounds if rounds >= 1 else math.nan


def verdict(found: Mapping[Case, Found], plan: GrayPlan) -> Iterator[str]:
    """What the tables come to, beside what was published."""
    for topology in TOPOLOGIES:
        for case in [case for case in found if case.topology == topology and case.sender == "cubic, 1 ms"]:
            if case.when == "round" or case.loss_ratio == 0:
                continue
            ours = found[replace(case, sender="dlcp 10 %")]

            def against(sender: str, case: Case = case, ours: Found = ours) -> str:
                rival = found[replace(case, sender=sender)]
                if not math.isfinite(rival.mean_s):
                    return f"{sender}: not over after {plan.cap_s:g} s"
                mean, worst = (1 - a / b for a, b in ((ours.mean_s, rival.mean_s), (ours.max_s, rival.max_s)))
                return f"{sender}: mean {change(-mean)[0]}, slowest {change(-worst)[0]}"

            rivals = [name for name in STEADY_SENDERS if name != "dlcp 10 %"]
            yield (
                f"{topology}, {condition(case)}: iterations of dlcp with a bound of 10 % against "
                f"{'; '.join(against(name) for name in rivals)}."
            )
    for topology in TOPOLOGIES:
        for ratio in BURST_RATIOS:
            for control in ("dlcp ", "line rate, "):
                low, high = (Case(topology, f"{control}{bound} %", ratio, "round") for bound in (2.4, 42.4))
                if low not in found or not math.isfinite(found[low].mean_s + found[high].mean_s):
                    continue
                low_s, high_s = found[low].mean_s, found[high].mean_s
                rounds = rounds_between(healthy_s(found, low), low_s, high_s)
                needs = (
                    f"needs one round in {rounds:.1f} to be like this" if rounds >= 1 else "is out of reach"
                )
                yield (
                    f"{topology}, {condition(low)}, {control.strip(', ')}: a bound of 42.4 % in place of 2.4 % makes "
                    f"the round {low_s / high_s:.2f} times as fast (published: {PUBLISHED_SPEEDUP}); the published "
                    f"cut of the mean by {100 * PUBLISHED_CUT:.1f} % {needs}."
                )
    fluid = (1 - LOW_RATIO) / (1 - HIGH_RATIO)
    yield (
        f"Why not {PUBLISHED_SPEEDUP}: of a message (1 − bound) must arrive, at the rate that the link still delivers, "
        f"and in that the two bounds differ {fluid:.2f} times, whatever the loss; a server's half of the bytes is "
        "reliable, which leaves less. What goes beyond is waiting that the higher bound spares, for timers and lost "
        "control packets. Here losses are repaired within round trips of microseconds; the published transport is "
        "a program in Python over UDP, without help from switches."
    )


def every_case(found: Mapping[Case, Found]) -> str:
    return _sweep.numbers(
        {
            "topology": case.topology,
            "sender": case.sender,
            "when": case.when,
            "link_loss_ratio": case.loss_ratio,
            "iterations": len(one.iteration_s),
            "unfinished": int(np.isinf(one.iteration_s).sum()),
            "mean_s": one.mean_s,
            "p50_s": float(np.quantile(one.iteration_s, 0.5, method="higher")),
            "max_s": one.max_s,
            "abandoned_ratio": one.abandoned_ratio,
            "timeouts": one.timeouts,
            "retransmitted_packets": one.retransmitted_packets,
            "cpu_s": round(one.cpu_s, 3),
        }
        for case, one in found.items()
    )


def draw(found: Mapping[Case, Found], plan: GrayPlan, path: Path) -> None:
    """Per topology: iterations by condition, and rounds under a burst by loss, as multiples of a healthy round."""
    steady = "mean iteration, whisker to the slowest, by what the gray link loses"
    rounds = "a round through which the gray worker's packets are lost (▲: not over)"
    with pictures.new_figure(2 * len(TOPOLOGIES), height=11.4, width=8.0, heading=HEADING) as (
        figure,
        panels,
    ):
        kinds = [
            (topology, of_round, title)
            for topology in TOPOLOGIES
            for of_round, title in ((False, steady), (True, rounds))
        ]
        for axes, (topology, of_round, title) in zip(panels, kinds, strict=True):
            shown = {
                case: one
                for case, one in found.items()
                if case.topology == topology and (case.when == "round") is of_round
            }
            _bars(axes, shown, found, plan.round_cap_s if of_round else plan.cap_s)
            axes.set_title(f"{topology}: {title}")
        pictures.save(figure, path)


def _bars(axes: Axes, shown: Mapping[Case, Found], found: Mapping[Case, Found], cap_s: float) -> None:
    """A group of bars per condition, a bar per sender."""
    conditions = list(dict.fromkeys(condition(case) for case in shown))
    senders = list(dict.fromkeys(case.sender for case in shown))
    width = 0.84 / len(senders)
    for place, sender in enumerate(senders):
        colour = COLOURS[sender]
        for case, one in shown.items():
            if case.sender != sender:
                continue
            at = conditions.index(condition(case)) + (place - (len(senders) - 1) / 2) * width
            base_s = healthy_s(found, case)
            over = math.isfinite(one.mean_s)
            top = (one.mean_s if over else cap_s) / base_s
            label = sender if condition(case) == conditions[0] else None
            axes.bar(at, top, width * 0.92, color=colour, label=label)
            if over:
                axes.plot([at, at], [top, one.max_s / base_s], color=colour, linewidth=1.2)
            else:
                axes.plot(at, top * 1.04, "^", color=colour, markersize=5)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    axes.set_xticks(np.arange(len(conditions)), conditions)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("healthy rounds")
    axes.legend(fontsize="x-small", ncols=4, loc="upper left")


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    plan = QUICK if quick else FULL
    found = _sweep.measure(simulate, cases_of(quick), plan, range(1, seeds + 1))
    tables = [table(topology, found, plan) for topology in TOPOLOGIES for table in (by_condition, by_bound)]
    sentences = list(verdict(found, plan))
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
        draw=partial(draw, found, plan),
    )
