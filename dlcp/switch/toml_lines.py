"""Where the keys of a TOML text stand: path of a key → its line, so that what is wrong with a value can be pointed at.

The text has been parsed: it is TOML. What it means does not matter, nor whether it is a policy at all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any


def toml_lines(text: str) -> dict[str, int]:
    """Path of every key of a TOML text → its line, counted from 1.

    What a class has by the name of shared thresholds is found where they are written down.
    """
    lines = dict(_Scanner(text).keys())
    return {**_borrowed(tomllib.loads(text), lines), **lines}


def _borrowed(policy: Mapping[str, Any], lines: Mapping[str, int]) -> dict[str, int]:
    """Lines of `class[i].critical` and the like in [thresholds.NAME], of classes that name it."""
    places = [("", policy), *((f"port[{i}].", port) for i, port in _tables(policy, "port"))]
    found: dict[str, int] = {}
    for prefix, table in places:
        for i, of_class in _tables(table, "class"):
            if (name := of_class.get("thresholds")) is not None:
                shared = f"thresholds.{name}."
                owner = f"{prefix}class[{i}]."
                found |= {
                    owner + key.removeprefix(shared): line
                    for key, line in lines.items()
                    if key.startswith(shared)
                }
    return found


def _tables(table: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The tables of an array of that name, with their places; none, if it is something else."""
    value = table.get(name)
    for index, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, Mapping):
            yield index, entry


def nearest_line(lines: Mapping[str, int], field: str) -> int | None:
    """The line of a field, or of the innermost thing around it that is written down."""
    while field:
        if field in lines:
            return lines[field]
        cut = max(field.rfind("."), field.rfind("["))
        field = field[:cut] if cut > 0 else ""
    return None


class _Scanner:
    """Walks over TOML by its brackets and quotes alone; what the values are does not matter here."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tables: dict[str, int] = {}  # arrays of tables by resolved path → how many there were

    def keys(self) -> Iterator[tuple[str, int]]:
        prefix = ""
        while True:
            self._skip(" \t\r\n")
            if self._at >= len(self._text):
                return
            if self._text[self._at] == "[":
                array = self._text.startswith("[[", self._at)
                line = self._line()
                self._at += 2 if array else 1
                begin = self._at
                while self._text[self._at] != "]":
                    self._at = self._after_quotes() if self._text[self._at] in "\"'" else self._at + 1
                prefix = self._resolve(self._text[begin : self._at].strip(), array)
                self._at += 2 if array else 1
                yield prefix, line
            else:
                yield from self._pair(prefix)

    def _resolve(self, name: str, array: bool) -> str:
        """The path of a header: names of arrays of tables stand for their last one."""
        path = ""
        parts = [part.strip().strip("\"'") for part in name.split(".")]
        for index, part in enumerate(parts):
            path = f"{path}.{part}" if path else part
            if array and index == len(parts) - 1:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = f"{path}[{self._tables[path] - 1}]"
        return path

    def _pair(self, prefix: str) -> Iterator[tuple[str, int]]:
        line = self._line()
        begin = self._at
        while self._text[self._at] != "=":
            self._at = self._after_quotes() if self._text[self._at] in "\"'" else self._at + 1
        key = ".".join(p.strip().strip("\"'") for p in self._text[begin : self._at].split("."))
        self._at += 1
        path = f"{prefix}.{key}" if prefix else key
        yield path, line
        yield from self._value(path)

    def _value(self, path: str) -> Iterator[tuple[str, int]]:
        self._skip(" \t\r\n")
        opening = self._text[self._at : self._at + 1]
        if opening in ("[", "{"):
            closing = "]" if opening == "[" else "}"
            self._at += 1
            index = 0
            while True:
                self._skip(" \t\r\n,")
                if self._text[self._at] == closing:
                    self._at += 1
                    return
                if opening == "{":
                    yield from self._pair(path)
                else:
                    yield f"{path}[{index}]", self._line()
                    yield from self._value(f"{path}[{index}]")
                index += 1
        elif opening in ("'", '"'):
            self._at = self._after_quotes()
        else:
            while self._at < len(self._text) and self._text[self._at] not in ",]}\n#":
                self._at += 1

    def _skip(self, blanks: str) -> None:
        """Over blanks and comments."""
        while self._at < len(self._text):
            if self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._text[self._at] in blanks:
                self._at += 1
            else:
                return

    def _after_quotes(self) -> int:
        quote = self._text[self._at]
        closing = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        at = self._at + len(closing)
        while not self._text.startswith(closing, at):
            at += 2 if quote == '"' and self._text[at] == "\\" else 1
        at += len(closing)
        # A text in three quotes may itself end with one or two.
        while len(closing) == 3 and self._text.startswith(quote, at):
            at += 1
        return at

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
