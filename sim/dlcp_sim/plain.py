"""Settings as plain data, as a scenario's file and JSON hold them: text, numbers, true and false, lists, tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dlcp.errors import ArgumentError


def table_of(kind: str, thing: Any) -> dict[str, Any]:
    """A dataclass as the table that makes it: its kind and its arguments; what is None is left out."""
    values = ((one.name, getattr(thing, one.name)) for one in dataclasses.fields(thing) if one.init)
    return {"kind": kind} | {name: plain(value) for name, value in values if value is not None}


def plain(value: Any) -> Any:
    """A setting as plain data; files by their whole path. Raises ArgumentError for what has no such form."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case np.ndarray():
            return value.tolist()
        case Path():
            return str(value.resolve())
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    raise ArgumentError(f"{value!r} has no form as a table: it is made in Python")
