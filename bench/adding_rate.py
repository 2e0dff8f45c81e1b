"""What the software switch adds per second, beside what it forwards: frames of equal length, by the same interfaces.

A host sends contributions of two workers in turn, so that every second one completes a block, whose result goes back to
both: as many frames out as in. Counted is what the switch took in, and packets per second of its processor time, since
sender and switch share the cores. BMv2's rate is not measured here: bench/software_switch.py has what the best build
forwarded, and adding is more work than that.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.programs import path
from bench.programs import run as run_program
from bench.report import Figure, Report, spread
from bench.software_switch import BMV2_KPPS, POLICY, RECEIVER, SENDER, Cables
from dlcp.switch.software import Control, start

SUMMARY = "kpps that the software switch adds, and forwards, on veth"
NEEDS_LAB = True
TIMES = 5.0
DELIVERED = 0.99
LANES = (32, 352)
LOADS_KPPS = (80, 120, 160, 240, 320, 480)
_JOB = """[[job]]
job = 7
slots = 256
lanes = {lanes}
hub = {{mac = "02:00:00:00:00:02", ip = "10.0.0.2", udp_port = 9}}
[[job.worker]]
port = "sw1"
mac = "02:00:00:00:00:01"
ip = "10.0.0.1"
udp_port = 40000
[[job.worker]]
port = "sw1"
mac = "02:00:00:00:00:01"
ip = "10.0.0.1"
udp_port = 40001
"""


def run(*, quick: bool) -> Report:
    seconds, repeats = (0.5, 1) if quick else (1.0, 3)
    report = Report("adding_rate", {"ports": "veth", "workers": 2, "seconds": seconds, "repeats": repeats})
    columns = ["", "bytes", "offered kpps", "taken kpps", "delivered", "kpps/CPU-s"]
    table = report.table("median (lowest–highest)", columns)
    most: dict[tuple[str, int], list[float]] = {}
    per_cpu: dict[tuple[str, int], list[float]] = {}
    for lanes in LANES:
        frame_bytes = 42 + 36 + 4 * lanes
        with tempfile.TemporaryDirectory() as folder, Cables() as cables:
            jobs = Path(folder) / "jobs.toml"
            jobs.write_text(_JOB.format(lanes=lanes))
            for name, more in (("adds", ["--jobs", str(jobs)]), ("forwards", [])):
                with _switch(cables, more) as control:
                    for load in (*LOADS_KPPS, 0):
                        told = [_load(cables, control, lanes, name, load, seconds) for _ in range(repeats)]
                        good = [taken for taken, delivered, _ in told if delivered >= DELIVERED]
                        most.setdefault((name, lanes), []).append(min(good, default=0.0))
                        per_cpu.setdefault((name, lanes), []).extend(work for _, _, work in told)
                        offered = f"{load}" if load else "all it can"
                        cells = [spread((one[i] for one in told), 2 * (i == 1)) for i in range(3)]
                        table.add(name, str(frame_bytes), offered, *cells)
    for lanes in LANES:
        words = (
            f"kpps added of {lanes} values, of which {DELIVERED} arrive: {TIMES:g} times BMv2's forwarding"
        )
        report.at_least(TIMES * BMV2_KPPS, words, Figure.of([max(most["adds", lanes])]))
        share = Figure.of(per_cpu["adds", lanes]).median / Figure.of(per_cpu["forwards", lanes]).median
        report.notes.append(f"{lanes} values: adds {share:.2f} times what it forwards, per CPU second")
    return report


@contextlib.contextmanager
def _switch(cables: Cables, more: Sequence[str]) -> Any:
    known = {SENDER: "sw1", RECEIVER: "sw2"}
    words = ["--ring-frames", "16384", *more]
    with start(POLICY, ["sw1", "sw2"], prefix=cables.prefix, addresses=known, arguments=words) as process:
        yield process.control


def _load(
    cables: Cables, control: Control, lanes: int, name: str, kpps: float, seconds: float
) -> tuple[float, float, float]:
    """Taken kpps, share of what was sent, kpps per processor second."""
    before = control.status()
    words = [*cables.sender, str(path("raw_frames")), "--kpps", str(kpps), "--seconds", str(seconds)]
    words += ["--bytes", str(42 + 36 + 4 * lanes)]
    words += ["--lanes", str(lanes)] if name == "adds" else []
    told = json.loads(run_program(words))
    run_program(["sleep", "0.3"])
    after = control.status()
    taken = _count(after, name) - _count(before, name)
    busy_s = after["busy_s"] - before["busy_s"]
    return taken / told["seconds"] / 1e3, taken / max(told["sent"], 1), taken / max(busy_s, 1e-9) / 1e3


def _count(status: dict[str, Any], name: str) -> int:
    """Frames that were added and answered, or forwarded and sent, so far."""
    sent = int(status["ports"]["sw1" if name == "adds" else "sw2"]["sent_packets"])
    if name == "forwards":
        return sent
    outcomes = status["aggregation"][0]["outcomes"]
    return min(int(outcomes.get("added", 0) + outcomes.get("completed", 0)), sent)
