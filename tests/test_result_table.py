"""The stored table of completion times by loss, load and mode: a change of behaviour is a diff."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest

STORED = "tests/tables/transport.txt"


@pytest.mark.timeout(300)
def test_result_table_is_what_is_stored(repository: Path, native_build: Path) -> None:
    program = native_build / "dlcp_property"
    assert program.is_file(), f"{program} is not built: run `make native`"
    now = subprocess.run([program, "--table"], capture_output=True, check=True).stdout
    stored = (repository / STORED).read_bytes()
    if now == stored:
        return
    lines = (text.decode().splitlines() for text in (stored, now))
    diff = "\n".join(difflib.unified_diff(*lines, "stored", "now", lineterm=""))
    pytest.fail(
        f"behaviour has changed:\n{diff}\n\nIf that is meant, store it and say why in the commit:\n"
        f"  build/native/dlcp_property --table > {STORED}",
        pytrace=False,
    )


def test_result_table_has_no_failed_row(repository: Path) -> None:
    assert "FAILED" not in (repository / STORED).read_text(encoding="utf-8")
