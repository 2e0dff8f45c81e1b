"""A Python with p4runtime-shell, made once in the build folder: its pins contradict those of the packages here."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "p4shell"
REQUIREMENT = "p4runtime-shell==0.0.6"  # the extra [p4shell]
INSTALL_S = 100  # below pytest's own limit; it takes 10 to 40


@functools.cache
def shell_python() -> Path:
    """Its interpreter. Skips the test, with the reason, where it cannot be made."""
    python = FOLDER / "bin" / "python"
    made = FOLDER / "made"
    if made.exists() and made.read_text() == REQUIREMENT:
        return python
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        subprocess.run(
            [sys.executable, "-m", "venv", str(FOLDER)], check=True, capture_output=True, text=True
        )
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", REQUIREMENT],
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(FOLDER, ignore_errors=True)
        words = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        pytest.skip(f"pip cannot install {REQUIREMENT}: {words[-1] if words else error}")
    made.write_text(REQUIREMENT)
    return python
