"""A small sweep over every transport, as text: `python -m tests.support.simulator_table > tests/tables/simulator.txt`.

Same code, same text: a change of behaviour shows as a diff of the stored table. Times are microseconds, from a flow's
start to its last byte; packets are counted over all ports of the fabric.
"""

from __future__ import annotations

from collections.abc import Iterator

import dlcp_sim as ds
from dlcp_sim.fabrics import Fabric
from dlcp_sim.faults import BurstLoss, Fault, LinkDown, RandomLoss
from dlcp_sim.transports import TRANSPORTS
from dlcp_sim.workloads import Workload

TREE = ds.FatTree(4)
NARROW = ds.LeafSpine(4, 2, 8, uplink_rate_bps=100e9)  # oversubscribed 4 : 1
SITES = ds.TwoSites(2, 2, 2, long_rate_bps=25e9, long_delay_s=200e-6)

SCENARIOS: dict[str, tuple[Fabric, Workload, tuple[Fault, ...]]] = {
    "permutation": (TREE, ds.permutation(bytes=1_000_000), ()),
    "incast 15:1": (TREE, ds.incast(senders=15, bytes=150_000), ()),
    "all to all, 4:1": (NARROW, ds.all_to_all(bytes=40_000), ()),
    "ring all-reduce": (TREE, ds.collective(algorithm="ring", bytes=2_000_000), ()),
    "two sites": (SITES, ds.permutation(bytes=1_000_000), ()),
    "gray link, 1 %": (TREE, ds.permutation(bytes=1_000_000), (RandomLoss("edge 0 - aggregation 0", 0.01),)),
    "bursts": (TREE, ds.permutation(bytes=1_000_000), (BurstLoss("host 3", 0.002, 0.2),)),
    "cut": (TREE, ds.permutation(bytes=1_000_000), (LinkDown("edge 0 - aggregation 0", 200e-6, at_s=30e-6),)),
}
COLUMNS = (
    "scenario",
    "transport",
    "done",
    "mean",
    "max",
    "hops",
    "dropped",
    "marked",
    "trimmed",
    "again",
    "timeouts",
)


def rows() -> Iterator[tuple[str, ...]]:
    """One for each scenario and transport."""
    for name, (fabric, workload, faults) in SCENARIOS.items():
        for transport in sorted(TRANSPORTS):
            if transport == "line_rate" and faults:
                continue  # repairs nothing
            scenario = ds.Scenario(
                fabric=fabric,
                transport=TRANSPORTS[transport](),
                workload=workload,
                faults=faults,
                until_s=20.0,
            )
            result = scenario.run()
            figures = result.figures()
            yield (
                name,
                transport,
                f"{figures['finished']:.0f}/{figures['flows']:.0f}",
                *(f"{1e6 * figures[f'completion_{which}_s']:.1f}" for which in ("mean", "max")),
                *(
                    f"{figures[which]:.0f}"
                    for which in (
                        "hops",
                        "packets_dropped",
                        "packets_marked",
                        "packets_trimmed",
                        "retransmitted_packets",
                        "timeouts",
                    )
                ),
            )


def table() -> str:
    """All rows as aligned text, with an empty line between scenarios."""
    found = [COLUMNS, *rows()]
    widths = [max(len(row[column]) for row in found) for column in range(len(COLUMNS))]
    lines = []
    for row, before in zip(found, [found[0], *found], strict=False):
        if row[0] != before[0]:
            lines.append("")
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
