"""The README's examples run, and the make targets it names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE))
def test_example_runs(code: str) -> None:
    pytest.importorskip("dlcp._native", reason="the extension module is not built")
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_make_targets_exist(repository: Path) -> None:
    named = set(re.findall(r"`make ([\w-]+)", README))
    makefile = (repository / "Makefile").read_text()
    assert named
    assert named - set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE)) == set()


def test_files_it_names_exist(repository: Path) -> None:
    names = re.findall(r"`([\w/]+\.(?:md|hpp|txt|toml))`", README)
    assert [name for name in names if not (repository / name).exists()] == []
