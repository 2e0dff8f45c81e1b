"""What each setting may be: the engine's table (`_native.settings_table`) as checks and readers of text.

The table says the name, kind, range, choices and default of every setting; here each kind gets its check. A value comes
as an argument, as text from the environment, or as TOML has it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dlcp import _native
from dlcp.checks import is_integer, is_number
from dlcp.errors import InterfaceError
from dlcp.transport.interfaces import Pattern
from dlcp.units import parse_fraction

KEY_BYTES = 32
CLASSES = 8

_UNITS = {
    "_s": "seconds",
    "_bytes": "bytes",
    "_bps": "bits per second",
    "_packets": "packets",
    "_ratio": "fraction",
}


@dataclass(frozen=True, slots=True)
class SettingRule:
    """What one setting may be."""

    entry: _native.Setting
    """Its row of the table."""
    read: Callable[[str], Any]
    """From text to a value. Raises ValueError, KeyError."""
    accepts: Callable[[Any], bool]
    """Whether a value that is not None will do."""
    accepted: str
    """What will do, in words."""

    @property
    def none(self) -> str | None:
        """The word for None in the environment and in TOML; None: the setting always has a value."""
        return self.entry.none or None

    @property
    def default(self) -> Any:
        """Its default as Python has it."""
        default = self.entry.default
        return tuple(default) if isinstance(default, list) else default

    @property
    def unit(self) -> str:
        """The unit that its name ends with; "": it has none."""
        return next((unit for end, unit in _UNITS.items() if self.entry.name.endswith(end)), "")

    @property
    def accepted_or_none(self) -> str:
        """What will do, None's word included."""
        return f"{self.accepted}, or {self.none}" if self.none else self.accepted


@cache
def rules() -> Mapping[str, SettingRule]:
    """The rule of every setting, in the order of the table."""
    return {entry.name: _rule(entry) for entry in _native.settings_table()}


def plain(name: str, value: Any) -> Any:
    """The value as it is kept: lists and paths are as good as tuples and texts."""
    kind = rules()[name].entry.kind
    if kind == "class_codes" and isinstance(value, list):
        return tuple(value)
    if kind == "path" and isinstance(value, os.PathLike):
        return os.fspath(value)
    if kind == "ports" and isinstance(value, tuple | list) and len(value) == 2:
        return f"{value[0]}-{value[1]}"
    if kind == "choice" and isinstance(value, str):
        return value.lower()
    return value


def read_ports(text: str) -> range:
    """The ports of "low-high" or of one number. Raises ValueError."""
    low, dash, high = (word.strip() for word in text.partition("-"))
    first, last = int(low), int(high if dash else low)
    if not 1 <= first <= last <= 65535:
        raise ValueError(text)
    return range(first, last + 1)


def _rule(entry: _native.Setting) -> SettingRule:
    match entry.kind:
        case "boolean":
            words = "true or false (in the environment also 1 or 0)"
            return SettingRule(entry, _read_boolean, lambda value: isinstance(value, bool), words)
        case "integer":
            low, high = int(entry.low), int(entry.high)
            words = f"an integer from {low:,} to {high:,}".replace(",", " ")
            return SettingRule(entry, int, lambda value: is_integer(value, low, high), words)
        case "number":
            return _number(entry)
        case "choice":
            names = entry.accepted.split(", ")
            return SettingRule(entry, str, lambda value: value in names, f"one of {entry.accepted}")
        case "path":
            return SettingRule(
                entry, str, lambda value: isinstance(value, str) and "\0" not in value, entry.accepted
            )
        case "interfaces":
            words = "names of interfaces or their beginnings, such as eth0, eth,ib, =eth0 or ^docker,lo"
            return SettingRule(entry, str, _is_pattern, words)
        case "ports":
            words = "ports from 1 to 65535, such as 7000-7063, or one of them"
            return SettingRule(entry, str, _is_port_range, words)
        case "class_codes":
            return SettingRule(
                entry, _read_codes, _is_codes, f"{CLASSES} integers from 0 to 63, one per traffic class"
            )
        case "secret":
            return SettingRule(
                entry,
                bytes.fromhex,
                lambda value: isinstance(value, bytes) and len(value) == KEY_BYTES,
                f"{KEY_BYTES} bytes",
            )
        case _:
            return SettingRule(entry, str, _is_text, entry.accepted)


def _number(entry: _native.Setting) -> SettingRule:
    begin = "a number above" if entry.above else "a number from"
    accepted = f"{begin} {entry.low:g} {'up to' if entry.above else 'to'} {entry.high:g}"
    is_fraction = entry.name.endswith("_ratio")
    if is_fraction:
        accepted += f" (in the environment also {100 * entry.low:g}% to {100 * entry.high:g}%)"
    return SettingRule(
        entry,
        parse_fraction if is_fraction else float,
        lambda value: is_number(value, entry.low, entry.high, above=entry.above),
        accepted,
    )


def _read_boolean(text: str) -> bool:
    low = text.lower()
    if low not in {"1", "true", "yes", "on", "0", "false", "no", "off"}:
        raise ValueError(text)
    return low in {"1", "true", "yes", "on"}


def _read_codes(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _is_codes(value: Any) -> bool:
    return (
        isinstance(value, tuple) and len(value) == CLASSES and all(is_integer(code, 0, 63) for code in value)
    )


def _is_text(value: Any) -> bool:
    """Whether the engine and the drivers can be given it: they take UTF-8 that a NUL ends."""
    try:
        return isinstance(value, str) and b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def _is_pattern(value: Any) -> bool:
    try:
        return _is_text(value) and Pattern.parse(value) is not None
    except InterfaceError:
        return False


def _is_port_range(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(read_ports(value)) > 0
    except ValueError:
        return False
