"""All-reduces that a software switch adds up, beside the ring through the same switch.

Four ranks on one switch; each host's link carries a tensor once in each direction, and in a ring 2 (n - 1) / n times.
So the switch's time can be 1 / 1.5 of the ring's where both fill the line, less where the ring does not. Nothing can be
faster with 32 bits per value: `least` is what packets of 352 values with their headers take of the line.

On few cores the processors are the limit at high rates, since switch and ranks share them: the same at lower rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.collectives.compare import KIB, MIB, Comparison, size_words
from bench.collectives.timing import Timing, time_all_reduce
from bench.collectives.world import DLCP, Backend, Place, Ranks
from bench.report import Figure, Report, in_turn
from dlcp.lab.fabric import Fabric
from dlcp.lab.namespaces import INTERFACE
from dlcp.lab.network import host_mac
from dlcp.lab.switched_lab import SwitchedLab

SUMMARY = "64 MB among 4 ranks through a software switch that adds, and by the ring through it"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
RANKS = 4
RATES_BPS = (200_000_000, 1_000_000_000)
SIZES = [1 * MIB, 64 * MIB]
LARGE = SIZES[-1]
AT_MOST = 0.6
LANES, SLOTS, JOB, PORT = 352, 512, 7, 53701
HUB = "10.78.0.254"
_FRAME_BYTES = (
    14 + 20 + 8 + 36 + 4 * LANES + 24
)  # with preamble, checksum and gap, which the switch's rates count

SWITCH = Backend(
    "dlcp, switch",
    "dlcp",
    {
        "DLCP_SHM": "0",
        "DLCP_AGGREGATION": f"switch://{HUB}:{PORT}?job={JOB}&slots={SLOTS}&lanes={LANES}&min_bytes={64 * KIB}",
    },
)


def jobs(fabric: Fabric) -> str:
    """The switch's file of jobs: a worker per host, and a hub that is the switch itself."""
    lines = ["[[job]]", f"job = {JOB}", f"slots = {SLOTS}", f"lanes = {LANES}"]
    lines += [f'hub = {{mac = "02:78:03:00:00:00", ip = "{HUB}", udp_port = {PORT}}}']
    for host in range(fabric.hosts):
        lines += ["[[job.worker]]", f'port = "h{host}"', f'mac = "{host_mac(fabric, host)}"']
        lines += [f'ip = "{fabric.address(host)}"', f"udp_port = {PORT}"]
    return "\n".join(lines) + "\n"


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
    repeats, seconds = (1, 2.0) if quick else (3, 4.0)
    report = Report("all_reduce_switch", {"ranks": RANKS, "repeats": repeats, "seconds each": seconds})
    for rate_bps in RATES_BPS:
        _run_at(rate_bps, repeats, seconds, report)
    return report


def _run_at(rate_bps: int, repeats: int, seconds: float, report: Report) -> None:
    words = f"{rate_bps // 10**6} Mbit/s"
    fabric = Fabric(leaves=1, hosts_per_leaf=RANKS, host_rate_bps=rate_bps)
    found = Comparison()
    counts: list[dict[str, Any]] = []
    with Ranks() as ranks, SwitchedLab(fabric) as bed:
        place = Place(tuple(bed.namespace(host) for host in range(RANKS)), bed.addresses[0], INTERFACE)

        with bed.switches.control("l0") as control:  # type: ignore[attr-defined]
            control.set_jobs(jobs(fabric))

        def measure(backend: Backend) -> list[list[Timing]]:
            told = ranks.run(time_and_count, place, backend, SIZES, seconds, INTERFACE)
            if backend is SWITCH:
                counts.append(told[0][1])
            return [timings for timings, _ in told]

        for name, worlds in in_turn(repeats, {b.label: b for b in (DLCP, SWITCH)}, measure).items():
            for timings in worlds:
                found.add(DLCP if name == DLCP.label else SWITCH, words, timings)
        with bed.switches.control("l0") as control:  # type: ignore[attr-defined]
            outcomes = control.status()["aggregation"][0]["outcomes"]
    part = found.report("", {}, f"{words}: all-reduce of f32, slowest rank: median (lowest–highest)")
    report.tables += part.tables
    report.notes += part.notes
    least = LARGE / (4 * LANES) * _FRAME_BYTES * 8 / rate_bps
    ratio = found.ratio(SWITCH, DLCP, words, LARGE, lambda sample: sample.time_s(50))
    took = found.figure(SWITCH, words, LARGE, lambda sample: sample.time_s(50) / least)
    report.at_most(AT_MOST, f"{words}, {size_words(LARGE)}: time by the switch / by the ring", ratio)
    report.notes.append(
        f"{words}: {size_words(LARGE)} by the switch take {took.show(2)} of the line's least time"
    )
    report.notes.append(f"{words}: {_told(counts)}; the switch counted {outcomes}")


def _told(counts: Sequence[dict[str, Any]]) -> str:
    by_switch = sum(each["by_switch"] for each in counts)
    by_ring = [each["by_ring"] for each in counts if each["by_ring"]]
    packets = {name: sum(each["packets"][name] for each in counts) for name in counts[0]["packets"]}
    share = Figure.of([packets["repeated_packets"] / max(1, packets["sent_packets"])])
    return (
        f"{by_switch} collectives by the switch, {by_ring or 'none'} by the ring, {share.show(4)} sent again"
    )
