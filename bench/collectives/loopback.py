"""All-reduces on the loopback interface: speed.py says what is judged."""

from __future__ import annotations

from bench.collectives import speed
from bench.collectives.world import Place, Ranks
from bench.report import Report

SUMMARY = "64 MB and 4 KB on loopback, worlds of 2 and 4, authentication on and off, Gloo beside"
NEEDS_LAB = False
NEEDS_PROGRAMS = False


def run(*, quick: bool) -> Report:
    with Ranks() as ranks:
        places = {f"loopback, {world} ranks": Place.loopback(world) for world in (2, 4)}
        return speed.measure("all_reduce", ranks, places, quick=quick)
