"""Tables of what was worked out, for whoever would work it out again."""

from __future__ import annotations

from typing import Any, TypeVar

Value = TypeVar("Value")


def keep(table: dict[Any, Value], key: Any, value: Value, most: int = 1024) -> Value:
    """Puts `value` into a table, which is emptied first if it holds `most`. Returns the value."""
    if len(table) >= most:
        table.clear()
    table[key] = value
    return value
