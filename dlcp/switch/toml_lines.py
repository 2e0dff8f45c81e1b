"""Where the keys of a TOML text stand: path of a key → its line, so that an error can point at a value.

The text has been parsed: it is TOML. What it means does not matter, nor whether it is a policy at all.
"""

from __future__ import annotations

import re
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

_TOKEN = re.compile(
    r'''
    \s+ | \#[^\n]*
    | """ (?: \\. | [^\\] )*? """ "{0,2}    # a text in three quotes may itself end with one or two
    | \'\'\' .*? \'\'\' '{0,2}
    | " (?: \\. | [^"\\] )* " | '[^']*'
    | [\[\]{}=,]
    | [^\s\#\[\]{}=,"']+
    ''',
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"[": "]", "{": "}"}

_Tokens = deque[tuple[str, int]]
"""Brackets, quoted texts and words, with their lines; without blanks and comments."""


def toml_lines(text: str) -> dict[str, int]:
    """Path of every key of a TOML text → its line, counted from 1.

    A threshold that a class has by the name of a shared set has the line in that set.
    """
    lines = dict(_keys(text))
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


def _keys(text: str) -> Iterator[tuple[str, int]]:
    tokens: _Tokens = deque()
    line = 1
    for token in _TOKEN.findall(text):
        if not token.isspace() and not token.startswith("#"):
            tokens.append((token, line))
        line += token.count("\n")
    prefix = ""
    arrays: dict[str, int] = {}  # arrays of tables by path → how many tables there were
    while tokens:
        token, line = tokens[0]
        if token == "[":
            prefix = _header(tokens, arrays)
            yield prefix, line
        else:
            yield from _pair(tokens, prefix)


def _name(tokens: _Tokens, end: str) -> list[str]:
    """The parts of a dotted key; takes the token `end` as well."""
    words = ""
    while (token := tokens.popleft()[0]) != end:
        words += token
    return [part.strip("\"'") for part in words.split(".")]


def _header(tokens: _Tokens, arrays: dict[str, int]) -> str:
    """The path of a header: names of arrays of tables stand for their last table."""
    tokens.popleft()
    is_array = tokens[0][0] == "["
    if is_array:
        tokens.popleft()
    path = ""
    parts = _name(tokens, "]")
    if is_array:
        tokens.popleft()
    for index, part in enumerate(parts):
        path = f"{path}.{part}" if path else part
        if is_array and index == len(parts) - 1:
            arrays[path] = arrays.get(path, 0) + 1
        if path in arrays:
            path = f"{path}[{arrays[path] - 1}]"
    return path


def _pair(tokens: _Tokens, prefix: str) -> Iterator[tuple[str, int]]:
    line = tokens[0][1]
    path = ".".join([*([prefix] if prefix else []), *_name(tokens, "=")])
    yield path, line
    yield from _value(tokens, path)


def _value(tokens: _Tokens, path: str) -> Iterator[tuple[str, int]]:
    opening, line = tokens.popleft()
    if opening not in _CLOSING:
        # A date and a time are two words.
        while tokens and tokens[0][1] == line and tokens[0][0] not in ",]}":
            tokens.popleft()
        return
    index = 0
    while tokens[0][0] != _CLOSING[opening]:
        if tokens[0][0] == ",":
            tokens.popleft()
        elif opening == "{":
            yield from _pair(tokens, path)
        else:
            yield f"{path}[{index}]", tokens[0][1]
            yield from _value(tokens, f"{path}[{index}]")
            index += 1
    tokens.popleft()
