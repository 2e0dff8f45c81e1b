"""All-reduces of two hosts with four ranks each over 1 Gbit/s: by hosts, round a ring, and Gloo's.

Ranks are numbered host by host, as launchers do, and in turn. Judged: what a host's link carries beside the formula (by
the interface's counter), and the time beside that of the flat ring.
"""

from __future__ import annotations

from bench.collectives.compare import MIB, Comparison, alternate
from bench.collectives.world import GLOO, Backend, Place, Ranks
from bench.report import Report
from dlcp.lab import Lab
from dlcp.lab.namespaces import INTERFACE

SUMMARY = "2 hosts with 4 ranks each over 1 Gbit/s, 64 MB: by hosts beside a flat ring and Gloo"
NEEDS_LAB = True
NEEDS_PROGRAMS = False

HOSTS, RANKS_PER_HOST = 2, 4
RATE_BPS = 1_000_000_000
SIZE = 64 * MIB
CHOSEN = Backend("dlcp", "dlcp")
RING = Backend("dlcp, flat ring", "dlcp", {"DLCP_ALGORITHM": "ring"})
# Ethernet, IP, UDP, dlcp and tag: 42 + 32 + 16 of 1514 bytes; the rest is long headers and control packets.
WIRE_RATIO = 1.08


def run(*, quick: bool) -> Report:
    world = HOSTS * RANKS_PER_HOST
    repeats, seconds = (1, 3.0) if quick else (5, 5.0)
    with Ranks() as ranks, Lab(hosts=HOSTS, rate_bps=RATE_BPS) as lab:
        by_turns = tuple(lab.namespace(rank % HOSTS) for rank in range(world))
        places = {
            "host by host": Place.of_lab(lab, world),
            "in turn": Place(by_turns, lab.addresses[0], INTERFACE),
        }
        backends = (GLOO, RING, CHOSEN)
        found = alternate(Comparison(), ranks, places, backends, [SIZE], repeats=repeats, seconds=seconds)
    report = found.report(
        "several_hosts",
        {"repeats": repeats, "seconds each": seconds, "rate": "1 Gbit/s"},
        "all-reduce of f32, slowest rank: median (lowest–highest); wire: sent by a host per byte of the tensor",
    )
    least = 2 * (HOSTS - 1) / HOSTS
    # Most that a ring could lose to it, if links decided alone: what it carries over what the formula says.
    for words, most in (("host by host", 2 * (world - 1) / world / least), ("in turn", 3.5)):
        wire = found.figure(CHOSEN, words, SIZE, lambda sample: sample.wire_ratio / least)
        report.at_most(WIRE_RATIO, f"{words}: bytes on the link / formula", wire)
        for other in (RING, GLOO):
            faster = found.ratio(CHOSEN, other, words, SIZE, lambda sample: sample.bandwidth_bps)
            report.at_least(0.9 * most, f"{words}: bandwidth, dlcp / {other.label}", faster)
    return report
