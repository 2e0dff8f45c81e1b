"""All-reduces across a link of 1 Gbit/s that loses 1 % of packets on arrival, at both ends; Gloo over TCP cubic.

A tail is judged by the samples of all repetitions together: single ones have too few for a percentile.
"""

from __future__ import annotations

from bench.collectives.compare import KIB, MIB, Comparison, alternate, size_words
from bench.collectives.world import DLCP, GLOO, Place, Ranks
from bench.report import Figure, Report, percentile
from dlcp.lab import Lab, Loss, tcp_fill

SUMMARY = (
    "256 KB to 64 MB at 1 Gbit/s and 1 % loss, worlds of 2 and 4: tails, bandwidth; Gloo on cubic beside"
)
NEEDS_LAB = True
NEEDS_PROGRAMS = False
RATE_BPS = 10**9
LOSS_RATIO = 0.01
SMALL, LARGE = [256 * KIB, MIB, 4 * MIB], 64 * MIB
TAIL_BETTER, TAIL_OF_MEDIAN, FASTER = 10.0, 2.0, 1.5


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 3.0) if quick else (3, 8.0)
    with Ranks() as ranks, Lab(rate_bps=RATE_BPS) as lab:
        fill = tcp_fill.measure(lab)
        lab.set_loss(Loss(LOSS_RATIO))
        places = {f"1 % loss, {world} ranks": Place.of_lab(lab, world) for world in (2, 4)}
        found = Comparison()
        alternate(found, ranks, places, (GLOO, DLCP), [*SMALL, LARGE], repeats=repeats, seconds=seconds)
        seen = lab.arrivals(0).loss_ratio
    report = found.report(
        "all_reduce_loss",
        {"rate": "1 Gbit/s", "loss": f"{seen:.4f}", "repeats": repeats, "seconds each": seconds},
        "all-reduce of f32, slowest rank: median (lowest–highest); wire: bytes sent per byte of the tensor",
    )
    report.fills[""] = fill
    table = report.table(
        "all repetitions together", ["", "size", "samples", "p50 ms", "p90 ms", "p99 ms", "p99/p50"]
    )

    for words in places:
        for nbytes in SMALL:
            tails = {}
            for backend in (GLOO, DLCP):
                samples = found.samples(backend, words, nbytes)
                times_s = [time_s for sample in samples for time_s in sample.times_s]
                p50, p90, p99 = (percentile(times_s, percent) for percent in (50, 90, 99))
                tails[backend] = p50, p99
                table.add(
                    f"{words}, {backend.label}",
                    size_words(nbytes),
                    str(len(times_s)),
                    *(f"{1e3 * time_s:.2f}" for time_s in (p50, p90, p99)),
                    f"{p99 / p50:.2f}",
                )
            (_, theirs), (p50, p99) = tails[GLOO], tails[DLCP]
            what = f"{words}, {size_words(nbytes)}"
            report.at_least(TAIL_BETTER, f"{what}: p99, Gloo / dlcp", Figure.of([theirs / p99]))
            report.at_most(TAIL_OF_MEDIAN, f"{what}: p99 / p50 of dlcp", Figure.of([p99 / p50]))
        found.judge_speed(report, DLCP, words, LARGE, FASTER)
    return report
