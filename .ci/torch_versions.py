"""What dlcp's smoke tests say under other versions of torch: `torch_versions.py [VERSION ...]` (make test-torch).

Each version gets a fresh environment under build/torch: torch as PyPI has it (up to 6 GB with CUDA's libraries, which
it does not load without) and dlcp as it is installed for the interpreter that runs this; nothing is compiled. The
environment goes after its run; pytest's output stays in build/torch/VERSION.log. Ends with 1 if a test failed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "torch"
# The oldest that pyproject.toml accepts, and since then every minor version.
VERSIONS = "2.11.0 2.12.1 2.13.0 2.14.1"
INSTALL_S, RUN_S = 1800, 1800


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS.split())
    WORK.mkdir(parents=True, exist_ok=True)
    said = [tried(version) for version in parser.parse_args().versions]
    print("\n".join(["| torch | Python | passed | failed | skipped |", "|---|---|---|---|---|", *said]))
    return any(line.split(" | ")[3] != "0" or line.split(" | ")[2] == "0" for line in said)


def tried(version: str) -> str:
    """A line of the table. One that could not be installed has a "?" in each column, one that hung too."""
    folder = WORK / version
    counts = dict.fromkeys(("passed", "failed", "skipped"), "?")
    try:
        python = environment(folder, version)
        said = said_by_pytest(python, WORK / f"{version}.log")
        counts = {name: found(said, name) for name in ("passed", "failed", "skipped")}
        counts["failed"] = str(int(counts["failed"]) + int(found(said, "error")))
    except (subprocess.SubprocessError, LookupError) as error:
        print(f"torch {version}: {error}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    line = f"| {version} | {sysconfig.get_python_version()} | {' | '.join(counts.values())} |"
    print(line, flush=True)
    return line


def environment(folder: Path, version: str) -> Path:
    """An environment's interpreter: torch in this version, what the tests need, and dlcp as it is installed here."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    constraints = WORK / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in lines if not line.startswith("torch==")))
    packages = [*project["dependencies"], *project["optional-dependencies"]["test"], f"torch=={version}"]
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
    subprocess.run([*pip, *packages], check=True, timeout=INSTALL_S)
    # An editable install: where the packages are, the modules in C++, and the entry point.
    own = Path(sysconfig.get_path("purelib"))
    there = folder / own.relative_to(sys.prefix)
    for part in (*own.glob("_editable_*dlcp*"), *own.glob("dlcp*")):
        (shutil.copytree if part.is_dir() else shutil.copy)(part, there / part.name)
    return python


def said_by_pytest(python: Path, log: Path) -> str:
    """Pytest's summary, of one line. Raises LookupError: there is none."""
    words = [
        "-m",
        "pytest",
        "-m",
        "smoke",
        "-n",
        "2",
        "--dist",
        "loadscope",
        "-p",
        "no:cacheprovider",
        "tests/torch",
    ]
    with log.open("w") as out:
        subprocess.run([python, *words], cwd=ROOT, stdout=out, stderr=out, timeout=RUN_S)
    summary = re.findall(r"=+ (.* in [\d.]+s.*) =+", log.read_text())
    if not summary:
        raise LookupError(f"pytest did not get to its end; see {log}")
    return str(summary[-1])


def found(summary: str, what: str) -> str:
    count = re.search(rf"(\d+) {what}", summary)
    return count[1] if count else "0"


if __name__ == "__main__":
    sys.exit(main())
