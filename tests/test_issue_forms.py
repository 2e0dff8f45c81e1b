"""The forms of issues are what the forge reads, and ask for what a defect needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / ".github" / "ISSUE_TEMPLATE"
TYPES = {"markdown", "input", "textarea", "dropdown", "checkboxes"}


def form(name: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    read: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text())
    return read


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.iterdir()))
def test_form_has_what_the_forge_wants(name: str) -> None:
    read = form(name)
    assert {"name", "description", "body"} <= set(read)
    asked = [field for field in read["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in read["body"]} <= TYPES
    assert all(field["attributes"]["label"] for field in asked)
    assert len({field["id"] for field in asked}) == len(asked)


def test_a_defect_comes_with_version_program_and_doctor() -> None:
    needed = {field["id"] for field in form("defect")["body"] if field.get("validations", {}).get("required")}
    assert {"version", "program", "doctor"} <= needed
