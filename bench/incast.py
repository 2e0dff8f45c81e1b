"""Whether two senders, each as fast as the link, fill one receiver's port and share it fairly.

At the lower rate as well: two cores may be too few for three hosts and a switch at 1 Gbit/s, and then the higher
rate measures the scheduler.
"""

from __future__ import annotations

from bench.peers import OVERHEAD_BYTES, Exchange, exchange
from bench.report import Figure, Report, in_turn, spread
from dlcp.lab import Lab, tcp_fill

SUMMARY = "two senders into one port, 1 Gbit/s and 300 Mbit/s: total and fairness"
NEEDS_LAB = True
RATES_BPS = (10**9, 3 * 10**8)
PROGRAMS = {"TCP cubic": "tcp_peer", "dlcp": "lab_peer"}
MESSAGE_BYTES = 1 << 20
TOTAL_AT_LEAST, UNFAIR_AT_MOST = 0.9, 0.1


def capacity_bps(rate_bps: int) -> float:
    """What a port carries of payload, were every datagram full."""
    return rate_bps * (1472 - 64) / (1472 - 64 + OVERHEAD_BYTES)


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
    """Both programs in turn, alone and together, at each rate."""
    repeats, seconds = (2, 3) if quick else (5, 6)
    report = Report("incast", {"repeats": repeats, "message": "1 MiB, 4 under way"})
    table = report.table(
        "Mbit/s of payload at the receiver: median (lowest–highest)",
        ["", "one sender", "two senders", "of the port", "off the mean", "queue drops", "idle"],
    )
    for rate_bps in RATES_BPS:
        rate = f"{rate_bps // 10**6} Mbit/s"
        with Lab(hosts=3, rate_bps=rate_bps) as lab:
            report.fills[rate] = tcp_fill.measure(lab)

            def send(program: str, lab: Lab = lab) -> tuple[Exchange, Exchange, int]:
                options = {"bytes": MESSAGE_BYTES, "outstanding": 4, "seconds": seconds}
                alone = exchange(lab, program, senders=[1], **options)
                drops = lab.queue_drops()
                both = exchange(lab, program, senders=[1, 2], **options)
                return alone, both, lab.queue_drops() - drops

            found = in_turn(repeats, PROGRAMS, send)
        for name, runs in found.items():
            shares = [shares_bps(both) for _, both, _ in runs]
            total = Figure.of(sum(share) / capacity_bps(rate_bps) for share in shares)
            unfair = Figure.of(map(unfairness, shares))
            table.add(
                f"{name}, {rate}",
                spread((alone.goodput_bps / 1e6 for alone, _, _ in runs), 0),
                spread((sum(share) / 1e6 for share in shares), 0),
                total,
                unfair,
                spread((drops for _, _, drops in runs), 0),
                spread((both.idle_ratio for _, both, _ in runs), 2),
            )
            if name == "dlcp":
                report.at_least(TOTAL_AT_LEAST, f"{rate}: both together, of what the port carries", total)
                report.at_most(UNFAIR_AT_MOST, f"{rate}: furthest from an equal share", unfair)
    return report
