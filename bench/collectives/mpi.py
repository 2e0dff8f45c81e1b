"""Open MPI on one host, which below 4 MB is dlcp's rival and not Gloo: a C program, compiled when mpicc is here.

It runs without torch and Python, which cost dlcp some 11 µs of each all-reduce. Ranks that wait yield their core, as
there may be fewer cores than ranks.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from bench import programs
from bench.collectives.timing import Timing
from bench.collectives.world import Backend

NAME = "mpi"
SHM = Backend("Open MPI, shared memory", NAME, {"btl": "self,vader"})
TCP = Backend("Open MPI, TCP", NAME, {"btl": "self,tcp", "btl_tcp_if_include": "lo"})
SIZES = (4 << 10, 64 << 10, 1 << 20)
"""Of messages where it is the rival, and Gloo is none."""


class Allowed(NamedTuple):
    """What an all-reduce may take, by what Open MPI takes."""

    times: float
    plus_s: float
    """For Python and torch, which it runs without."""

    def __str__(self) -> str:
        return f"{self.times:g} x Open MPI + {self.plus_s * 1e6:g} us"


SHM_ALLOWED = {2: Allowed(1.0, 15e-6), 4: Allowed(2.0, 40e-6)}
"""By ranks, over shared memory."""
TCP_ALLOWED = {2: Allowed(1.6, 15e-6), 4: Allowed(2.0, 40e-6)}
"""Through the loopback interface, dlcp's packets with tags."""
_SOURCE = programs.ROOT / "bench" / "native" / "mpi_allreduce.c"
_PROGRAM = programs.ROOT / "build" / "bench" / "mpi_allreduce"


@functools.cache
def missing() -> str | None:
    """Why it is not measured, or None."""
    if not (shutil.which("mpicc") and shutil.which("mpirun")):
        return "Open MPI is not measured: no mpicc and mpirun here (Debian: libopenmpi-dev, openmpi-bin)"
    if "Open MPI" not in programs.run(["mpirun", "--version"]):
        return "Open MPI is not measured: mpirun is another MPI's"
    return None


def time_all_reduce(
    backend: Backend, world: int, sizes: Sequence[int], seconds: float, iterations_max: int
) -> list[list[Timing]]:
    """Per rank the timings of each size, for about `seconds` each. Raises ProgramError."""
    _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    programs.run(["mpicc", "-O3", "-march=native", "-o", _PROGRAM, _SOURCE])
    words = ["mpirun", *["--allow-run-as-root"] * (os.geteuid() == 0), "--oversubscribe", "--bind-to", "none"]
    for key, value in {"mpi_yield_when_idle": "1", "pml": "ob1", **backend.environment}.items():
        words += ["--mca", key, value]
    line = [*words, "-n", str(world), _PROGRAM, seconds, iterations_max, *sizes]
    told = json.loads(programs.run([str(word) for word in line], timeout_s=600))
    return [
        [Timing(**of_size[rank], wire_bytes=0, kernel={}, engine={}, path={}) for of_size in told]
        for rank in range(world)
    ]
