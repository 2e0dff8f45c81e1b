"""DDP steps over a leaf-spine of software switches: with dlcp's policy, and with drops where a queue ends.

Two leaves, two spines, three hosts on each leaf: two ranks and a sender that listens to nobody, whose packets go to a
rank on the other leaf, in the class of the gradients and of little importance. Both policies hold on the same fabric in
turn, so all else is equal. Backends are Gloo, dlcp reliable, dlcp bounded; a step takes as long as its slowest rank.

What is judged: that switches that obey the policy drop next to no critical packet, that dlcp's steps are no longer with
it than without, and that ranks end with the same weights.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.collectives.world import GLOO, Backend, Place, Ranks
from bench.gradient_lab import LOSS_BUDGET, Steps, account_of, agreeing, all_times_s, median_s, train
from bench.report import Figure, Report, percentile, progress, ratios, spread
from dlcp.lab import tcp_fill
from dlcp.lab.counts import Counts
from dlcp.lab.fabric import Fabric
from dlcp.lab.namespaces import INTERFACE
from dlcp.lab.policies import fifo, usual
from dlcp.lab.switched_lab import SwitchedLab
from dlcp.lab.tcp_fill import TcpFill
from dlcp.lab.traffic import PacketStream

SUMMARY = (
    "DDP steps over a leaf-spine of software switches under foreign load: dlcp's policy against drop-tail"
)
NEEDS_LAB = True
NEEDS_PROGRAMS = False
# Four hops of four ranks and two loads, on two cores that also do the arithmetic.
RATE_BPS = 50_000_000
FABRIC = Fabric(leaves=2, spines=2, hosts_per_leaf=3, host_rate_bps=RATE_BPS, fabric_rate_bps=RATE_BPS)
RANK_HOSTS = (0, 1, 3, 4)
# From, to: across the spines, into the port of a rank.
LOADS = ((2, 3), (5, 0))
LOAD_SHARE = 0.6
LOAD = PacketStream(dscp=0, importance=40, paths=8)
# Links here are some hundred times slower than those that dlcp's target of 1 ms is for: that would be four packets.
SETTINGS = {"DLCP_SHM": "0", "DLCP_TARGET_DELAY_S": "0.005"}
DLCP, BOUNDED = Backend("dlcp", "dlcp", SETTINGS), Backend("dlcp bounded", "dlcp", SETTINGS)
BACKENDS: dict[Backend, dict[str, float] | None] = {
    GLOO: None,
    DLCP: None,
    BOUNDED: {"loss_budget": LOSS_BUDGET},
}
POLICIES = {"policy": usual(RATE_BPS), "FIFO": fifo(RATE_BPS)}


@dataclass
class Dropped:
    """By all switches while one world ran."""

    critical: int
    all: int
    critical_offered: int
    """Critical packets, port by port; those of a way of four hops count at each."""


def run(*, quick: bool) -> Report:
    """Both policies and all backends in turn, as often as there are repeats."""
    repeats, steps = (1, 6) if quick else (3, 10)
    found: dict[tuple[str, str], list[list[Steps]]] = {}
    dropped: dict[tuple[str, str], list[Dropped]] = {}
    with Ranks() as ranks, SwitchedLab(FABRIC, policy=POLICIES["policy"]) as bed:
        place = Place(
            tuple(bed.namespace(host) for host in RANK_HOSTS), bed.addresses[RANK_HOSTS[0]], INTERFACE
        )
        fill = tcp_fill.measure(bed, RANK_HOSTS[0], RANK_HOSTS[-1])
        for repeat in range(repeats):
            for policy, rules in POLICIES.items():
                bed.set_policy(rules)
                for backend, options in BACKENDS.items():
                    progress(f"{repeat + 1}/{repeats} {policy}, {backend.label}")
                    before = bed.counts()
                    with _load(bed):
                        steps_of_ranks = ranks.run(train, place, backend, steps, options)
                    found.setdefault((policy, backend.label), []).append(steps_of_ranks)
                    dropped.setdefault((policy, backend.label), []).append(_between(before, bed.counts()))
        progress("")
    settings = {
        "rate": f"{RATE_BPS / 1e6:g} Mbit/s",
        "foreign load": f"{LOAD_SHARE:g} of a rank's port, twice",
        "budget": LOSS_BUDGET,
        "steps": repeats * steps,
    }
    return judge(found, dropped, settings, fill)


def judge(
    found: dict[tuple[str, str], list[list[Steps]]],
    dropped: dict[tuple[str, str], list[Dropped]],
    settings: dict[str, object],
    fill: TcpFill,
) -> Report:
    """What was found, by policy and backend: a world per repetition, a rank's account per rank."""
    report = Report("switched_fabric", settings, fills={"": fill})
    table = report.table(
        "Step, slowest rank, ms; packets that switches dropped, in all repetitions",
        ["", "steps", "p50: median (lowest–highest)", "p99", "dropped", "of them critical", "same weights"],
    )
    for (policy, label), runs in found.items():
        times_s, alike = all_times_s(runs), agreeing(runs)
        drops = dropped[policy, label]
        table.add(
            f"{policy}, {label}",
            str(len(times_s)),
            spread((1e3 * median_s(steps) for steps in runs), 0),
            f"{1e3 * percentile(times_s, 99):.0f}",
            str(sum(one.all for one in drops)),
            str(sum(one.critical for one in drops)) if policy == "policy" else "not told apart",
            f"{alike} of {len(runs)}",
        )
        if alike < len(runs):
            report.notes.append(f"WRONG: {policy}, {label}: ranks ended with different weights")
        if whole := account_of(runs):
            share = whole.abandoned_bytes / whole.sent_bytes
            report.notes.append(
                f"{policy}, {label}: abandoned {share:.2%} of {whole.sent_bytes / 1e6:.0f} MB"
            )

    def ratio(over: tuple[str, str], under: tuple[str, str]) -> Figure:
        return ratios(map(median_s, found[over]), map(median_s, found[under]))

    for backend in BACKENDS:
        gain = ratio(("FIFO", backend.label), ("policy", backend.label))
        if backend == GLOO:  # has no critical packets; the policy holds off the load for it too
            report.notes.append(f"p50, FIFO / policy, Gloo: {gain.show(2)}")
        else:
            report.at_least(1.0, f"p50, FIFO / policy, {backend.label}", gain)
    for backend in (DLCP, BOUNDED):
        gain = ratio(("policy", GLOO.label), ("policy", backend.label))
        report.notes.append(f"p50 with the policy, Gloo / {backend.label}: {gain.show(2)}")
    with_policy = [one for (policy, _), some in dropped.items() if policy == "policy" for one in some]
    # The worst of all worlds: none may hide behind the others.
    worst = max(one.critical / max(1, one.critical_offered) for one in with_policy)
    report.at_most(0.001, "critical packets dropped with the policy, worst world", Figure.of([worst]))
    return report


@contextmanager
def _load(bed: SwitchedLab) -> Iterator[None]:
    """The senders that listen to nobody, for as long as it lasts."""
    words = [sys.executable, "-m", "dlcp.lab.traffic", "send"]
    how = ["--rate", f"{LOAD_SHARE * RATE_BPS / 1e6:g}M", "--seconds", 3600, "--stream", LOAD]
    senders = [bed.start(source, [*words, bed.addresses[target], *how]) for source, target in LOADS]
    try:
        yield
    finally:
        for sender in senders:
            sender.kill()
            sender.communicate()


def _between(before: Counts, after: Counts) -> Dropped:
    def total(counts: Counts) -> tuple[int, int, int]:
        ports = [port for ports in counts.values() for port in ports.values()]
        critical = sum(port.critical_dropped or 0 for port in ports)
        kept = sum(port.critical_kept or 0 for port in ports)
        return critical, sum(c.dropped for p in ports for c in p.classes), critical + kept

    return Dropped(*(now - then for now, then in zip(total(after), total(before), strict=True)))
