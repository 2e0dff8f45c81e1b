"""Runs the C++ tests of the simulator, one item per doctest case.

The program comes from `make native`; DLCP_NATIVE_BUILD names another build folder (a sanitized one, say).
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import ROOT
from tests.support import doctest

PROGRAM = ROOT / os.environ.get("DLCP_NATIVE_BUILD", "build/native") / "dlcp_sim_tests"
CASES = doctest.cases(PROGRAM)


def test_cases_are_listed() -> None:
    assert PROGRAM.is_file(), f"{PROGRAM} is not built: run `make native`"
    assert CASES


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    doctest.check_case(PROGRAM, case)
