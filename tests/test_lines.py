"""The length of each room is stored, so that growth shows in a diff."""

from __future__ import annotations

from pathlib import Path

from tests.support.lines import TABLE, table


def test_rooms_are_as_long_as_the_table_says() -> None:
    assert table() == TABLE.read_text(), "a room has another length: shorten it, or `make lines` and say why"


def test_length_is_counted_by_room_and_kind(tmp_path: Path) -> None:
    for name, text in (
        ("native/engine/a.cpp", "x\n" * 101),
        ("native/engine/deep/b.hpp", "x\n" * 100),
        ("native/engine/b.so", "made"),
        ("docs/a.md", "x\n"),
        ("docs/a.json", "x" * 10_001),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    rows = [line.split() for line in table(tmp_path).splitlines()[1:]]
    assert rows == [["docs", "0", "100", "20"], ["native/engine", "300", "0", "0"]]
