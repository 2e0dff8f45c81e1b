"""The `dlcp` command where dlcp is installed without extras: all works but training, which asks for torch."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
import tomllib
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dlcp.lab.switched_lab import missing

# As ranks and users run it: by the environment's own interpreter, with nothing of the test's.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DLCP_"))}
INCAST = """
fabric = { kind = "leaf_spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
transport = { kind = "dlcp" }
workload = { kind = "incast", senders = 3, to = 0, bytes = 100_000 }
"""
NEEDS_TORCH = "this needs torch, which is not installed: pip install torch"


def distributions(requirements: Iterable[str]) -> Iterator[importlib.metadata.Distribution]:
    """Those that are required, and what they require without any extra."""
    for requirement in requirements:
        if "extra" not in requirement:
            found = importlib.metadata.distribution(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
            yield found
            yield from distributions(found.requires or ())


@pytest.fixture(scope="module")
def python(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has dlcp, as it is installed here, and its dependencies only."""
    folder = tmp_path_factory.mktemp("plain")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    for distribution in [
        importlib.metadata.distribution("dlcp"),
        *distributions(project["dependencies"]),
    ]:
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            with contextlib.suppress(FileExistsError):
                (site / top).symlink_to(str(distribution.locate_file(top)))
    return folder / "bin" / "python"


def dlcp(python: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "dlcp", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=python.parent,
        env=ENVIRONMENT,
        timeout=120,
    )


def test_it_is_an_environment_without_torch(python: Path) -> None:
    done = dlcp(python, "version")
    assert done.returncode == 0, done.stderr
    assert "torch not installed" in done.stdout.splitlines()
    code = "import dlcp.transport, dlcp_sim, dlcp.switch, dlcp.hub, torch"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, cwd="/")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["settings"], "DLCP_PATHS"),
        (["ping", "--demo", "--count", "1"], "loopback|bit/s"),
        (["sim", "run", "incast.toml"], "flows"),
        (["switch", "policy"], "rate_bps"),
        (["study", "--help"], "precision"),
        (["lab", "status"], "no lab"),
        (["hub", "--help"], "--roots"),
        (["train", "--help"], "--recipe"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_command_works(python: Path, words: list[str], said: str) -> None:
    (python.parent / "incast.toml").write_text(INCAST)
    done = dlcp(python, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(said, done.stdout), done.stdout


def test_doctor_warns_of_it_and_that_is_no_failure(python: Path) -> None:
    done = dlcp(python, "doctor", "--json")
    assert done.stderr == ""
    assert '"torch is not installed: init_process_group' in done.stdout.replace("\\", "")
    assert '"fail"' not in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words", [["train", "--model", "language"], ["study", "precision", "--quick"], ["study", "mse"]]
)
def test_what_trains_asks_for_torch_in_one_sentence(python: Path, tmp_path: Path, words: list[str]) -> None:
    out = "--output" if words[0] == "train" else "--out"
    done = dlcp(python, *words, out, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "torch" in line
    assert "pip install torch" in line


@pytest.mark.needs_root
@pytest.mark.skipif((reason := missing()) is not None, reason=reason or "")
def test_ranks_of_a_lab_start_and_a_doctor_among_them_asks_for_torch(python: Path) -> None:
    """A doctor that is a launcher's rank meets the others at the launcher's store, which is torch's."""
    lab = ["lab", "run", "star", "--switch", "none", "--"]
    assert dlcp(python, *lab, python, "-c", "import dlcp.transport").returncode == 0
    done = dlcp(python, *lab, python, "-m", "dlcp", "doctor")
    assert done.returncode == 2
    assert f"dlcp doctor: {NEEDS_TORCH}" in done.stderr
    assert "Traceback" not in done.stderr
