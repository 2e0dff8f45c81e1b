"""The examples under the tools that people train with: `frameworks.py [PACKAGE ...]` (make test-frameworks).

What does not install is named, and its examples are skipped. The environment, build/frameworks, takes up to 8 GB. It
is left for a look; the next call replaces it. Ends with pytest's status.
"""

from __future__ import annotations

import subprocess
import sys

from environments import ROOT, install, interpreter_of_new

WORK = ROOT / "build" / "frameworks"
# One after another, because some exclude others' dependencies. DeepSpeed asks for torch while it is built.
PACKAGES = ("transformers accelerate", "lightning", "ray[train]", "torchft", "jax", "tensorflow", "deepspeed")
TESTS = ("tests/test_examples.py", "tests/test_numpy.py")
INSTALL_S = 900.0


def main() -> int:
    python = interpreter_of_new(WORK, ["torch", "setuptools", "wheel"])
    for words in sys.argv[1:] or PACKAGES:
        try:
            install(python, words.split(), INSTALL_S)
        except subprocess.SubprocessError as error:
            print(f"{words}: not installed: {error}", flush=True)
    return subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS], cwd=ROOT
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
