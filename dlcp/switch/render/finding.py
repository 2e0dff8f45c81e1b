"""What a rendering has to say besides the configuration: where an operating system cannot do what the policy asks.

A finding names the field of the policy by its path in TOML, and its line if the policy came from a file. Three weights:
an error would do the opposite of what is asked, so nothing is rendered; a caveat is rendered as the nearest thing there
is; a note is a property of the system that no policy changes, or something that nobody here has checked.
"""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcp.errors import SettingsError
from dlcp.switch.runs import runs


class Weight(enum.StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    CAVEAT = "caveat"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that the policy asks for, and what the operating system does instead."""

    weight: Weight
    field: str
    """Path in the policy, such as class[2].droppable[0].trim_above_bytes; empty: none in particular."""
    asked: str
    instead: str

    def text(self, lines: Mapping[str, int] | None = None) -> str:
        """A sentence; with `lines`, of `toml_lines`, it begins with the line."""
        where = self.field
        line = _nearest(lines, self.field) if lines and self.field else None
        if line is not None:
            where = f"line {line}: {where}"
        sentence = f"{self.asked}; {self.instead}" if self.asked else self.instead
        return f"{where}: {sentence}" if where else sentence


def sentences(findings: Iterable[Finding], lines: Mapping[str, int] | None = None) -> list[str]:
    """A sentence for each finding; what is true of several places is said once, at the first of them."""
    places: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        places.setdefault((finding.asked, finding.instead), []).append(finding)
    texts = []
    for first, *others in places.values():
        also = _elsewhere(first.field, [other.field for other in others])
        texts.append(first.text(lines) + (f" (also {also})" if also else ""))
    return texts


_OF_CLASS = re.compile(r"(port\[\d+\]\.)?class\[(\d+)\]")


def _elsewhere(first: str, fields: Iterable[str]) -> str:
    """Fields as a person would list them: classes by their runs, `class[1–6]`, and not what is in them once more."""
    named: dict[str, None] = {}
    classes: dict[str, list[int]] = {}
    for field in dict.fromkeys(fields):
        if field == first:
            continue
        if found := _OF_CLASS.match(field):
            where = found[1] or ""
            classes.setdefault(where, []).append(int(found[2]))
            field = where
        named[field] = None
    return ", ".join(f"{name}class[{runs(classes[name])}]" if name in classes else name for name in named)


class RenderError(SettingsError):
    """A policy, a port or an operating system's name that cannot be rendered. Nothing was written.

    `findings`: what was in the way, if it was the policy.
    """

    def __init__(self, text: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(text)
        self.findings = tuple(findings)


# ---- lines of a TOML text ----


def toml_lines(text: str) -> dict[str, int]:
    """Path of every key of a TOML text → its line, counted from 1. The text has been parsed: it is valid.

    What a class has by the name of shared thresholds is found where they are written down.
    """
    lines = dict(_Scanner(text).keys())
    return {**_borrowed(tomllib.loads(text), lines), **lines}


def _borrowed(policy: Mapping[str, Any], lines: Mapping[str, int]) -> dict[str, int]:
    """Lines of `class[i].critical` and the like in [thresholds.NAME], of classes that name it."""
    places = [("", policy), *((f"port[{i}].", port) for i, port in enumerate(policy.get("port", [])))]
    found: dict[str, int] = {}
    for prefix, table in places:
        for i, of_class in enumerate(table.get("class", [])):
            if (name := of_class.get("thresholds")) is not None:
                shared = f"thresholds.{name}."
                owner = f"{prefix}class[{i}]."
                found |= {
                    owner + key.removeprefix(shared): line
                    for key, line in lines.items()
                    if key.startswith(shared)
                }
    return found


def _nearest(lines: Mapping[str, int], field: str) -> int | None:
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
                end = self._text.index("]", self._at)
                prefix = self._resolve(self._text[self._at : end].strip("[ \t"), array)
                self._at = end + (2 if array else 1)
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
        return at + len(closing)

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
