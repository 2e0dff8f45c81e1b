"""An all-reduce and a foreign TCP connection on one slow link: what each gets, Gloo in dlcp's place beside it.

Two hosts with a rank each share a link with one connection of CUBIC or BBR that sends both ways all the time. What
arrived of it, all the time, stands beside what all-reduces carried while they ran, headers left out of both. Gloo's TCP
is CUBIC. The kernel needs tcp_bbr.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.collectives.compare import MIB
from bench.collectives.world import DLCP, GLOO, Backend, Place, Ranks
from bench.neighbour import Neighbour
from bench.report import Figure, Report, in_turn, ratios, slowest, spread
from dlcp.lab import Lab, tcp_fill
from dlcp.lab.tcp_fill import TcpFill

SUMMARY = "2 MB at 50 Mbit/s beside a TCP connection of CUBIC or BBR: time against Gloo's, and who gets what"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
WORLD, NBYTES, RATE_BPS = 2, 2 * MIB, 50 * 10**6
FOREIGN = ("cubic", "bbr")
# A fair share of two, with room for chance.
SHARE_LOW, SHARE_HIGH = 0.4, 0.6
# First all-reduces left out, and the fewest that are counted.
_SETTLE, _COUNTED = 3, 3


@dataclass(frozen=True)
class Shared:
    """What one world beside one connection saw."""

    ranks: list[list[float]]
    """Seconds of each all-reduce, by rank."""
    foreign_bps: float
    """Of the connection's payload, both ways together."""

    @property
    def times_s(self) -> list[float]:
        return slowest(self.ranks)[_SETTLE:]

    @property
    def own_bps(self) -> float:
        """Payload both ways together, while all-reduces ran: a rank of two sends the tensor once."""
        return 2 * 8 * NBYTES / (sum(self.times_s) / len(self.times_s))

    @property
    def share(self) -> float:
        return self.own_bps / (self.own_bps + self.foreign_bps)


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 10.0) if quick else (3, 20.0)
    cases = {(foreign, backend.label): (foreign, backend) for foreign in FOREIGN for backend in (GLOO, DLCP)}
    with TemporaryDirectory() as folder, Ranks() as ranks, Lab(rate_bps=RATE_BPS) as lab:
        place, running = Place.of_lab(lab, WORLD), Path(folder, "running")
        fill = tcp_fill.measure(lab)

        def measure(case: tuple[str, Backend]) -> Shared:
            foreign, backend = case
            beside = Neighbour(lab, 0, 1, 100 * RATE_BPS, running, always=True, congestion=foreign)
            times = ranks.run(repeat, place, backend, seconds, running)
            return Shared(times, beside.moved().rate_bps)

        found = in_turn(repeats, cases, measure)
    settings = {"repeats": repeats, "seconds each": seconds, "rate": f"{RATE_BPS / 1e6:g} Mbit/s"}
    return judge(found, settings, fill)


def judge(found: dict[tuple[str, str], list[Shared]], settings: dict[str, object], fill: TcpFill) -> Report:
    """What was found, by the foreign connection's congestion control and the backend's label."""
    report = Report("all_reduce_shared", settings, fills={"": fill})
    table = report.table(
        "all-reduce of 2 MB of f32, slowest rank: median (lowest–highest)",
        ["", "times", "p50 ms", "longest", "own Mbit/s", "TCP's Mbit/s", "own share"],
    )
    for (foreign, backend), shared in found.items():
        table.add(
            f"beside {foreign}, {backend}",
            str(sum(len(one.times_s) for one in shared)),
            spread((1e3 * statistics.median(one.times_s) for one in shared), 0),
            f"{1e3 * max(max(one.times_s) for one in shared):.0f}",
            spread((one.own_bps / 1e6 for one in shared), 1),
            spread((one.foreign_bps / 1e6 for one in shared), 1),
            spread((one.share for one in shared), 2),
        )
    for foreign in FOREIGN:
        gloo, own = found[foreign, GLOO.label], found[foreign, DLCP.label]
        slower = ratios(
            (statistics.median(one.times_s) for one in own), (statistics.median(one.times_s) for one in gloo)
        )
        report.at_most(1.0, f"beside {foreign}: time, dlcp / Gloo", slower)
        share = Figure.of(one.share for one in own)
        report.at_least(SHARE_LOW, f"beside {foreign}: dlcp's share", share)
        report.at_most(SHARE_HIGH, f"beside {foreign}: dlcp's share", share)
    return report


def repeat(seconds: float, running: Path) -> list[float]:
    """What runs on every rank: seconds of each all-reduce, for so long or somewhat longer beside the connection."""
    import torch
    import torch.distributed as dist

    buffer = torch.empty(NBYTES // 4)
    if dist.get_rank() == 0:
        running.touch()
    times_s = []
    end_s = time.monotonic() + seconds
    on = torch.ones(1)
    while on.item() or len(times_s) < _SETTLE + _COUNTED:
        buffer.fill_(1.0)
        start_s = time.perf_counter()
        dist.all_reduce(buffer)
        times_s.append(time.perf_counter() - start_s)
        on.fill_(float(time.monotonic() < end_s))
        dist.broadcast(on, 0)
    if dist.get_rank() == 0:
        running.unlink()
    return times_s
