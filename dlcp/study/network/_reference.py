"""The shared workloads that speed is measured on, and how a study of speed says what it found.

Common to all: a k-ary fat-tree, links of 100 Gb/s and 1 µs, all flows at t = 0, packets of 4160 bytes on the wire (4096
of payload), windows of 50 packets, 64 path ids, queues of 35 packets behind which payload is trimmed. P128 and P1024:
every host sends 2 MB to the next of a shuffled ring; I32: 32 hosts send 2 MB to one.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlcp.study.network import _sweep
from dlcp_sim import switches
from dlcp_sim.fabrics import Fabric, FatTree
from dlcp_sim.report.tables import Table
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Dlcp, LineRate, Ndp, Uet
from dlcp_sim.transports.base import Transport
from dlcp_sim.workloads.flows import Incast, Permutation
from dlcp_sim.workloads.load import Workload

WORKLOADS = ("P128", "I32", "P1024")
WINDOW_PACKETS, QUEUE_PACKETS, WIRE_BYTES, FLOW_BYTES = 50, 35, 4160, 2_000_000
SOURCES = Path(__file__).resolve().parents[3]
"""The checkout, if this is one: only there are the native programs."""


def fabric(workload: str) -> Fabric:
    return FatTree(16 if workload == "P1024" else 8, rate_bps=100e9, delay_s=1e-6)


def flows(workload: str, size: int = FLOW_BYTES) -> Workload:
    return Incast(bytes=size) if workload == "I32" else Permutation(bytes=size)


def scenario(workload: str, transport: str, *, threads: int = 1, size: int = FLOW_BYTES) -> Scenario:
    """A workload as a scenario. Seed 1 is part of its definition: it shuffles the ring."""
    tree = fabric(workload)
    kinds: Mapping[str, Transport] = {
        "ndp": Ndp(window_packets=WINDOW_PACKETS, queue_packets=QUEUE_PACKETS),
        "uet": Uet(),
        "dlcp": Dlcp(),
        "line_rate": LineRate(),
    }
    kind = kinds[transport]
    # Sources that never listen need paths drawn for them, and queues without end.
    policy = switches.unbounded(path_choice="random") if transport == "line_rate" else kind.policy(tree)
    return Scenario(
        fabric=tree, transport=kind, workload=flows(workload, size), switch=policy, seed=1, threads=threads
    )


def rows(workload: str, size: int = FLOW_BYTES) -> str:
    """A workload as the native programs read it: a line of source, destination and bytes per flow."""
    columns = flows(workload, size).build(fabric(workload), 1).flows.columns()
    return "".join(map("{} {} {}\n".format, columns["source"], columns["destination"], columns["bytes"]))


def native_programs(*names: str) -> dict[str, Path]:
    """The compiled programs of bench/native by name; none where they do not build."""
    try:
        from bench import programs
    except ImportError:
        print("native programs are left out: they are built in a checkout of dlcp")
        return {}
    try:
        programs.build(*names)
        return {name: programs.path(name) for name in names}
    except programs.ProgramError as error:
        print(f"native programs are left out: {error}")
        return {}


# --- bars -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """What was asked for, and what was found."""

    what: str
    found: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    def text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        judgement = "met" if self.met else "NOT met"
        return f"{self.what}: {self.found:.4g} {self.unit}, asked {sign} {self.limit:g}: {judgement}"


def machine() -> str:
    model = ""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(
            line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores, load {load:.1f}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def leave(
    stem: Path,
    tables: Sequence[Table],
    bars: Sequence[Bar],
    notes: Sequence[str],
    draw: Callable[[Path], object],
) -> _sweep.Told:
    """What a study of speed leaves: tables, bars and notes; as CSV the first table."""
    lines = [*(bar.text() for bar in bars), *notes]
    text = _sweep.bullets(lines)
    return _sweep.leave(stem, tables, lines, markdown=[*tables, text], csv=tables[0].csv(), draw=draw)
