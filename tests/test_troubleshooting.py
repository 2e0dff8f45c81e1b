"""docs/troubleshooting.md quotes what the code says, and the docstrings of the errors."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from dlcp import errors

ROOT = Path(__file__).resolve().parent.parent
ROWS = re.findall(
    r"^\| (.+?) \| (.*?) ?\| (.+) \|$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE
)
ROWS = [row for row in ROWS if "`" in row[0]]
"""What it says, what it means, what to do."""
ELSEWHERE = {
    "ReplicaError": "Ranks that should hold the same values do not.",  # dlcp.torch, which loads torch
    "ValueError": "",
}

OF_OTHERS = {"Your assigned backend dlcp is not available"}  # as docs/frameworks.md has it


def code() -> str:
    """C++ and Python that ships, with texts that go on in the next line in one piece."""
    files = [file for folder in ("dlcp", "native") for file in sorted((ROOT / folder).rglob("*"))]
    text = "\n".join(file.read_text() for file in files if file.suffix in {".cpp", ".hpp", ".py"})
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_every_quoted_text_is_said() -> None:
    text = code()
    quoted = [
        span for says, _, _ in ROWS for span in re.findall(r"`([^`]+)`", re.sub(r"^`\w+Error`:", "", says))
    ]
    assert {span for span in quoted if span not in text} == OF_OTHERS
    others = (ROOT / "docs" / "frameworks.md").read_text()
    assert [span for span in OF_OTHERS if span not in others] == []
    assert len(quoted) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_meanings_are_docstrings(row: tuple[str, str, str]) -> None:
    says, means, _ = row
    if (named := re.match(r"`(\w+)`:", says)) is None:
        return  # a warning
    found = ELSEWHERE.get(named[1])
    if found is None:
        found = (inspect.getdoc(getattr(errors, named[1])) or "").partition("\n\n")[0].replace("\n", " ")
    assert means == found
