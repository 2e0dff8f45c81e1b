"""64 MB of float32 on CUDA, summed by two ranks: dlcp beside Gloo, and beside NCCL over sockets.

NCCL refuses two ranks of one GPU, so it takes part where there are two.
"""

from __future__ import annotations

from dataclasses import replace

from bench.collectives.compare import MIB, Comparison, Sample, alternate
from bench.collectives.world import DLCP, DLCP_SHM, GLOO, Backend, Place, Ranks
from bench.report import Report

NBYTES = 64 * MIB
PLACE = "loopback"
# As between hosts without InfiniBand.
NCCL = Backend(
    "NCCL, sockets",
    "nccl",
    {
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "lo",
    },
    device="cuda",
)
OWN = (DLCP, DLCP_SHM)


def backends(devices: int) -> tuple[Backend, ...]:
    """Those that take part, with tensors of CUDA."""
    hosts = (replace(backend, device="cuda") for backend in (GLOO, *OWN))
    return (*hosts, *((NCCL,) if devices > 1 else ()))


def add(report: Report, ranks: Ranks, devices: int, repeats: int, seconds: float) -> None:
    """Measures and judges. Raises WorldError."""
    found = alternate(
        Comparison(),
        ranks,
        {PLACE: Place.loopback(2)},
        backends(devices),
        [NBYTES],
        repeats=repeats,
        seconds=seconds,
    )
    judge(report, found, devices)


def judge(report: Report, found: Comparison, devices: int) -> None:
    table = report.table(
        "all-reduce of 64 MB, two ranks: median (lowest–highest)", ["", "p50 ms", "of Gloo", "of NCCL"]
    )
    for backend in backends(devices):
        table.add(
            backend.label,
            found.figure(backend, PLACE, NBYTES, lambda sample: 1e3 * _p50_s(sample)),
            found.ratio(backend, GLOO, PLACE, NBYTES, _p50_s),
            found.ratio(backend, NCCL, PLACE, NBYTES, _p50_s) if devices > 1 else "",
        )
    if devices == 1:
        table.add(NCCL.label, "refuses two ranks of one GPU", "", "")
    for backend in OWN:
        ratio = found.ratio(backend, GLOO, PLACE, NBYTES, _p50_s)
        report.at_most(1.0, f"all-reduce: time, {backend.label} / Gloo", ratio)
        if devices > 1:
            ratio = found.ratio(backend, NCCL, PLACE, NBYTES, _p50_s)
            report.at_most(1.0, f"all-reduce: time, {backend.label} / {NCCL.label}", ratio)
    report.notes += found.notes()


def _p50_s(sample: Sample) -> float:
    return sample.time_s(50)
