"""What a user gets without options, beside the best that an option could have given: all-reduces of 4 to 64 ranks.

Every algorithm is forced in turn, at every place and size: on this machine (DLCP_ALGORITHM), where Gloo stands beside,
and on simulated networks, with the executor and the engine that ship. Judged: the default's time over that of the best
forced one, and Gloo's over the default's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.collectives.compare import KIB, MIB, Comparison, Sample, alternate, size_words
from bench.collectives.world import GLOO, Backend, Place, Ranks
from bench.exchanges import Network, simulate
from bench.report import Figure, Report, progress
from dlcp.lab import Lab, tcp_fill
from dlcp.transport.schedule import PLACED, algorithms
from dlcp.transport.schedule.choose import choose
from dlcp.transport.schedule.estimate import time_ns

SUMMARY = "4 KB to 64 MB with no option, beside every algorithm by force, and Gloo; simulated 16 and 64 ranks"
NEEDS_LAB = True
NEEDS_PROGRAMS = False

SIZES = (4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB, 64 * MIB)
SIZES_QUICK = SIZES[:-1]
SLOWER_AT_MOST = 1.05
_HOPELESS = 4


class Tried(NamedTuple):
    """A place on this machine."""

    lab: dict[str, Any] | None
    """None: loopback."""
    shares_memory: bool = True
    """Ranks of a host do."""
    ranks: int = 4
    nbytes_max: int = 64 * MIB


PLACES = {
    "loopback without shared memory": Tried(None, shares_memory=False),
    "shared memory": Tried(None),
    "100 Mbit/s, 4 hosts": Tried({"hosts": 4, "rate_bps": 10**8}, nbytes_max=4 * MIB),
    "1 Gbit/s, 2 hosts of 2": Tried({"hosts": 2, "rate_bps": 10**9}),
    "1 Gbit/s, 2 hosts of 4": Tried({"hosts": 2, "rate_bps": 10**9}, ranks=8),
    "1 Gbit/s, 4 hosts": Tried({"hosts": 4, "rate_bps": 10**9}),
    "merging links, 2 hosts of 2": Tried({"hosts": 2, "merge": True}),
    "merging links, 4 hosts": Tried({"hosts": 4, "merge": True}),
}

# Simulated: machines, ranks on each, bit/s of a rank and of a machine's link; racks are told to nobody.
NETWORKS: dict[str, tuple[Network, int]] = {
    **{
        f"{ranks} hosts, {rate} Gb/s": (Network(ranks, rate * 1e9), 0)
        for ranks in (16, 64)
        for rate in (10, 100, 400)
    },
    **{
        f"{ranks} hosts, 10 Gb/s, round trip of 2 ms": (Network(ranks, 10e9, delay_s=500e-6), 0)
        for ranks in (4, 16)
    },
    "2 hosts of 2, 100 Gb/s": (Network(4, 200e9, 2, 100e9), 2),
    "2 hosts of 8, 25 Gb/s": (Network(16, 200e9, 8, 25e9), 8),
    "4 hosts of 4, 10 Gb/s": (Network(16, 200e9, 4, 10e9), 4),
    "8 hosts of 8, 25 Gb/s": (Network(64, 200e9, 8, 25e9), 8),
    "8 hosts of 8, 100 Gb/s": (Network(64, 200e9, 8, 100e9), 8),
    "4 racks of 16 hosts, 100 Gb/s, 4:1": (Network(64, 100e9, 16, 400e9), 0),
}
SIMULATED_SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 64 * MIB)


def _default(shares_memory: bool) -> Backend:
    return Backend("dlcp", "dlcp", {} if shares_memory else {"DLCP_SHM": "0"})


def _forced(by_hosts: bool, shares_memory: bool) -> tuple[Backend, ...]:
    default = _default(shares_memory).environment
    return tuple(
        Backend(name, "dlcp", {**default, "DLCP_ALGORITHM": f"all_reduce={name}"})
        for name in algorithms("all_reduce")
        if by_hosts or name not in PLACED
    )


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 0.4) if quick else (5, 1.0)
    report = Report("defaults", {"repeats": repeats, "seconds each": seconds})
    found = Comparison()
    with Ranks() as ranks:
        for words in PLACES:
            _try(report, found, ranks, words, SIZES_QUICK if quick else SIZES, repeats, seconds)
    for words, (network, group_size) in NETWORKS.items():
        if not quick or network.workers <= 16:
            _simulate(report, words, network, group_size, SIMULATED_SIZES[: 5 if quick else None])
    report.notes += found.notes()
    return report


def _try(
    report: Report,
    found: Comparison,
    ranks: Ranks,
    words: str,
    sizes: Sequence[int],
    repeats: int,
    seconds: float,
) -> None:
    """Rows of a place."""
    tried = PLACES[words]
    sizes = [nbytes for nbytes in sizes if nbytes <= tried.nbytes_max]
    with contextlib.ExitStack() as stack:
        lab = None if tried.lab is None else stack.enter_context(Lab(**tried.lab))
        place = Place.loopback(tried.ranks) if lab is None else Place.of_lab(lab, tried.ranks)
        if lab is not None and tried.lab is not None and "rate_bps" in tried.lab:
            report.fills[words] = tcp_fill.measure(lab)
        default = _default(tried.shares_memory)
        forced = _forced(lab is not None and lab.hosts < tried.ranks, tried.shares_memory)
        backends = (GLOO, default, *forced)
        alternate(found, ranks, {words: place}, backends, sizes, repeats=repeats, seconds=seconds)
        _judge(report, found, words, default, forced, sizes)


def _simulate(report: Report, words: str, network: Network, group_size: int, sizes: tuple[int, ...]) -> None:
    """Rows of one network, without algorithms of which the estimate is four times the least one."""
    progress(words)
    names = [name for name in algorithms("all_reduce") if group_size or name not in PLACED]
    table = report.table(f"simulated {words}: us", ["", "dlcp", *names, "taken", "dlcp / best"])
    between = network.between(group_size)
    for nbytes in sizes:
        taken = choose("all_reduce", network.workers, nbytes, network=lambda: between)
        estimates = {name: time_ns("all_reduce", name, nbytes, between) for name in names}
        tried = [name for name in names if estimates[name] < _HOPELESS * min(estimates.values())]
        took_s = {name: simulate(network, name, 0, nbytes)[0] for name in {*tried, taken}}
        best = min(took_s, key=lambda name: took_s[name])
        slower = took_s[taken] / took_s[best]
        shown = (f"{took_s[name] * 1e6:.1f}" if name in took_s else "" for name in names)
        table.add(size_words(nbytes), f"{took_s[taken] * 1e6:.1f}", *shown, taken, f"{slower:.2f}")
        judged = f"simulated {words}, {size_words(nbytes)}: time, dlcp / {best}"
        report.at_most(SLOWER_AT_MOST, judged, Figure.of([slower]))


def _judge(
    report: Report,
    found: Comparison,
    words: str,
    default: Backend,
    forced: tuple[Backend, ...],
    sizes: Sequence[int],
) -> None:
    names = [backend.label for backend in forced]
    table = report.table(f"{words}: ms, median", ["", "Gloo", "dlcp", *names, "dlcp / best"])

    def p50_s(sample: Sample) -> float:
        return sample.time_s(50)

    for nbytes in sizes:
        best = min(forced, key=lambda backend: found.figure(backend, words, nbytes, p50_s).median)
        slower = found.ratio(default, best, words, nbytes, p50_s)
        row = (found.figure(backend, words, nbytes, p50_s).median for backend in (GLOO, default, *forced))
        table.add(size_words(nbytes), *(f"{median_s * 1e3:.3g}" for median_s in row), slower.show(2))
        report.at_most(SLOWER_AT_MOST, f"{words}, {size_words(nbytes)}: time, dlcp / {best.label}", slower)
        report.at_least(
            1.0,
            f"{words}, {size_words(nbytes)}: time, Gloo / dlcp",
            found.ratio(GLOO, default, words, nbytes, p50_s),
        )
