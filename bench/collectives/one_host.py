"""All-reduces between two ranks of one host, where dlcp finds shared memory by itself."""

from __future__ import annotations

from bench.collectives import mpi
from bench.collectives.compare import MIB, Comparison, alternate
from bench.collectives.world import DLCP_SHM, GLOO, Place, Ranks
from bench.report import Report

SUMMARY = "4 KB to 64 MB between 2 and 4 ranks of one host over shared memory, beside Gloo and Open MPI"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
LARGE = 64 * MIB
FASTER = 4.0


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 1.0) if quick else (5, 2.0)
    rivals = (GLOO,) if mpi.missing() else (GLOO, mpi.SHM)
    with Ranks() as ranks:
        places = {f"one host, {world} ranks": Place.loopback(world) for world in (2, 4)}
        sizes = [*mpi.SIZES, LARGE]
        backends = (*rivals, DLCP_SHM)
        found = alternate(Comparison(), ranks, places, backends, sizes, repeats=repeats, seconds=seconds)
    report = found.report(
        "shared_memory",
        {"repeats": repeats, "seconds each": seconds},
        "; ".join(filter(None, ["all-reduce of f32, slowest rank: median (lowest–highest)", mpi.missing()])),
        own_wire=False,
    )
    for words, place in places.items():
        at_least = FASTER if place.world == 2 else None
        found.judge_speed(report, DLCP_SHM, words, LARGE, at_least)
        if mpi.SHM in rivals:
            allowed = mpi.SHM_ALLOWED[place.world]
            found.judge_mpi(report, DLCP_SHM, mpi.SHM, words, sizes, allowed)
    return report
