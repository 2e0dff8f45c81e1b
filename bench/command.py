"""python -m bench [NAME…] [--quick] [--strict] [--json FILE]: builds, runs and judges the benchmarks."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import signal
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from bench import programs
from bench.collectives.world import WorldError
from dlcp import lab

# A module has SUMMARY, NEEDS_LAB, run(*, quick) and, if it needs no compiled program, NEEDS_PROGRAMS = False.
MODULES = {
    "engine": "engine",
    "reduce": "reduce",
    "select": "select",
    "hub_optimizer": "hub_optimizer",
    "loopback": "loopback",
    "lab": "loss",
    "incast": "incast",
    "bad_path": "bad_path",
    "startup": "startup",
    "all_reduce": "collectives.loopback",
    "all_reduce_link": "collectives.open_link",
    "all_reduce_1g": "collectives.limited_link",
    "all_reduce_loss": "collectives.lossy_link",
    "all_reduce_shared": "collectives.beside_tcp",
    "all_reduce_fabric": "collectives.switched",
    "all_reduce_switch": "collectives.adding_switch",
    "all_reduce_hosts": "collectives.several_hosts",
    "defaults": "collectives.defaults",
    "hub": "collectives.hub",
    "exchanges": "exchanges",
    "low_bits": "collectives.low_bits",
    "networks": "collectives.networks",
    "shared_memory": "collectives.one_host",
    "backend_overhead": "backend_overhead",
    "ddp": "ddp",
    "gpu": "gpu",
    "gradient_lab": "gradient_lab",
    "time_to_loss": "time_to_loss",
    "varying_links": "varying_links",
    "switched_fabric": "switched_fabric",
    "faults": "faults",
    "simulator": "simulator",
    "software_switch": "software_switch",
    "adding_rate": "adding_rate",
    "dpdk": "dpdk",
}


def main() -> int:
    modules = {name: importlib.import_module(f"bench.{module}") for name, module in MODULES.items()}
    indent = " " * (max(map(len, modules)) + 4)
    width = min(100, shutil.get_terminal_size().columns)
    summaries = "\n".join(
        textwrap.fill(
            module.SUMMARY, width, initial_indent=f"  {name}".ljust(len(indent)), subsequent_indent=indent
        )
        for name, module in modules.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Benchmarks:\n{summaries}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all: every one, for hours")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter repetitions: a look, not a figure"
    )
    parser.add_argument("--count", type=int, metavar="N", help="faults: how many of each kind (default 50)")
    parser.add_argument("--strict", action="store_true", help="a bar that is not met is exit status 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found here")
    parser.add_argument("--build-only", action="store_true", help="build what is compiled, and run nothing")
    arguments = parser.parse_args()
    if not arguments.names and not arguments.build_only:
        parser.error(f"which? all, or some of {', '.join(MODULES)}")
    if "all" in arguments.names:
        arguments.names = list(MODULES)
    if unknown := [name for name in arguments.names if name not in MODULES]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(MODULES)}")
    if arguments.count is not None and (arguments.count < 1 or arguments.names != ["faults"]):
        parser.error("--count goes with `faults` alone, and is 1 or more")
    chosen = {name: modules[name] for name in arguments.names}

    # A terminated run must leave by the same way as an interrupted one, past the end of its `with`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if arguments.build_only or any(getattr(one, "NEEDS_PROGRAMS", True) for one in chosen.values()):
            print(f"building {programs.BUILD}", flush=True)
            programs.build()
        return 0 if arguments.build_only else _run_all(chosen, arguments)
    except (programs.ProgramError, lab.LabError) as error:
        print(error, file=sys.stderr)
        return 1


def _run_all(modules: dict[str, ModuleType], arguments: argparse.Namespace) -> int:
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Linux {platform.release()}"
        + (", --quick" if arguments.quick else "")
    )
    reports = []
    failed = False
    why_not = lab.missing()
    for name, module in modules.items():
        if module.NEEDS_LAB and why_not:
            print(f"\n== {name} ==  skipped: {why_not}")
            continue
        options = {} if arguments.count is None else {"count": arguments.count}
        try:
            report = module.run(quick=arguments.quick, **options)
        except WorldError as error:
            # The others are worth having still.
            print(f"\n== {name} ==  FAILED: {error}", flush=True)
            failed = True
            continue
        reports.append(report)
        print(f"\n{report.show()}", flush=True)
    if arguments.json:
        machine = {"processors": os.cpu_count(), "linux": platform.release(), "load": os.getloadavg()}
        arguments.json.write_text(
            json.dumps(
                {"machine": machine, "quick": arguments.quick, "reports": [r.to_json() for r in reports]},
                indent=1,
            )
        )
    # Without --strict it is a figure like others: on a busy machine, or with --quick, it says little.
    missed = sum(not bar.met for report in reports for bar in report.bars)
    if arguments.strict and missed:
        total = sum(len(report.bars) for report in reports)
        print(f"\n{missed} of {total} bars are not met, or not judged", flush=True)
        failed = True
    return int(failed)
