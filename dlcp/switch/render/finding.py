"""What a rendering has to say besides the configuration: where an operating system cannot do what the policy asks.

A finding names the field of the policy by its path in TOML, and its line if the policy came from a file. Three weights:
an error would do the opposite of what is asked, so nothing is rendered; a caveat is rendered as the nearest thing there
is; a note is a property of the system that no policy changes, or something that nobody here has checked.
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
        line = nearest_line(lines, self.field) if lines and self.field else None
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
    return ", ".join(
        f"{name}class[{number_ranges(classes[name])}]" if name in classes else name for name in named
    )


class RenderError(SettingsError):
    """A policy, a port or an operating system's name that cannot be rendered. Nothing was written.

    `findings`: what was in the way, if it was the policy.
    """

    def __init__(self, text: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(text)
        self.findings = tuple(findings)
