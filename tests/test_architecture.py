"""ARCHITECTURE.md shows the state machines as the code has them, and names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import drawings


def test_drawings_are_those_of_the_tables() -> None:
    document = drawings.DOCUMENT.read_text()
    assert drawings.redrawn(document, drawings.TABLES.read_text()) == document, "run `make drawings`"


def test_files_it_names_exist(repository: Path) -> None:
    text = (repository / "ARCHITECTURE.md").read_text()
    names = re.findall(r"`([\w/]+\.(?:md|py|hpp|cpp|txt|toml))`", text)
    places = [
        "",
        "sim/core",
        "native",
        "native/io",
        "native/engine",
        "dlcp/transport/schedule",
        "dlcp/switch",
    ]
    places += ["native/switch", "tests/support", "docs"]
    missing = [name for name in names if not any((repository / place / name).exists() for place in places)]
    assert missing == []
