"""All-reduces of ranks in two racks: a leaf-spine of software switches, their queues and marks the policy's.

Nothing else is on the network, so this is what switches that spray, mark and drop by importance cost a collective. The
ring crosses the spines: path_id spreads dlcp's packets over them, Gloo's connections have one path each. All links have
one rate; what a ring must carry across a host's link is the bound, as in limited_link.py.
"""

from __future__ import annotations

from bench.collectives.compare import KIB, MIB, Comparison, Sample, alternate
from bench.collectives.limited_link import utilisation
from bench.collectives.world import DLCP, GLOO, Backend, Place, Ranks
from bench.report import Report
from dlcp.lab import tcp_fill
from dlcp.lab.counts import shares, total
from dlcp.lab.fabric import Fabric
from dlcp.lab.namespaces import INTERFACE
from dlcp.lab.switched_lab import SwitchedLab

SUMMARY = "the same across a leaf-spine of software switches, 100 Mbit/s: what policy and spraying cost"
NEEDS_LAB = True
NEEDS_PROGRAMS = False
# Eight forwarding processes and four ranks on few cores: faster links would measure those.
RATE_BPS = 100_000_000
FABRIC = Fabric(leaves=2, spines=2, hosts_per_leaf=2, host_rate_bps=RATE_BPS, fabric_rate_bps=RATE_BPS)
SIZES = [4 * KIB, 256 * KIB, 4 * MIB]
_ETHERNET_BYTES = 14 + 24  # with preamble, checksum and gap, which the software switch's rates count


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 2.0) if quick else (5, 4.0)
    words = f"leaf-spine, {FABRIC.hosts} ranks"
    with Ranks() as ranks, SwitchedLab(FABRIC) as bed:
        fill = tcp_fill.measure(bed, 0, FABRIC.hosts - 1)
        hosts = range(FABRIC.hosts)
        # Racks in turn, so that each step of a ring crosses the spines.
        order = sorted(hosts, key=lambda host: (host % FABRIC.hosts_per_leaf, host))
        place = Place(tuple(bed.namespace(host) for host in order), bed.addresses[order[0]], INTERFACE)
        found = alternate(
            Comparison(), ranks, {words: place}, (GLOO, DLCP), SIZES, repeats=repeats, seconds=seconds
        )
        counts = bed.counts()
    report = found.report(
        "all_reduce_fabric",
        {"rate": "100 Mbit/s", "repeats": repeats, "seconds each": seconds},
        "all-reduce of f32, slowest rank: median (lowest–highest)",
    )
    report.fills[""] = fill
    table = report.table(
        "share of a host's link, headers counted", ["", *(f"{size // KIB} KiB" for size in SIZES)]
    )
    for backend in (GLOO, DLCP):

        def useful(sample: Sample, backend: Backend = backend) -> float:
            return utilisation(backend, FABRIC.hosts, sample, RATE_BPS, _ETHERNET_BYTES)

        table.add(backend.label, *(found.figure(backend, words, size, useful) for size in SIZES))
    faster = found.ratio(GLOO, DLCP, words, SIZES[-1], lambda sample: sample.time_s(50))
    report.at_least(1.0, "4 MiB: Gloo's time / dlcp's", faster)
    next_hops = report.table("packets by next hop", ["leaf", "spine", "sent", "share", "dropped"])
    for leaf in (name for name in counts if name.startswith("l")):
        group = tuple(port for port in counts[leaf] if port.startswith("s"))
        for port, share in shares(counts[leaf], group).items():
            count = counts[leaf][port]
            next_hops.add(leaf, port, f"{count.sent:,}", f"{share:.3f}", f"{total([count], 'dropped'):,}")
    return report
