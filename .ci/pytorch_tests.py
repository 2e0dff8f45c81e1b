"""PyTorch's own distributed tests over dlcp: `pytorch_tests.py [--size N ...] [--test NAME ...]` (make test-pytorch).

The 285 tests of torch.testing._internal.distributed that torch runs for Gloo, with 2 and 3 ranks on this host. torch
starts a process per rank anew for each test; here ranks are forked from one that has imported torch, which takes
minutes in place of hours. What torch and the ranks say is in build/pytorch. What is expected to fail stands with its
reason in pytorch_failures.txt: a test that fails and is not there, or is there and passes, ends this with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXPECTED = Path(__file__).with_name("pytorch_failures.txt")
LOGS = Path(__file__).resolve().parent.parent / "build" / "pytorch"
SIZES = (2, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs="+", default=SIZES, help="ranks (2 3)")
    parser.add_argument("--test", nargs="+", default=[], metavar="NAME", help="these alone")
    parser.add_argument("--backend", default="dlcp", help="another one, to compare with (dlcp)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        return run(options.size[0], options.test)
    LOGS.mkdir(parents=True, exist_ok=True)
    status = 0
    for size in options.size:  # torch reads the size when its tests are imported
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                "BACKEND": "gloo",
                "RUN_BACKEND": options.backend,
                "WORLD_SIZE": str(size),
                "TEMP_DIR": folder,
                "OMP_NUM_THREADS": "1",
            }
            words = [sys.executable, __file__, "--here", "--size", str(size)]
            words += ["--test", *options.test] if options.test else []
            with (LOGS / f"{options.backend}-{size}.log").open("w") as log:
                status |= subprocess.run(words, env=os.environ | environment, stderr=log).returncode
    return status


def expected(size: int) -> dict[str, str]:
    """Reasons by the names of tests that fail with so many ranks. A line: sizes, name, reason."""
    lines = [
        line.split(maxsplit=2) for line in EXPECTED.read_text().splitlines() if line[:1] not in ("", "#")
    ]
    return {name: reason for sizes, name, reason in lines if str(size) in sizes.split(",")}


def run(size: int, names: list[str]) -> int:
    """The tests with ranks forked from this process."""
    import torch
    from torch.testing._internal.common_distributed import MultiProcessTestCase
    from torch.testing._internal.distributed import distributed_test

    # Imported as Gloo's, since torch skips by a backend's name; run as the other's.
    backend = distributed_test.BACKEND = os.environ["RUN_BACKEND"]
    if backend == "dlcp":
        import dlcp.torch  # noqa: F401  so that forked ranks find it loaded

    def fork(case: MultiProcessTestCase) -> None:
        case._start_processes(torch.multiprocessing.get_context("fork").Process)

    def set_up(case: MultiProcessTestCase) -> None:
        distributed_test.TestDistBackend.setUp(case)
        fork(case)

    kind = type(
        "TestDlcp",
        (distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase),
        {"setUp": set_up},
    )
    globals()["TestDlcp"] = kind
    loader = unittest.TestLoader()
    tests = [kind(name) for name in names or loader.getTestCaseNames(kind)]
    known = expected(size) if backend == "dlcp" else {}
    if unknown := known.keys() - set(loader.getTestCaseNames(kind)):
        print(
            f"{EXPECTED.name} names what torch {torch.__version__} does not have: {', '.join(sorted(unknown))}"
        )
        return 1
    counts = dict.fromkeys(("passed", "failed as expected", "skipped"), 0)
    wrong = []
    for test in tests:
        with contextlib.redirect_stdout(sys.stderr):
            result = unittest.TextTestRunner(io.StringIO(), verbosity=0).run(test)
        name, failed = test._testMethodName, result.failures + result.errors
        if result.skipped and name not in known:
            counts["skipped"] += 1
        elif bool(failed) == (name in known):
            counts["failed as expected" if failed else "passed"] += 1
        else:
            said = failed[0][1].strip().splitlines()[-1] if failed else f"{EXPECTED.name} says: {known[name]}"
            wrong.append(name)
            print(f"{'FAILED' if failed else 'PASSED'} {name}: {said}", flush=True)
            print("\n".join(text for _, text in failed), file=sys.stderr, flush=True)
    said = ", ".join(f"{number} {word}" for word, number in counts.items())
    print(f"torch {torch.__version__}, {size} ranks over {backend}: {said}, {len(wrong)} wrong", flush=True)
    return 1 if wrong or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
