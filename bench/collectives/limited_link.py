"""How much of a 1 Gbit/s link an all-reduce fills.

Useful utilisation: what a ring must carry across the link, 2 (n - 1) / n of the tensor, in full packets with all their
headers up to Ethernet's, over what the link carries in the median time. What is sent twice, or across the link without
need, does not count; the interface's own count of bytes is beside it. Queueing disciplines count 14 bytes of Ethernet,
not the preamble, gap and checksum of a real wire, and so does this.
"""

from __future__ import annotations

from bench.collectives import kernel_floor
from bench.collectives.compare import KIB, MIB, Comparison, Sample, alternate, size_words
from bench.collectives.world import DLCP, GLOO, Backend, Place, Ranks
from bench.report import Report
from dlcp.lab import Lab, tcp_fill

SUMMARY = "64 MB at 1 Gbit/s, worlds of 2 and 4: utilisation, CPU; Gloo beside"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
RATE_BPS = 10**9
LARGE, SIZES = 64 * MIB, [4 * KIB, 256 * KIB, 4 * MIB, 64 * MIB]
UTILISATION = {2: 0.96, 4: 0.94}
OVERHEAD_AT_MOST = 0.035
# 64 MB: bandwidth over Gloo's, at least, by ranks; processor time over Gloo's, at most.
FASTER, CPU_AT_MOST = {2: 1.0, 4: 1.4}, 1.2

_IP_BYTES, ETHERNET_BYTES = 1500, 14
_UDP_BYTES = 20 + 8
# 20 of IP, 20 of TCP, 12 of its time stamps.
_TCP_BYTES = 52


def utilisation(
    backend: Backend, world: int, sample: Sample, rate_bps: int, ethernet_bytes: int = ETHERNET_BYTES
) -> float:
    """The share of a link that what must cross it takes, headers counted, in the median time.

    dlcp's packets are as its engine counted them; those of TCP, which nobody counts, are full.
    """
    if backend is GLOO:
        headers = (ethernet_bytes + _TCP_BYTES) / (_IP_BYTES - _TCP_BYTES)
    else:
        lower_bytes = sample.engine("data_packets_sent") * (ethernet_bytes + _UDP_BYTES)
        headers = (sample.engine("header_bytes_sent") + lower_bytes) / sample.engine("data_bytes_sent")
    needed = sample.nbytes * 2 * (world - 1) / world * (1 + headers)
    return 8 * needed / (rate_bps * sample.time_s(50))


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 2.0) if quick else (3, 4.0)
    with Ranks() as ranks, Lab(rate_bps=RATE_BPS) as lab:
        fill = tcp_fill.measure(lab)
        places = {f"1 Gbit/s, {world} ranks": Place.of_lab(lab, world) for world in (2, 4)}
        backends = GLOO, DLCP, *kernel_floor.BACKENDS
        found = alternate(Comparison(), ranks, places, backends, SIZES, repeats=repeats, seconds=seconds)
        drops = lab.queue_drops()
    report = found.report(
        "all_reduce_1g",
        {"rate": "1 Gbit/s", "repeats": repeats, "seconds each": seconds},
        "all-reduce of f32, slowest rank: median (lowest–highest); wire: bytes sent per byte of the tensor",
    )
    report.fills[""] = fill
    table = report.table("share of the link", ["", "size", "useful", "as the interface counts"])
    for words, place in places.items():
        for backend in (GLOO, DLCP):
            for nbytes in SIZES[1:]:

                def useful(sample: Sample, backend: Backend = backend, world: int = place.world) -> float:
                    return utilisation(backend, world, sample, RATE_BPS)

                share = found.figure(backend, words, nbytes, useful)
                counted = found.figure(backend, words, nbytes, _counted)
                table.add(f"{words}, {backend.label}", size_words(nbytes), share, counted)
                if backend is DLCP and nbytes == LARGE:
                    what = f"{words}, 64 MB: useful utilisation"
                    report.at_least(UTILISATION[place.world], what, share)
        found.judge_speed(report, DLCP, words, LARGE, FASTER[place.world], CPU_AT_MOST)
        if place.world == 2:
            found.note_floor(report, DLCP, words, LARGE)
        overhead = found.figure(DLCP, words, LARGE, lambda sample: sample.header_share)
        report.at_most(OVERHEAD_AT_MOST, f"{words}, 64 MB: headers and tags, of its datagrams", overhead)
    report.notes.append(f"dropped at full queues of the link, by both: {drops} packets")
    return report


def _counted(sample: Sample) -> float:
    return sample.wire_ratio * sample.bandwidth_bps / RATE_BPS
