"""Runs the C++ tests, one item per doctest case.

The program comes from `make native`; DLCP_NATIVE_BUILD names another build folder (a sanitized one, say).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import doctest

PROGRAM = ROOT / os.environ.get("DLCP_NATIVE_BUILD", "build/native") / "dlcp_tests"
CASES = doctest.cases(PROGRAM)


def test_cases_are_listed() -> None:
    assert PROGRAM.is_file(), f"{PROGRAM} is not built: run `make native`"
    assert CASES


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    doctest.check_case(PROGRAM, case)


def test_case_that_cannot_run_is_skipped(tmp_path: Path) -> None:
    alone = shutil.copy(PROGRAM, tmp_path)  # the dpdk driver would be beside it
    case = next(case for case in CASES if case.startswith("dpdk: "))
    with pytest.raises(pytest.skip.Exception, match="no .*libdlcp_io_dpdk"):
        doctest.check_case(alone, case)


def test_case_that_leaves_out_a_part_is_not_skipped() -> None:
    part = "MESSAGE: skipped: ipsec-mb is not on this machine\n[doctest] assertions: {} | 7 passed |\n"
    assert doctest.skipped(part.format(7)) is None
    assert doctest.skipped(part.format(0)) == "ipsec-mb is not on this machine"
    assert doctest.skipped("[doctest] assertions: 0 | 0 passed |\n") is None
