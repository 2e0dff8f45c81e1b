"""All-reduces of 25 MB, a bucket of DDP, by rate and loss: Gloo, dlcp exact and dlcp in 4 bits. README's table.

One rank on each of two hosts. Packets are lost on arrival, at both hosts and one by one, so nothing merges them, and at
10 Gbit/s two cores are what limits. Without loss they are also merged on arrival, as cards' drivers do. On loopback
nothing is lost.
"""

from __future__ import annotations

from bench.collectives.compare import MIB, Comparison, Sample, alternate
from bench.collectives.world import DLCP, GLOO, Backend, Place, Ranks
from bench.report import Report, spread
from dlcp.lab import Lab, Loss, tcp_fill

SUMMARY = "25 MB at 1 and 10 Gbit/s with 0, 0.1 and 1 % loss, and loopback: Gloo, dlcp exact, dlcp in 4 bits"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
BUCKET_BYTES = 25 * MIB
WORLD = 2
RATES_BPS = {"1 Gbit/s": 10**9, "10 Gbit/s": 10**10}
LOSS_RATIOS = 0.0, 0.001, 0.01
LOOPBACK = "loopback"
BACKENDS = GLOO, DLCP, Backend("dlcp, 4 bits", "dlcp", {"DLCP_SHM": "0"}, "int4")


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 1.0) if quick else (5, 3.0)
    found = Comparison()
    names = []

    def measure(name: str, place: Place) -> None:
        names.append(name)
        alternate(found, ranks, {name: place}, BACKENDS, [BUCKET_BYTES], repeats=repeats, seconds=seconds)

    fills = {}
    with Ranks() as ranks:
        for rate, rate_bps in RATES_BPS.items():
            with Lab(rate_bps=rate_bps) as lab:
                fills[rate] = tcp_fill.measure(lab)
                for ratio in LOSS_RATIOS:
                    lab.set_loss(Loss(ratio))
                    measure(f"{rate}, {100 * ratio:g} % loss", Place.of_lab(lab, WORLD))
            with Lab(rate_bps=rate_bps, merge=True) as lab:
                measure(f"{rate}, no loss, merged", Place.of_lab(lab, WORLD))
        measure(LOOPBACK, Place.loopback(WORLD))
    report = found.report(
        "networks",
        {"repeats": repeats, "seconds each": seconds},
        "all-reduce of f32, slowest rank: median (lowest–highest); wire: bytes sent per byte of the tensor",
        own_wire=False,
    )
    report.fills |= fills
    table = report.table("median ms, and 99th percentile", ["", *(backend.label for backend in BACKENDS)])

    def cell(samples: list[Sample]) -> str:
        p50, p99 = (spread((1e3 * sample.time_s(percent) for sample in samples), 1) for percent in (50, 99))
        return f"{p50}, {p99}"

    for name in names:
        table.add(name, *(cell(found.samples(backend, name, BUCKET_BYTES)) for backend in BACKENDS))
    return report
