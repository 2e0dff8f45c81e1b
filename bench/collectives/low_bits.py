"""All-reduces in few bits: 64 MB of f32 on loopback, and over links of a rate; what coding costs a core.

Four ranks: on loopback all on this host; two on each of two hosts with 1 Gbit/s between them; and each on a host of its
own behind 250 Mbit/s, which is about what two cores can forward for four hosts without being the limit. Beside
them stand Gloo, and dlcp's exact all-reduce. Coding is timed alone, on one thread: processor time for a gigabyte,
coded and decoded, beside a bare pass that reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.collectives.compare import MIB, Comparison, Sample, alternate
from bench.collectives.world import DLCP, GLOO, Backend, Place, Ranks
from bench.report import Figure, Report, spread
from dlcp import lab
from dlcp.lab import tcp_fill
from dlcp.lab.tcp_fill import TcpFill

SUMMARY = (
    "64 MB in 16, 8 and 4 bits on loopback and over links, 4 ranks: Gloo and exact beside; cost of coding"
)
NEEDS_LAB = False
NEEDS_PROGRAMS = False
WORLD, LARGE = 4, 64 * MIB
LOOPBACK = "loopback, 4 ranks"
# Hosts, and the rate of a link.
LINKS = {"2 hosts, 1 Gbit/s": (2, 10**9), "4 hosts, 250 Mbit/s": (4, 250 * 10**6)}
INT4, *OTHERS = (
    Backend(f"dlcp, {precision}", "dlcp", {"DLCP_SHM": "0"}, precision)
    for precision in ("int4", "int8", "bf16")
)
BACKENDS = (GLOO, DLCP, *OTHERS, INT4)
OVER_GLOO, OVER_EXACT, OVER_EXACT_LINKS = 3.0, 2.0, 5.0
CORE_S_PER_GB = 0.25


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 1.0) if quick else (5, 2.0)
    found = Comparison()
    fills: dict[str, TcpFill] = {}
    with Ranks() as ranks:
        here = {LOOPBACK: Place.loopback(WORLD)}
        alternate(found, ranks, here, BACKENDS, [LARGE], repeats=repeats, seconds=seconds)
        if lab.missing() is None:
            for words, (hosts, rate_bps) in LINKS.items():
                with lab.Lab(hosts=hosts, rate_bps=rate_bps) as network:
                    fills[words] = tcp_fill.measure(network)
                    there = {words: Place.of_lab(network, WORLD)}
                    alternate(found, ranks, there, BACKENDS, [LARGE], repeats=repeats, seconds=2 * seconds)
    report = found.report(
        "low_bits",
        {"repeats": repeats, "seconds each": seconds},
        "all-reduce of 64 MB of f32, slowest rank: median (lowest–highest); wire: bytes sent per byte of the tensor",
        own_wire=False,
    )

    report.fills |= fills

    def bandwidth(sample: Sample) -> float:
        return sample.bandwidth_bps

    report.at_least(
        OVER_GLOO, f"{LOOPBACK}: bandwidth, int4 / Gloo", found.ratio(INT4, GLOO, LOOPBACK, LARGE, bandwidth)
    )
    report.at_least(
        OVER_EXACT,
        f"{LOOPBACK}: bandwidth, int4 / exact",
        found.ratio(INT4, DLCP, LOOPBACK, LARGE, bandwidth),
    )
    for words in LINKS:
        if (missing := lab.missing()) is not None:
            report.notes.append(f"{words}: not run, {missing}")
            continue
        links = found.ratio(INT4, DLCP, words, LARGE, bandwidth)
        report.at_least(OVER_EXACT_LINKS, f"{words}: bandwidth, int4 / exact", links)
    _add_coding(report, 3 if quick else 9)
    return report


def _add_coding(report: Report, turns: int) -> None:
    """What coding takes of a core, turn by turn beside a bare pass."""
    import numpy as np
    import torch

    from dlcp import _native
    from dlcp.transport.coded import CODECS

    torch.set_num_threads(1)
    count = LARGE // 4
    values, result = torch.randn(count), torch.zeros(count)
    before, after = torch.zeros(count), torch.zeros(count)
    runs = np.array([[0, count, 0]], np.int64)
    coded = torch.zeros(count // 64 * 128, dtype=torch.uint8)
    table = report.table(
        "one core, processor seconds per GB of f32: median (lowest–highest)",
        ["", "variant", "code", "code, keep the residual", "decode", "code + decode", "bare read pass"],
    )
    for name, kind in CODECS.items():
        for variant in _native.reduce_variants():

            def encode(*residual: int, kind: _native.CodecTraits = kind, variant: str = variant) -> None:
                _native.encode_runs(
                    kind.codec, values.data_ptr(), runs, coded.data_ptr(), *residual, variant=variant
                )

            def decode(kind: _native.CodecTraits = kind, variant: str = variant) -> None:
                _native.decode_runs(kind.codec, coded.data_ptr(), runs, result.data_ptr(), variant=variant)

            works: list[Callable[[], object]] = [
                encode,
                lambda encode=encode: encode(before.data_ptr(), after.data_ptr()),  # type: ignore[misc]
                decode,
                values.sum,
            ]
            seconds: list[list[float]] = [[] for _ in works]
            for _ in range(turns):
                for work, taken in zip(works, seconds, strict=True):
                    taken.append(_core_s_per_gb(work))
            both = [one + other for one, other in zip(seconds[0], seconds[2], strict=True)]
            cells = [*seconds[:3], both, seconds[3]]
            table.add(name, variant, *(spread(cell, 3) for cell in cells))
            if name == "int4":
                report.at_most(
                    CORE_S_PER_GB, f"int4, {variant}: code + decode, core seconds per GB", Figure.of(both)
                )


def _core_s_per_gb(work: Callable[[], object]) -> float:
    start_s = time.thread_time()
    work()
    return (time.thread_time() - start_s) / (LARGE / 1e9)
