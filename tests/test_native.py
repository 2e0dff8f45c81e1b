"""Runs the C++ tests, one item per doctest case.

The program comes from `make native`; DLCP_NATIVE_BUILD names another build folder (a sanitized one, say).
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("DLCP_NATIVE_BUILD", "build/native")


def built_program() -> Path:
    """The path of dlcp_tests, which must have been built."""
    path = BUILD / "dlcp_tests"
    assert path.is_file(), f"{path} is not built: run `make native`"
    return path


def doctest_cases() -> list[str]:
    """The names of the doctest cases, in order; none when the program is not built or does not start."""
    tests = BUILD / "dlcp_tests"
    if not tests.is_file():
        return []
    listing = subprocess.run(
        [tests, "--list-test-cases", "--no-colors"], capture_output=True, text=True, check=False
    )
    lines = listing.stdout.splitlines()
    return list(dict.fromkeys(line for line in lines if not line.startswith(("[doctest]", "====="))))


def test_cases_are_listed() -> None:
    built_program()
    assert doctest_cases()


@pytest.mark.parametrize("case", doctest_cases())
def test_case(case: str) -> None:
    # In a doctest filter a comma separates, * and ? are wild: ? stands for each of them.
    pattern = re.sub(r"[,*\\]", "?", case)
    command = [built_program(), f"--test-case={pattern}", "--no-colors"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\nagain: {' '.join(map(str, command))}"
    assert "test cases: 0 " not in " ".join(result.stdout.split()), "the filter matched no test case"
