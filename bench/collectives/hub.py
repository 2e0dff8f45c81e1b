"""All-reduces of four workers on 1 Gbit/s: over a hub on 4 Gbit/s, and round a ring; and both in 4 bits.

A worker's link carries the tensor once each way over the hub, and 1.5 times in a ring of four: links alone allow 0.667
of the ring's time, and less needs a ring that loses time. So it is with codes that ranks add among themselves. The hub
is `dlcp hub` on a host of its own. All hosts share this machine's processors, which must carry 8 Gbit/s in single
packets at the full rate; with fewer than 8 processors all rates are a tenth.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.collectives.compare import MIB, Comparison, alternate
from bench.collectives.world import Backend, Place, Ranks, WorldError
from bench.report import Report
from dlcp.lab import Lab, Link, tcp_fill
from dlcp.lab.namespaces import INTERFACE

SUMMARY = "4 workers on 1 Gbit/s, a hub on 4 Gbit/s: step beside the ring's"
NEEDS_LAB = True
NEEDS_PROGRAMS = False

WORKERS = 4
SCALE = 1 if (os.cpu_count() or 1) >= 8 else 10
RATE_BPS = 1_000_000_000 // SCALE
SIZES = [MIB, 25 * MIB, 64 * MIB] if SCALE == 1 else [MIB, 8 * MIB]
PORT = 7100
STEP_RATIO = 0.65
# What a ring of four carries over what a hub does, and a twentieth for what keys cost more than long messages.
LINK_RATIO = 1.05 * 4 / 6


def run(*, quick: bool) -> Report:
    repeats, seconds = (1, 3.0) if quick else (3, 5.0)
    cores = max(1, (os.cpu_count() or 2) // 2)
    with (
        tempfile.TemporaryDirectory() as folder,
        Ranks() as ranks,
        Lab(hosts=WORKERS + 1, rate_bps=RATE_BPS, links={WORKERS: Link(rate_bps=WORKERS * RATE_BPS)}) as lab,
    ):
        fill = tcp_fill.measure(lab)
        key = secrets.token_hex(32)
        job_key, keys = Path(folder, "key"), Path(folder, "keys")
        for path, text in ((job_key, key), (keys, f"job {key}\n")):
            path.touch(0o600)
            path.write_text(text)
        address = f"{lab.addresses[WORKERS]}:{PORT}"
        hub = lab.start(
            WORKERS,
            [
                sys.executable,
                "-m",
                "dlcp",
                "hub",
                "--bind",
                address,
                "--keys",
                str(keys),
                "--cores",
                str(cores),
            ],
            stderr=subprocess.DEVNULL,
        )
        assert hub.stdout is not None
        if not (said := hub.stdout.readline()).startswith("ready"):
            raise WorldError(f"the hub did not start: {said!r}")
        common = {"DLCP_SHM": "0", "DLCP_KEY_FILE": str(job_key)}
        ring = Backend("dlcp, ring", "dlcp", {**common, "DLCP_ALGORITHM": "ring"})
        over_hub = Backend("dlcp, hub", "dlcp", {**common, "DLCP_HUB": address})
        in_bits = Backend("dlcp, int4", "dlcp", common, "int4")
        in_bits_over_hub = Backend("dlcp, hub, int4", "dlcp", {**common, "DLCP_HUB": address}, "int4")
        place = Place(tuple(lab.namespace(host) for host in range(WORKERS)), lab.addresses[0], INTERFACE)
        found = alternate(
            Comparison(),
            ranks,
            {"4 workers": place},
            (ring, over_hub, in_bits, in_bits_over_hub),
            SIZES,
            repeats=repeats,
            seconds=seconds,
        )
        drops = lab.queue_drops()
    report = found.report(
        "hub",
        {
            "rates": f"{RATE_BPS / 1e9:g} Gbit/s, hub {WORKERS * RATE_BPS / 1e9:g} Gbit/s",
            "cores": cores,
            "repeats": repeats,
            "seconds each": seconds,
        },
        "all-reduce of f32, slowest rank: median (lowest–highest); wire: bytes sent per byte of the tensor",
    )
    report.fills[""] = fill
    for nbytes in SIZES[1:]:
        step = found.ratio(over_hub, ring, "4 workers", nbytes, lambda sample: sample.time_s(50))
        report.at_most(STEP_RATIO, f"{nbytes // MIB} MB: step, hub / ring", step)
        report.at_most(LINK_RATIO, f"{nbytes // MIB} MB: step, hub / ring, as links allow", step)
        coded = found.ratio(in_bits_over_hub, in_bits, "4 workers", nbytes, lambda sample: sample.time_s(50))
        report.at_most(LINK_RATIO, f"{nbytes // MIB} MB in 4 bits: step, hub / ranks, as links allow", coded)
    report.notes.append(f"dropped at full queues of the links, by both: {drops} packets")
    return report
