"""How fast the simulator is on one thread: nanoseconds and instructions per hop, memory, set-up, ns-3 beside it.

Every figure of time is CPU time of the native loop over interleaved repetitions (all cases once, then all again), since
a neighbour's load comes and goes; best and median are shown. The yardstick is a bare event core that does next to
nothing per hop (bench/native/simulator_floor.cpp), run in the same rounds: ratios to it travel between machines,
nanoseconds do not. Instructions are counted by valgrind on a native program, for two lengths of flows, so that set-up
cancels out.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dlcp.study.network import _ns3, _reference, _sweep
from dlcp.study.network._reference import Bar
from dlcp.units import grouped
from dlcp_sim.report.tables import Table

NAME = "speed"
SUMMARY = "how fast the simulator is: ns and instructions per hop, set-up, memory; ns-3 beside it"

TRANSPORTS = ("ndp", "uet", "dlcp", "line_rate")
REPETITIONS = 7
# What is asked for, by the project's aims.
NS_PER_HOP = {"P128": 100.0, "I32": 75.0}
P1024_CPU_S, INSTRUCTIONS_PER_HOP, SETUP_S, SETUP_MB = 1.2, 700.0, 0.2, 110.0
OUTSIDE_PERCENT = 2.0
SETUP_K = 32  # 8192 hosts
# Lengths of flows whose difference is free of set-up, for counting instructions.
SHORT_BYTES, LONG_BYTES = 200_000, 600_000

SETUP_CODE = """
import gc, json, os, resource, sys, time
import dlcp_sim
from dlcp_sim.fabrics import FatTree
from dlcp_sim.scenario import Scenario
from dlcp_sim.transports import Ndp
from dlcp_sim.workloads.flows import Permutation
from dlcp_sim.run import _built
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
FatTree(4).build()
before, begin = resident(), time.process_time()
scenario = Scenario(fabric=FatTree(int(sys.argv[1])), transport=Ndp(), workload=Permutation())
simulation, fabric = _built(scenario, scenario.workload.build(scenario.fabric, 1))
simulation.run(0)
took, after = time.process_time() - begin, resident()
print(json.dumps({"hosts": fabric.hosts, "cpu_s": took, "bytes": after - before, "total_bytes": after}))
"""


@dataclass
class Case:
    """One workload over one transport: what every repetition took, and what none of them changes."""

    workload: str
    name: str
    cpu_s: list[float] = field(default_factory=list)
    hops: int = 0
    events: int = 0
    outside: list[float] = field(default_factory=list)
    completion_us: tuple[float, float] = (float("nan"), float("nan"))
    rss_mb: float = float("nan")

    @property
    def best_ns(self) -> float:
        """Of CPU time per hop."""
        return 1e9 * min(self.cpu_s) / self.hops

    @property
    def median_ns(self) -> float:
        """Of CPU time per hop."""
        return 1e9 * statistics.median(self.cpu_s) / self.hops


def run(output: Path, quick: bool, seeds: int) -> _sweep.Told:
    """Measures, prints, writes. The seed is part of the workloads' definition, so `seeds` changes nothing."""
    repetitions = 2 if quick else REPETITIONS
    native = _reference.native_programs("simulator", "simulator_floor")
    with tempfile.TemporaryDirectory() as folder:
        files = _flow_files(Path(folder))
        cases = _measure(repetitions, native, files, quick)
        _resident(cases, native, files)
        instructions = _instructions(native, Path(folder), ("ndp",) if quick else ("ndp", "uet", "dlcp"))
    setup = _setup()
    tables = [_table(cases), _other_table(instructions, setup)]
    bars, notes = _bars(cases, instructions, setup), _notes(cases, repetitions, native)
    return _reference.leave(output / NAME, tables, bars, notes, partial(_draw, cases))


# --- measuring ------------------------------------------------------------------------------------------------


def _flow_files(folder: Path) -> dict[str, Path]:
    files = {name: folder / name for name in _reference.WORKLOADS}
    for name, path in files.items():
        path.write_text(_reference.rows(name), encoding="utf-8")
    return files


def _measure(
    repetitions: int, native: Mapping[str, Path], files: Mapping[str, Path], quick: bool
) -> dict[tuple[str, str], Case]:
    """All cases, once per repetition, in turn."""
    cases: dict[tuple[str, str], Case] = {}
    other = _ns3_work()
    for number, workload in _sweep.counted(itertools.product(range(repetitions), _reference.WORKLOADS)):
        for transport in TRANSPORTS:
            if quick and workload == "P1024" and transport in ("uet", "line_rate"):
                continue
            _simulate(cases.setdefault((workload, transport), Case(workload, transport)))
        if "simulator_floor" in native and workload != "I32":
            case = cases.setdefault((workload, "yardstick"), Case(workload, "yardstick"))
            found = _ask([native["simulator_floor"], "--flows", files[workload], "--k", _k(workload)])
            case.cpu_s.append(found["cpu_s"])
            case.hops = case.events = found["hops"]
        if other is not None and number < 3 and workload == "P128":
            case = cases.setdefault(("P128", "ns-3 UDP"), Case("P128", "ns-3 UDP"))
            found = _ns3.totals(_ns3.run(other[0], other[1], "--quiet"))
            case.cpu_s.append(found["cpu_s"])
            case.hops, case.events, case.rss_mb = (
                int(found["hops"]),
                int(found["events"]),
                found["rss_kb"] / 1e3,
            )
    return cases


def _simulate(case: Case) -> None:
    result = _reference.scenario(case.workload, case.name).run()
    if result.partial or not result.flows.finished.all():
        raise AssertionError(f"{case.workload} over {case.name} did not finish")
    case.cpu_s.append(float(result.metadata["cpu_s"]))
    case.outside.append(float(result.metadata["outside_ratio"]))
    case.hops, case.events = int(result.metadata["hops"]), int(result.metadata["events"])
    times_us = 1e6 * result.flows.completion_s
    case.completion_us = float(times_us.mean()), float(times_us.max())


def _ns3_work() -> tuple[Path, str] | None:
    """ns-3's program and P128 for it, on routes by hash; None: there is no ns-3."""
    try:
        built = _ns3.program()
    except _ns3.Ns3Error as error:
        print(f"without ns-3: {error}")
        return None
    from dataclasses import replace

    from dlcp_sim import switches
    from dlcp_sim.scenario import Trace
    from dlcp_sim.transports import LineRate

    # A packet per flow shows the routes.
    first = replace(
        _reference.scenario("P128", "line_rate", size=1000),
        transport=LineRate(header_bytes=_ns3.HEADER_BYTES),
        switch=switches.unbounded(path_choice="flow_hash"),
        trace=Trace("all"),
    ).run()
    return built, _ns3.work(first, 4096, _reference.FLOW_BYTES)


def _resident(
    cases: Mapping[tuple[str, str], Case], native: Mapping[str, Path], files: Mapping[str, Path]
) -> None:
    """Peak memory of a process that runs one case and holds no Python."""
    if "simulator" not in native:
        return
    for (workload, transport), case in cases.items():
        if transport in ("ndp", "uet", "dlcp"):
            found = _ask(_line(native["simulator"], files[workload], workload, transport))
            case.rss_mb = found["rss_bytes"] / 1e6


def _instructions(native: Mapping[str, Path], folder: Path, transports: tuple[str, ...]) -> dict[str, float]:
    """Instructions per hop on P128, by transport; empty where valgrind or the program is missing."""
    if "simulator" not in native or shutil.which("valgrind") is None:
        print(
            "instructions are not counted: that needs valgrind and a checkout (Debian: apt-get install valgrind)"
        )
        return {}
    found = {}
    for transport in transports:
        counts = []
        for size in (SHORT_BYTES, LONG_BYTES):
            file = folder / f"P128-{size}"
            file.write_text(_reference.rows("P128", size), encoding="utf-8")
            line = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
            line += _line(native["simulator"], file, "P128", transport)
            done = subprocess.run(line, capture_output=True, text=True, check=True)
            collected = next(part for part in done.stderr.splitlines() if "Collected" in part)
            counts.append((int(collected.rsplit(":", 1)[1]), json.loads(done.stdout)["hops"]))
        (few, few_hops), (many, many_hops) = counts
        found[transport] = (many - few) / (many_hops - few_hops)
    return found


def _line(program: Path, file: Path, workload: str, transport: str) -> list[str]:
    """The native program's command line for a workload, with the settings of the scenario."""
    settings = _reference.scenario(workload, transport).transport.parameters()
    words = ",".join(f"{name}={value:.17g}" for name, value in settings.items())
    line = [program, "--flows", file, "--k", _k(workload), "--transport", transport, "--settings", words]
    return [str(word) for word in line]


def _k(workload: str) -> str:
    return "16" if workload == "P1024" else "8"


def _ask(line: list[Any]) -> dict[str, Any]:
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _setup() -> dict[str, float]:
    """What setting 8192 hosts up takes, in a process of its own: the best of three for time."""
    runs: list[dict[str, float]] = []
    for _ in range(3):
        line = [sys.executable, "-c", SETUP_CODE, str(SETUP_K)]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return min(runs, key=lambda one: one["cpu_s"])


# --- what was found -------------------------------------------------------------------------------------------


def _table(cases: Mapping[tuple[str, str], Case]) -> Table:
    columns = ("", "hops", "events", "CPU s best", "median", "ns/hop best", "median", "× yardstick")
    more = ("µs mean", "µs max", "RSS MB", "outside")
    table = Table("Speed, one thread", (*columns, *more))
    for (workload, name), case in sorted(cases.items(), key=_order):
        floor = cases.get((workload, "yardstick")) or cases.get(("P128", "yardstick"))
        ratio = case.best_ns / floor.best_ns if floor else float("nan")
        outside = 100 * statistics.median(case.outside) if case.outside else float("nan")
        table.add(
            f"{workload} {name}",
            (grouped(case.hops), case.hops),
            (grouped(case.events), case.events),
            *(_cell(value, 3) for value in (min(case.cpu_s), statistics.median(case.cpu_s))),
            *(_cell(value, 1) for value in (case.best_ns, case.median_ns, ratio)),
            *(_cell(value, 1) for value in (*case.completion_us, case.rss_mb)),
            (f"{outside:.1f} %" if outside == outside else "–", outside),
        )
    return table


def _order(item: tuple[tuple[str, str], Case]) -> tuple[int, int]:
    names = (*TRANSPORTS, "yardstick", "ns-3 UDP")
    workload, name = item[0]
    return _reference.WORKLOADS.index(workload), names.index(name)


def _other_table(instructions: Mapping[str, float], setup: Mapping[str, float]) -> Table:
    table = Table("Instructions, set-up", ("", "found"))
    for transport, count in instructions.items():
        table.add(f"instructions per hop, P128 {transport}", _cell(count, 0))
    table.add("set-up of 8192 hosts, CPU s", _cell(setup["cpu_s"], 3))
    table.add("its memory, MB", _cell(setup["bytes"] / 1e6, 1))
    table.add("the whole process with Python and NumPy, MB", _cell(setup["total_bytes"] / 1e6, 1))
    return table


def _cell(value: float, places: int) -> tuple[str, float]:
    return (f"{value:,.{places}f}" if value == value else "–"), value


def _leanest(cases: Mapping[tuple[str, str], Case], workload: str) -> Case:
    """Of the full transports that were run, the one with the least time per hop."""
    found = [case for (where, name), case in cases.items() if where == workload and name in ("ndp", "uet")]
    return min(found, key=lambda case: case.best_ns)


def _bars(
    cases: Mapping[tuple[str, str], Case], instructions: Mapping[str, float], setup: Mapping[str, float]
) -> list[Bar]:
    bars = []
    for workload, limit in NS_PER_HOP.items():
        case = _leanest(cases, workload)
        bars.append(Bar(f"{workload} over {case.name}, median", case.median_ns, limit, "ns/hop"))
    case = _leanest(cases, "P1024")
    bars.append(Bar(f"P1024 over {case.name}, median", statistics.median(case.cpu_s), P1024_CPU_S, "CPU s"))
    if instructions:
        name = min(instructions, key=lambda name: instructions[name])
        bars.append(Bar(f"P128 over {name}", instructions[name], INSTRUCTIONS_PER_HOP, "instructions/hop"))
    bars.append(Bar("8192 hosts set up", setup["cpu_s"], SETUP_S, "s"))
    bars.append(Bar("8192 hosts, whole process", setup["total_bytes"] / 1e6, SETUP_MB, "MB"))
    outside = 100 * statistics.median(cases["P1024", "ndp"].outside)
    bars.append(Bar("P1024 over ndp, outside the native loop", outside, OUTSIDE_PERCENT, "% of wall time"))
    return bars


def _notes(cases: Mapping[tuple[str, str], Case], repetitions: int, native: Mapping[str, Path]) -> list[str]:
    notes = [
        f"{repetitions} interleaved repetitions on {_reference.machine()}.",
        "outside: share of a run's wall time that is not the native loop, median; building the scenario included.",
        "RSS, instructions: of a native process that runs this alone, with trimming switches for all transports.",
        "× yardstick: best ns/hop over that of the bare event core on the same workload (I32: on P128).",
    ]
    if not native:
        notes.append("The yardstick and the instructions are left out: they need a checkout and cmake.")
    if other := cases.get(("P128", "ns-3 UDP")):
        ours = _leanest(cases, "P128")
        notes.append(
            "ns-3: UDP without acknowledgements on one route per flow, O(1) look-up, up to three repetitions; "
            f"{other.best_ns / ours.best_ns:.0f} × the time per hop of {ours.name}, best of each."
        )
    else:
        notes.append("ns-3 was not run: it is not installed.")
    return notes


def _draw(cases: Mapping[tuple[str, str], Case], path: Path) -> None:
    """Nanoseconds per hop: a bar per case, best to median; the bars that were asked for as lines."""
    from dlcp_sim.report import pictures

    colours = dict(zip((*TRANSPORTS, "yardstick"), (*pictures.COLOURS[:4], "#9aa8b8"), strict=True))
    with pictures.new_figure(1, height=4.2, width=8.0) as (figure, (axes,)):
        level, ticks, labels = 0.0, [], []
        behind = {"facecolor": pictures.PAPER, "lw": 0, "pad": 0.8}
        for workload in _reference.WORKLOADS:
            shown = [case for (where, name), case in sorted(cases.items(), key=_order) if where == workload]
            first = level
            for case in shown:
                if case.name not in colours:
                    continue
                axes.barh(level, case.median_ns, height=0.74, color=colours[case.name], alpha=0.45, lw=0)
                axes.barh(level, case.best_ns, height=0.74, color=colours[case.name], lw=0)
                axes.text(
                    case.median_ns + 3, level, f"{case.median_ns:.0f}", va="center", fontsize=8.5, bbox=behind
                )
                ticks.append(level)
                labels.append(f"{workload}  {case.name}")
                level += 1
            if workload in NS_PER_HOP:
                limit = NS_PER_HOP[workload]
            else:
                limit = 1e9 * P1024_CPU_S / _leanest(cases, workload).hops
            axes.plot([limit, limit], [first - 0.5, level - 0.5], color="#e03131", lw=1.6)
            level += 0.6
        axes.set_yticks(ticks, labels)
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set(
            xlabel="CPU time per hop, ns  (solid: best, pale: median; red: asked of the leanest full transport)"
        )
        axes.set_title("Speed of the simulator, one thread")
        pictures.save(figure, path)
