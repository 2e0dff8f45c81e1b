"""What files of the kernel and programs of the system say; what cannot be read or run says nothing."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path


def read(path: str | Path) -> str | None:
    """A file's text without white space at its ends; None: it is not there or not for us."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def lines(path: str | Path) -> list[list[str]]:
    """The words of each line; none of a file that cannot be read."""
    return [line.split() for line in (read(path) or "").splitlines()]


def output(program: str, *words: str) -> str | None:
    """What a program prints; None: it is not there, or refuses."""
    path = shutil.which(program)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if path is not None:
            done = subprocess.run([path, *words], capture_output=True, text=True, timeout=10)
            return done.stdout if done.returncode == 0 else None
    return None
