"""The tests that need a GPU and `bench gpu`, in at most ten minutes: `gpu.py [BENCH_ARGUMENT ...]` (make gpu).

The environment, build/gpu, has torch as PyPI has it, with CUDA (6 GB). It is left for a look; the next call
replaces it.

Status 0: all tests passed and the bench ran; 1: not so, or not in time; 3: there is no GPU, and nothing was installed.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from pathlib import Path

from environments import ROOT, interpreter_of_new

WORK = ROOT / "build" / "gpu"
LIMIT_S = 600.0
WORDS = "needs a CUDA device"
"""Why tests that need a GPU are skipped."""
NO_GPU = 3


def main() -> int:
    if not devices():
        print("no CUDA device: the driver's libcuda.so.1 is not here, or finds none")
        return NO_GPU
    end_s = time.monotonic() + LIMIT_S
    if not (files := tests()):
        raise SystemExit(f"no test says {WORDS!r}")
    try:
        python = interpreter_of_new(WORK, [torch()], timeout_s=LIMIT_S)
        for words in (
            ["-c", "import torch; torch.zeros(1, device='cuda')"],
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
            ["-m", "bench", "gpu", *sys.argv[1:]],
        ):
            subprocess.run([python, *words], cwd=ROOT, check=True, timeout=max(1.0, end_s - time.monotonic()))
    except subprocess.SubprocessError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def devices() -> int:
    """How many the driver has."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    return 0 if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) else count.value


def torch() -> str:
    """The version of constraints.txt, to the letter: not a build for processors, such as 2.13.0+cpu."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (pinned,) = (line.removeprefix("torch==") for line in lines if line.startswith("torch=="))
    return f"torch==={pinned}"


def tests() -> list[Path]:
    return [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if WORDS in file.read_text()]


if __name__ == "__main__":
    sys.exit(main())
