"""A stored study is of the engine as it is, or docs/studies/simulator/README.md says that it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlcp.study.network._sweep import engine_tree

FOLDER = "docs/studies/simulator"


def test_studies_of_an_older_engine_are_named(repository: Path) -> None:
    tree = engine_tree()
    if tree is None:
        pytest.skip("no git repository")
    stored = {
        path.stem: path.read_text() for path in (repository / FOLDER).glob("*.md") if path.stem != "README"
    }
    older = {name for name, text in stored.items() if f"tree {tree}." not in text}
    said = re.search(r"^Of an older engine: (.*)\.$", (repository / FOLDER / "README.md").read_text(), re.M)
    assert older == set(said[1].split(", ") if said else ()), (
        "one line: 'Of an older engine: a, b.'; or run them again"
    )
