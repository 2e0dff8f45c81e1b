"""Environments of their own for the programs beside this one: packages of PyPI, and dlcp as it is installed here.

Nothing is compiled: dlcp is that of the interpreter that runs this, in place (an editable install).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def interpreter_of_new(folder: Path, packages: list[str], *, timeout_s: float = 1800) -> Path:
    """An environment's interpreter, with dlcp, what its tests need, and the packages.

    What constraints.txt pins, comes so, unless a package says another version. Raises subprocess.SubprocessError.
    """
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    install(
        python, [*project["dependencies"], *project["optional-dependencies"]["test"], *packages], timeout_s
    )
    # An editable install: where the packages are, the modules in C++, and the entry point.
    own = Path(sysconfig.get_path("purelib"))
    there = folder / own.relative_to(sys.prefix)
    for part in (*own.glob("_editable_*dlcp*"), *own.glob("dlcp*")):
        (shutil.copytree if part.is_dir() else shutil.copy)(part, there / part.name)
    return python


def install(python: Path, packages: list[str], timeout_s: float) -> None:
    """Adds packages. Raises subprocess.SubprocessError."""
    constraints = python.parent.parent / "constraints.txt"
    pinned_by_caller = {package.split("==")[0] for package in packages if "==" in package}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in lines if line.split("==")[0] not in pinned_by_caller))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-qq",
        "--no-compile",
        "-c",
        constraints,
    ]
    subprocess.run([*pip, *packages], check=True, timeout=timeout_s)
