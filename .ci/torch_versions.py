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
from pathlib import Path

from environments import ROOT, interpreter_of_new

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
        python = interpreter_of_new(folder, [f"torch=={version}"], timeout_s=INSTALL_S)
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
