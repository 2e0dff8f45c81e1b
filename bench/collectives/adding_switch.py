"""All-reduces that a software switch adds up, beside the ring through the same switch.

Four ranks on one switch; each host's link carries a tensor once in each direction, and in a ring 2 (n - 1) / n = 1.5
times. So with 32 bits per value the switch can take 1 / 1.5 of the ring's time where both fill the line. It takes less
only where the ring does not fill it, or with fewer bits per value.

On few cores the processors are the limit at high rates, since switch and ranks share them: the same at a lower rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.collectives.compare import KIB, MIB, Comparison, Sample, size_words
from bench.collectives.timing import Timing, time_all_reduce
from bench.collectives.world import DLCP, Backend, Place, Ranks
from bench.report import Report, in_turn
from dlcp.lab import tcp_fill
from dlcp.lab.fabric import Fabric
from dlcp.lab.namespaces import INTERFACE
from dlcp.lab.switch_jobs import add_for, jobs_of, lanes_of, setting_of
from dlcp.lab.switched_lab import SwitchedLab

SUMMARY = "all-reduces of 4 ranks through a software switch that adds, and by the ring through it"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
RANKS = 4
# Rate and size: at the lower rate the line is the limit, at the higher one the processors.
CASES = ((200_000_000, 16 * MIB), (1_000_000_000, 64 * MIB))
AT_MOST = 0.6
STAR = Fabric(leaves=1, spines=0, hosts_per_leaf=RANKS)
LANES = lanes_of(STAR.mtu)
_FRAME_BYTES = (
    14 + 20 + 8 + 36 + 4 * LANES + 24
)  # with preamble, checksum and gap, which the switch's rates count
# Packets leave room for a long header and carry a short one, 32 bytes less.
_RING_PAYLOAD_BYTES, _RING_FRAME_BYTES = 1500 - 28 - 80, 1500 - 32 + 14 + 24


def _switch(label: str, bits: int) -> Backend:
    setting = f"{setting_of(jobs_of(STAR, range(RANKS)))}&min_bytes={64 * KIB}&bits={bits}"
    return Backend(label, "dlcp", {"DLCP_SHM": "0", "DLCP_AGGREGATION": setting})


SWITCH, SWITCH_16 = _switch("dlcp, switch", 32), _switch("dlcp, switch, 16 bits", 16)
BACKENDS = (DLCP, SWITCH, SWITCH_16)


def time_and_count(
    sizes: list[int], seconds: float, interface: str
) -> tuple[list[Timing], dict[str, Any] | None]:
    """Timings, and what the metrics say of the switch. On every rank."""
    import torch.distributed as dist

    timings = time_all_reduce(sizes, seconds, interface)
    group: Any = dist.group.WORLD
    counts: dict[str, Any] | None = group.communicator.job.metrics.snapshot()["aggregation"]
    return timings, counts


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 1.0) if quick else (3, 2.0)
    report = Report("all_reduce_switch", {"ranks": RANKS, "repeats": repeats, "seconds each": seconds})
    for rate_bps, nbytes in CASES:
        _run_at(rate_bps, nbytes, repeats, seconds, report)
    return report


def _run_at(rate_bps: int, nbytes: int, repeats: int, seconds: float, report: Report) -> None:
    words = f"{rate_bps // 10**6} Mbit/s"
    fabric = replace(STAR, host_rate_bps=rate_bps)
    found = Comparison()
    counts: list[dict[str, Any]] = []
    with Ranks() as ranks, SwitchedLab(fabric) as bed:
        place = Place(tuple(bed.namespace(host) for host in range(RANKS)), bed.addresses[0], INTERFACE)
        report.fills[words] = tcp_fill.measure(bed)
        add_for(bed, range(RANKS))

        def measure(backend: Backend) -> list[list[Timing]]:
            told = ranks.run(time_and_count, place, backend, [nbytes], seconds, INTERFACE)
            counts.extend(count for _, count in told[:1] if count is not None)
            return [timings for timings, _ in told]

        for label, worlds in in_turn(repeats, {each.label: each for each in BACKENDS}, measure).items():
            for timings in worlds:
                found.add(next(each for each in BACKENDS if each.label == label), words, timings)
        with bed.switches.control("l0") as control:  # type: ignore[attr-defined]
            outcomes = control.status()["aggregation"][0]["outcomes"]
    part = found.report("", {}, f"{words}: all-reduce of f32, slowest rank: median (lowest–highest)")
    report.tables += part.tables
    report.notes += part.notes
    least = {
        DLCP: 2 * (RANKS - 1) / RANKS * nbytes / _RING_PAYLOAD_BYTES * _RING_FRAME_BYTES * 8 / rate_bps,
        SWITCH: nbytes / (4 * LANES) * _FRAME_BYTES * 8 / rate_bps,
    }
    least[SWITCH_16] = least[SWITCH] / 2

    def time_s(sample: Sample) -> float:
        return sample.time_s(50)

    what = f"{words}, {size_words(nbytes)}"
    report.at_most(
        AT_MOST, f"{what}: time by the switch / by the ring", found.ratio(SWITCH, DLCP, words, nbytes, time_s)
    )
    fewer = found.ratio(SWITCH_16, DLCP, words, nbytes, time_s)
    report.at_most(AT_MOST, f"{what}: the same with 16 bits per value", fewer)
    for backend in BACKENDS:
        took = found.figure(backend, words, nbytes, lambda sample, by=backend: sample.time_s(50) / least[by])
        report.notes.append(f"{what}, {backend.label}: {took.show(2)} of the line's least time")
    at_best = found.figure(SWITCH, words, nbytes, lambda sample: sample.time_s(50) / least[DLCP])
    report.notes.append(f"{what}: time by the switch / of a ring that fills the line: {at_best.show(2)}")
    report.notes.append(f"{words}: {_told(counts)}; the switch counted {outcomes}")


def _told(counts: Sequence[dict[str, Any]]) -> str:
    by_switch = sum(each["by_switch"] for each in counts)
    by_ring = [each["by_ring"] for each in counts if each["by_ring"]]
    packets = {name: sum(each["packets"][name] for each in counts) for name in counts[0]["packets"]}
    share = packets["repeated_packets"] / max(1, packets["sent_packets"])
    return f"{by_switch} collectives by the switch, {by_ring or 'none'} by the ring, {share:.4f} of packets sent again"
