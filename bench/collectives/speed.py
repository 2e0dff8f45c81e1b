"""What the backends make of processors alone: all-reduces without a limit of the network, large and small.

Judged against Gloo: algorithm bandwidth and processor time of 64 MB, the median time of 4 KB; on one host against Open
MPI: the median time of each size. What the same bytes cost the kernel alone stands beside them.
"""

from __future__ import annotations

from bench.collectives import kernel_floor, mpi
from bench.collectives.compare import KIB, MIB, Comparison, alternate
from bench.collectives.world import DLCP, DLCP_UNAUTHENTICATED, GLOO, Place, Ranks
from bench.report import Report

LARGE, SMALL = 64 * MIB, 4 * KIB
# 64 MB, by place: bandwidth over Gloo's, at least; processor time over Gloo's, at most.
BARS = {
    "loopback, 2 ranks": (2.2, 0.7),
    "loopback, 4 ranks": (1.6, 0.7),
    "link, 2 ranks": (1.0, 1.2),
    "link, 4 ranks": (1.0, 1.2),
    "merging link, 2 ranks": (1.4, 0.9),
    "merging link, 4 ranks": (1.3, 0.9),
    "containers, 2 ranks": (1.1, 1.0),
    "containers, 4 ranks": (1.1, 1.0),
}
# 4 KB: Gloo's median time over dlcp's, by world size.
QUICKER = {2: 1.0, 4: 2.0}
BACKENDS = (GLOO, DLCP, DLCP_UNAUTHENTICATED, *kernel_floor.BACKENDS)


def measure(name: str, ranks: Ranks, places: dict[str, Place], *, quick: bool) -> Report:
    """The report of one network without limits; `places` by their words in it."""
    repeats, seconds = (1, 1.0) if quick else (5, 2.0)
    is_one_host = all(place.interface == "lo" for place in places.values())
    why_not = mpi.missing() if is_one_host else "not on one host"
    backends = BACKENDS if why_not else (*BACKENDS, mpi.TCP)
    sizes = [*mpi.SIZES, LARGE] if is_one_host else [SMALL, LARGE]
    found = alternate(Comparison(), ranks, places, backends, sizes, repeats=repeats, seconds=seconds)
    title = (
        "all-reduce of f32, slowest rank: median (lowest–highest); wire: bytes sent per byte of the tensor"
    )
    report = found.report(
        name,
        {"repeats": repeats, "seconds each": seconds},
        f"{title}; {why_not}" if is_one_host and why_not else title,
        own_wire=not is_one_host,
    )
    for words, place in places.items():
        found.judge_speed(report, DLCP, words, LARGE, *BARS[words])
        quicker = found.ratio(GLOO, DLCP, words, SMALL, lambda sample: sample.time_s(50))
        report.at_least(QUICKER[place.world], f"{words}, 4 KB: p50, Gloo / dlcp", quicker)
        if place.world == 2:
            found.note_floor(report, DLCP, words, LARGE)
        if mpi.TCP in backends:
            found.judge_mpi(report, DLCP, mpi.TCP, words, sizes, mpi.TCP_ALLOWED[place.world])
    return report
