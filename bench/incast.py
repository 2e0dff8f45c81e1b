"""Whether two senders, each as fast as the link, fill one receiver's port and share it fairly."""

from __future__ import annotations

from bench.lab import Lab
from bench.peers import OVERHEAD_BYTES, Exchange, exchange
from bench.report import Bar, Figure, Report, Table

SUMMARY = "two senders into one 1 Gbit/s port: total and fairness"
NEEDS_LAB = True
RATE_BPS = 10**9
MESSAGE_BYTES = 1 << 20
TOTAL_AT_LEAST, UNFAIR_AT_MOST = 0.9, 0.1


def shares_bps(result: Exchange) -> list[float]:
    """What each sender got through, between the last one's first message and the first one's last."""
    arrivals = [sender["arrived_s"] for sender in result.receiver["senders"]]
    start, end = max(a[0] for a in arrivals), min(a[-1] for a in arrivals)
    return [8 * MESSAGE_BYTES * sum(start < t <= end for t in a) / (end - start) for a in arrivals]


def unfairness(shares: list[float]) -> float:
    """How far the share furthest from the mean is from it, as a part of the mean."""
    mean = sum(shares) / len(shares)
    return max(abs(share - mean) for share in shares) / mean


def run(*, quick: bool) -> Report:
    repeats, seconds = (2, 3) if quick else (5, 6)
    # What the port can carry of payload, were every datagram full.
    capacity_bps = RATE_BPS * (1472 - 64) / (1472 - 64 + OVERHEAD_BYTES)
    table = Table(
        "Mbit/s of payload at the receiver: median (lowest–highest)",
        ["", "one sender", "two senders", "of the port", "off the mean", "queue drops"],
    )
    bars = []
    with Lab(hosts=3, rate_bps=RATE_BPS) as lab:
        found: dict[str, list[tuple[float, list[float], int]]] = {"tcp_peer": [], "lab_peer": []}
        for _ in range(repeats):
            for program in found:
                options = {"bytes": MESSAGE_BYTES, "outstanding": 4, "seconds": seconds}
                alone = exchange(lab, program, senders=[1], **options)
                drops = lab.queue_drops()
                both = exchange(lab, program, senders=[1, 2], **options)
                found[program].append((alone.goodput_bps, shares_bps(both), lab.queue_drops() - drops))
    for program, name in (("tcp_peer", "TCP cubic"), ("lab_peer", "dlcp")):
        runs = found[program]
        total = Figure.of([sum(shares) / capacity_bps for _, shares, _ in runs])
        unfair = Figure.of([unfairness(shares) for _, shares, _ in runs])
        table.add(
            name,
            Figure.of([alone / 1e6 for alone, _, _ in runs]).show(0),
            Figure.of([sum(shares) / 1e6 for _, shares, _ in runs]).show(0),
            total.show(),
            unfair.show(),
            Figure.of([drops for _, _, drops in runs]).show(0),
        )
        if program == "lab_peer":
            bars = [
                Bar("both together, of what the port carries", TOTAL_AT_LEAST, None, total),
                Bar("furthest from an equal share", None, UNFAIR_AT_MOST, unfair),
            ]
    return Report(
        "incast", {"repeats": repeats, "rate": "1 Gbit/s", "message": "1 MiB, 4 under way"}, [table], bars
    )
