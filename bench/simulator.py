"""The simulator's native loop beside a bare event core, on 128 and on 1024 hosts.

`dlcp study speed` says more (other transports, instructions, set-up, ns-3); this is the short look, at its workloads.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench import programs
from bench.report import Figure, Report, in_turn, ratios
from dlcp_sim.fabrics import FatTree
from dlcp_sim.workloads.flows import Permutation

SUMMARY = "simulated hops per second, beside a bare event core"
NEEDS_LAB = False

K = {"P128": 8, "P1024": 16}
SETTINGS = "window_packets=50"
# What a transport, classes, drops and counters may cost beside next to nothing; measured 2.4 and 4.7 (November 2026).
RATIO = {"P128": 4.0, "P1024": 7.0}


def run(*, quick: bool) -> Report:
    repetitions = 3 if quick else 9
    report = Report("simulator", {"repetitions": repetitions, "transport": "ndp"})
    table = report.table("CPU time per hop, ns", ["", "simulator", "bare event core", "ratio", "hops"])
    with tempfile.TemporaryDirectory() as folder:
        for workload, k in K.items():
            file = Path(folder) / workload
            tree = FatTree(k, rate_bps=100e9, delay_s=1e-6)
            flows = Permutation(bytes=2_000_000).build(tree, 1).flows.columns()
            rows = map("{} {} {}\n".format, flows["source"], flows["destination"], flows["bytes"])
            file.write_text("".join(rows), encoding="utf-8")
            words = {"flows": file, "k": k}
            found = in_turn(
                repetitions,
                {"simulator": words | {"settings": SETTINGS}, "simulator_floor": words},
                lambda words: programs.ask(
                    "simulator" if "settings" in words else "simulator_floor", **words
                ),
            )
            ours, floor = ([one["ns_per_hop"] for one in answers] for answers in found.values())
            ratio = ratios(ours, floor)
            hops = found["simulator"][-1]["hops"]
            table.add(workload, Figure.of(ours), Figure.of(floor), ratio, f"{hops:,}")
            report.at_most(RATIO[workload], f"{workload}, simulator over bare event core", ratio)
    return report
