"""Shell completion of `dlcp` as argcomplete's hook asks for it, and what it costs where nobody asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def complete(line: str, answer: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    asked |= {"_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    asked |= {"_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    command = [sys.executable, "-m", "dlcp"]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | asked | environ)


@pytest.mark.parametrize(
    ("line", "found", "absent"),
    [
        ("dlcp ", {"bench", "switch", "version"}, {"--help"}),
        ("dlcp tr", {"train"}, {"version"}),
        ("dlcp train --recipe ", {"exact", "low_bit", "dlcp"}, {"--recipe"}),
        ("dlcp switch ", {"policy", "run"}, {"bench"}),
        ("dlcp switch show policy.toml --t", {"--target"}, {"--json"}),
        ("dlcp sim report --c", {"--csv", "--chrome-trace"}, {"--set"}),
        ("dlcp lab fault l0-s1 --d", {"--down"}, {"--up"}),
        ("dlcp bench --beside ", {"gloo"}, set()),
    ],
)
def test_a_line_goes_on(line: str, found: set[str], absent: set[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete", reason="needs argcomplete: pip install '.[completion]'")
    done = complete(line, tmp_path / "answer")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    words = {word.strip() for word in (tmp_path / "answer").read_text().split("\n")}
    assert found <= words
    assert not absent & words


@pytest.mark.parametrize("line", ["dlcp ", "dlcp version ", "dlcp switch policy "])
def test_without_argcomplete_a_shell_gets_nothing(line: str, tmp_path: Path) -> None:
    (tmp_path / "argcomplete.py").write_text("raise ImportError")
    done = complete(line, tmp_path / "answer", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_where_no_shell_asks_it_is_not_loaded() -> None:
    code = "import sys; from dlcp.cli import main; main(['version']); print('argcomplete' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
