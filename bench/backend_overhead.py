"""What the torch backend costs where no byte is moved: one rank, which has nobody to talk to.

Processor time per call, the least over many repetitions: what Python and torch need around a collective. Gloo stands
beside. And how much longer `import torch` takes with the backend registered. What a bucket of DDP costs among several
ranks is `ddp`'s to say.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import programs
from bench.report import Figure, Report, spread

SUMMARY = "processor time of the torch backend per call, without data; what registering costs import torch"
NEEDS_LAB = False
NEEDS_PROGRAMS = False
BUCKET_US_AT_MOST = 60.0
IMPORT_MS_AT_MOST = 20.0


def run(*, quick: bool) -> Report:
    repeats, calls, imports = (5, 300, 5) if quick else (15, 1000, 21)
    report = Report("backend_overhead", {"calls": calls, "repeats": repeats})
    table = report.table("µs of processor time per call, one rank", ["", "dlcp", "gloo"])
    found = {backend: _ask(backend, repeats, calls) for backend in ("dlcp", "gloo")}
    for name in found["dlcp"]:
        table.add(name, *(spread(times[name], 1) for times in found.values()))
    report.at_most(BUCKET_US_AT_MOST, "a bucket, µs", Figure.of(found["dlcp"]["all_reduce, future, wait"]))
    report.at_most(IMPORT_MS_AT_MOST, "import torch, ms more", _import_ms(imports))
    return report


def _ask(backend: str, repeats: int, calls: int) -> dict[str, list[float]]:
    """Every figure of one backend, from a process of its own: one less thing that differs."""
    line = [sys.executable, "-m", "bench.backend_overhead", backend, str(repeats), str(calls)]
    found: dict[str, list[float]] = {}
    for row in programs.run(line, timeout_s=600).splitlines():
        name, _, values = row.rpartition(":")
        found[name] = [float(value) for value in values.split()]
    return found


def _measure(backend: str, repeats: int, calls: int) -> None:
    """Prints `name: µs µs …`, a line per kind of call."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    import dlcp.torch  # noqa: F401  # registers

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        group = dist.group.WORLD
        tensor, strided = torch.ones(4), torch.ones(4, 2)[:, 0]
        outputs = [torch.empty(4)]
        options = dist.AllreduceOptions()

        def bucket() -> None:
            # As DDP's reducer does it, but for its C++.
            group.allreduce([tensor], options).get_future().wait()

        kinds: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(tensor),
            "all_reduce, strided": lambda: dist.all_reduce(strided),
            "all_reduce, future, wait": bucket,
            "all_gather": lambda: dist.all_gather(outputs, tensor),
            "broadcast": lambda: dist.broadcast(tensor, 0),
            "barrier": lambda: dist.barrier(),
            "functional all_reduce, wait": lambda: functional.all_reduce(tensor, "sum", group).sum(),
        }
        for name, call in kinds.items():
            for _ in range(50):
                call()
            print(f"{name}:", *(f"{_per_call_us(call, calls):.2f}" for _ in range(repeats)))
        dist.destroy_process_group()


def _per_call_us(call: Callable[[], object], calls: int) -> float:
    start_ns = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start_ns) / calls / 1e3


def _import_ms(imports: int) -> Figure:
    """Milliseconds of processor time that importing torch takes more with the backend registered."""
    code = "import time; s = time.process_time(); import torch; print(time.process_time() - s)"
    with tempfile.TemporaryDirectory() as folder:
        # An installed dlcp says this in its metadata; here it is said for this tree, whatever is installed.
        made = Path(folder) / "as_if_installed-1.0.dist-info"
        made.mkdir()
        (made / "METADATA").write_text("Metadata-Version: 2.1\nName: as-if-installed\nVersion: 1.0\n")
        (made / "entry_points.txt").write_text("[torch.backends]\ndlcp = dlcp.torch.registration:register\n")
        root = str(programs.ROOT)
        settings = {
            "with": {"PYTHONPATH": os.pathsep.join([root, folder])},
            "without": {"PYTHONPATH": root, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        }
        seconds: dict[str, list[float]] = {name: [] for name in settings}
        for _ in range(imports):
            for name, more in settings.items():
                done = subprocess.run(
                    [sys.executable, "-c", code],
                    capture_output=True,
                    text=True,
                    env=os.environ | more,
                    check=True,
                )
                seconds[name].append(float(done.stdout))
    # Of each the median: a busy machine makes single ones longer by more than what is asked for.
    return Figure.of([1e3 * (statistics.median(seconds["with"]) - statistics.median(seconds["without"]))])


if __name__ == "__main__":
    _measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
