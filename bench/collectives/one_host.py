"""All-reduces between two ranks of one host, where dlcp finds shared memory by itself."""

from __future__ import annotations

from bench.collectives.compare import KIB, MIB, Comparison, alternate
from bench.collectives.world import DLCP_SHM, GLOO, Place, Ranks
from bench.report import Report

SUMMARY = "64 MB between 2 ranks of one host over shared memory, Gloo beside"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
SIZES, LARGE = [4 * KIB, 64 * MIB], 64 * MIB
FASTER = 4.0


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 1.0) if quick else (5, 2.0)
    with Ranks() as ranks:
        places = {f"one host, {world} ranks": Place.loopback(world) for world in (2, 4)}
        found = alternate(
            Comparison(), ranks, places, (GLOO, DLCP_SHM), SIZES, repeats=repeats, seconds=seconds
        )
    report = found.report(
        "shared_memory",
        {"repeats": repeats, "seconds each": seconds},
        "all-reduce of f32, slowest rank: median (lowest–highest)",
        own_wire=False,
    )
    for words, place in places.items():
        at_least = FASTER if place.world == 2 else None
        found.judge_speed(report, DLCP_SHM, words, LARGE, at_least)
    return report
