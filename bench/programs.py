"""The compiled half of the benchmarks: built on demand, asked by command line, answering one line of JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"


class ProgramError(RuntimeError):
    """A build or a program failed; the message holds its last words."""


def build(*targets: str) -> None:
    """Configures and builds bench/native in build/bench, or some of it. Does nothing that is up to date."""
    if shutil.which("cmake") is None:
        raise ProgramError("the benchmarks need cmake (Debian: cmake, ninja-build)")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DDLCP_BUILD_BENCH=ON"]
    run(["cmake", "-S", str(ROOT), "-B", str(BUILD), *generator, *options])
    run(["cmake", "--build", str(BUILD), "--parallel", *(["--target", *targets] if targets else [])])


def path(name: str) -> Path:
    """Where a program is. Raises ProgramError if it has not been built."""
    for folder in (BUILD, BUILD / "bench"):
        if (found := folder / name).is_file():
            return found
    raise ProgramError(f"{name} is not built: python -m bench --build-only")


def words(name: str, options: dict[str, object]) -> list[str]:
    """The command line of a program of ours: `message_bytes=4` becomes `--message-bytes 4`."""
    line = [str(path(name))]
    for key, value in options.items():
        line += [f"--{key.replace('_', '-')}", str(int(value) if isinstance(value, bool) else value)]
    return line


def ask(name: str, **options: object) -> dict[str, Any]:
    """Runs a program to its end; its answer."""
    answer: dict[str, Any] = json.loads(run(words(name, options), timeout_s=600).splitlines()[-1])
    return answer


def run(line: Sequence[str | os.PathLike[str]], timeout_s: float | None = None) -> str:
    """What a command printed. Raises ProgramError if it failed."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise ProgramError(f"{' '.join(map(str, line))} ended with {done.returncode}:\n{last}")
    return done.stdout
