"""Runs the C++ tests, one item per doctest case.

The programs come from `make native`; DLCP_NATIVE_BUILD names another build folder (a sanitized one, say).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import doctest

BUILD = ROOT / os.environ.get("DLCP_NATIVE_BUILD", "build/native")
PROGRAM, SIMULATOR = BUILD / "dlcp_tests", BUILD / "dlcp_sim_tests"
CASES = {program: doctest.cases(program) for program in (PROGRAM, SIMULATOR)}


@pytest.mark.parametrize("program", CASES, ids=lambda program: program.name)
def test_cases_are_listed(program: Path) -> None:
    assert program.is_file(), f"{program} is not built: run `make native`"
    assert CASES[program]


@pytest.mark.parametrize(
    ("program", "case"),
    [pytest.param(program, case, id=case) for program, cases in CASES.items() for case in cases],
)
def test_case(program: Path, case: str) -> None:
    doctest.check_case(program, case)


def test_case_that_cannot_run_is_skipped(tmp_path: Path) -> None:
    alone = shutil.copy(PROGRAM, tmp_path)  # the dpdk driver would be beside it
    case = next(case for case in CASES[PROGRAM] if case.startswith("dpdk: "))
    with pytest.raises(pytest.skip.Exception, match="no .*libdlcp_io_dpdk"):
        doctest.check_case(alone, case)


def test_case_that_leaves_out_a_part_is_not_skipped() -> None:
    part = "MESSAGE: skipped: ipsec-mb is not on this machine\n[doctest] assertions: {} | 7 passed |\n"
    assert doctest.skipped(part.format(7)) is None
    assert doctest.skipped(part.format(0)) == "ipsec-mb is not on this machine"
    assert doctest.skipped("[doctest] assertions: 0 | 0 passed |\n") is None
