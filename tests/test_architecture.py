"""The map is short and true: rooms have the arrows that are checked, files exist, drawings are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import drawings
from tests.test_layers import CPP_ARROWS, LAZY_PYTHON_ARROWS, PYTHON_ARROWS

LINES_MAX = 300
# What every room of Python may use, and packages that only draw: the table leaves them out.
UNSAID = {"dlcp", "numpy", "matplotlib"}
EXPLAINED = (
    "ARCHITECTURE.md",
    "docs/protocol.md",
    "docs/collectives.md",
    "docs/recipes.md",
    "docs/drivers.md",
)
EXPLAINED += ("docs/simulator/inside.md", "docs/switch/inside.md", "docs/hub.md", "CONTRIBUTING.md")


@pytest.fixture(scope="module")
def rooms(repository: Path) -> dict[str, str]:
    """The last column of the table of rooms, by room."""
    text = (repository / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `([\w/.]+)` \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def names(words: set[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))


def arrows_of_cpp(room: str) -> str:
    used = CPP_ARROWS[room.removeprefix("native/")]
    return names({each if "/" in each else f"native/{each}" for each in used}) or "nothing"


def arrows_of_python(room: str, shown: set[str]) -> str:
    """`a`; on request `b`. Parts of a room without a row of their own count as loaded on request."""
    parts = {each for each in PYTHON_ARROWS if each.startswith(f"{room}.") and each not in shown}
    unsaid = UNSAID | parts | {room}
    lazy = set(LAZY_PYTHON_ARROWS.get(room, ()))
    for part in parts:
        lazy |= PYTHON_ARROWS[part] | LAZY_PYTHON_ARROWS.get(part, set())
    at_once = {whole(each, shown) for each in PYTHON_ARROWS[room]} - unsaid
    lazy = {whole(each, shown) for each in lazy} - unsaid - at_once
    said = [names(at_once), f"on request {names(lazy)}" if lazy else ""]
    return "; ".join(filter(None, said)) or "nothing"


def whole(room: str, shown: set[str]) -> str:
    """The room of the table that a part belongs to."""
    above = room
    while above not in shown and "." in above:
        above = above.rpartition(".")[0]
    return above if above in shown else room


def test_map_is_short(repository: Path) -> None:
    assert len((repository / "ARCHITECTURE.md").read_text().splitlines()) <= LINES_MAX


def test_rooms_of_the_map_are_those_that_are_checked(rooms: dict[str, str]) -> None:
    shown = set(rooms)
    for room, used in rooms.items():
        is_cpp = room.removeprefix("native/") in CPP_ARROWS
        assert used == (arrows_of_cpp(room) if is_cpp else arrows_of_python(room, shown)), room
    assert {each if "/" in each else f"native/{each}" for each in CPP_ARROWS} <= shown
    packages = {each for each in PYTHON_ARROWS if each.count(".") == each.startswith("dlcp.")}
    assert packages - {"dlcp", "dlcp._native"} <= shown


def test_drawings_are_those_of_the_tables() -> None:
    assert drawings.page(drawings.TABLES.read_text()) == drawings.DOCUMENT.read_text(), "run `make drawings`"


@pytest.mark.parametrize("page", EXPLAINED)
def test_files_it_names_exist(repository: Path, page: str) -> None:
    text = (repository / page).read_text()
    # Not in tables of what may be changed, where a name stands for any.
    found = re.findall(r"`([\w/]+\.(?:md|py|hpp|cpp|h|p4|txt|toml))`", text)
    places = (
        "",
        "sim/core",
        "native",
        "native/engine",
        "dlcp/transport/schedule",
        "dlcp/switch",
        "dlcp/torch",
    )
    places += (
        "native/io",
        "native/switch",
        "native/collective",
        "dlcp/torch/gradient",
        "tests/support",
        "docs",
    )
    places += ("dlcp", "dlcp/transport")
    missing = [name for name in found if not any((repository / place / name).exists() for place in places)]
    assert [name for name in missing if name not in EXAMPLES] == []


EXAMPLES = {"policy.toml", "train.py", "base.py", "__init__.py", "choose.py"}
"""Names of a reader's own files, and of a file in a folder that the sentence names."""
