"""doctest programs as pytest sees them: their cases, and one case run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest


def cases(program: Path) -> list[str]:
    """The names of the doctest cases, in order; none when the program is not built or does not start."""
    if not program.is_file():
        return []
    listing = subprocess.run(
        [program, "--list-test-cases", "--no-colors"], capture_output=True, text=True, check=False
    )
    lines = listing.stdout.splitlines()
    return list(dict.fromkeys(line for line in lines if not line.startswith(("[doctest]", "====="))))


def skipped(output: str) -> str | None:
    """Why a case was not run, from what it printed: MESSAGE("skipped: " << why), and nothing was checked.

    doctest itself knows no case that finds out while it runs that it cannot. One that leaves out a part and checks the
    rest has run.
    """
    words = re.search(r"MESSAGE: skipped: (.+)", output)
    return words[1] if words and re.search(r"assertions: +0 ", output) else None


def check_case(program: Path, case: str) -> None:
    """Runs one case, which may skip; what it printed is in the failure."""
    # In a doctest filter a comma separates, * and ? are wild: ? stands for each of them.
    pattern = re.sub(r"[,*\\]", "?", case)
    command = [program, f"--test-case={pattern}", "--no-colors"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\nagain: {' '.join(map(str, command))}"
    assert "test cases: 0 " not in " ".join(result.stdout.split()), "the filter matched no test case"
    if (why := skipped(result.stdout)) is not None:
        pytest.skip(why)
