"""What an operating system does otherwise than a policy asks: caveats beside the rendered configuration.

A caveat names the field of the policy by its path in TOML, and its line if the policy came from a file. Its weight says
what follows: after an error nothing is rendered, since the switch would do the opposite of the policy. A proper caveat
describes the nearest rendered substitute. A note is a property of the system under any policy, or something unchecked.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlcp.errors import SettingsError
from dlcp.switch.number_ranges import number_ranges
from dlcp.switch.toml_lines import nearest_line


class Weight(enum.StrEnum):
    """How much a caveat matters."""

    ERROR = "error"
    CAVEAT = "caveat"
    NOTE = "note"


@dataclass(frozen=True)
class Caveat:
    """One thing that the policy asks for, and what the operating system does instead."""

    weight: Weight
    field: str
    """Path in the policy, such as class[2].droppable[0].trim_above_bytes; empty: none in particular."""
    asked: str
    instead: str

    def text(self, lines: Mapping[str, int] | None = None) -> str:
        """A sentence; with `lines`, of `toml_lines`, it begins with the line."""
        where = self.field
        line = nearest_line(lines, self.field) if lines and self.field else None
        if line is not None:
            where = f"line {line}: {where}"
        sentence = f"{self.asked}; {self.instead}" if self.asked else self.instead
        return f"{where}: {sentence}" if where else sentence


def refused(field: str, asked: str, instead: str) -> Caveat:
    """An error: nothing is rendered."""
    return Caveat(Weight.ERROR, field, asked, instead)


def differs(field: str, asked: str, instead: str) -> Caveat:
    """A proper caveat: something else is rendered than was asked for."""
    return Caveat(Weight.CAVEAT, field, asked, instead)


def noted(field: str, instead: str) -> Caveat:
    """A note."""
    return Caveat(Weight.NOTE, field, "", instead)


def sentences(caveats: Iterable[Caveat], lines: Mapping[str, int] | None = None) -> list[str]:
    """A sentence for each caveat; what is true of several places is said once, at the first of them."""
    places: dict[tuple[str, str], list[Caveat]] = {}
    for caveat in caveats:
        places.setdefault((caveat.asked, caveat.instead), []).append(caveat)
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
    return ", ".join(
        f"{name}class[{number_ranges(classes[name])}]" if name in classes else name for name in named
    )


class RenderError(SettingsError):
    """A policy, a port or an operating system's name that cannot be rendered. Nothing was written.

    `caveats`: what prevented it, if it was the policy.
    """

    def __init__(self, text: str, caveats: Sequence[Caveat] = ()) -> None:
        super().__init__(text)
        self.caveats = tuple(caveats)
