"""The dpdk driver beside DPDK alone, beside sockets, and what the engine costs above it.

All of it runs without a network card: over net_memif (shared memory between two processes), net_af_packet (a veth
cable) and net_null. Both ends of a pair have a core each. What is compared is measured in turn in one run.
"""

from __future__ import annotations

from bench.dpdk import ends, engine, messages, rates
from bench.report import Report

SUMMARY = "the dpdk driver beside DPDK alone and beside sockets; cycles per packet; round trips, goodput"
NEEDS_LAB = False


def run(*, quick: bool) -> Report:
    sampling = rates.Sampling(2, 0.2) if quick else rates.Sampling(5, 0.5)
    reason = ends.without_driver()
    report = Report("dpdk", {"repeats": sampling.repeats, "seconds each": sampling.seconds, "cores": 2})
    if reason:
        report.notes.append(f"without the driver: {reason}")
    for part in (rates, engine, messages):
        part.run(report, sampling, driver=reason is None)
    return report
