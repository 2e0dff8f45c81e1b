"""All-reduces across a link without limit, packet by packet: speed.py says what is judged.

Segmentation offload is off, so this is what a path costs that keeps no super-packets. On the merging link the receiving
host merges packets (GRO), as drivers of most cards do; sending costs the same. Between containers of one host, as
Docker leaves them, super-packets stay whole. Of 4 ranks two are on each host; they talk through the network too.
"""

from __future__ import annotations

from bench.collectives import speed
from bench.collectives.world import Place, Ranks
from bench.report import Report
from dlcp.lab import Lab

SUMMARY = "the same across virtual Ethernet without a rate, 1500 bytes: offloads off, merged on arrival, offloads on"
NEEDS_LAB = True
NEEDS_PROGRAMS = False


def run(*, quick: bool) -> Report:
    with Ranks() as ranks, Lab() as lab, Lab(merge=True) as merging, Lab(offload=True) as containers:
        links = {"link": lab, "merging link": merging, "containers": containers}
        places = {
            f"{words}, {world} ranks": Place.of_lab(of, world)
            for words, of in links.items()
            for world in (2, 4)
        }
        return speed.measure("all_reduce_link", ranks, places, quick=quick)
