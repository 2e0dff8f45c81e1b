"""The hub's file of keys: which jobs may use it.

One job per line, its name and its key of 64 hexadecimal digits; `#` begins a comment. Whoever can read the file can
join these jobs, so it should belong to the hub's user alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from dlcp.errors import ArgumentError
from dlcp.transport.setting_rules import KEY_BYTES


def read_keys(path: str | os.PathLike[str]) -> Mapping[str, bytes]:
    """Job keys by the job's name. Raises ArgumentError: it cannot be read, or a line is none. Shows no key."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"keys: {path}: {error}") from error
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            name, digits = words
            key = bytes.fromhex(digits)
        except ValueError:
            name, key = words[0], b""
        if len(key) != KEY_BYTES:
            raise ArgumentError(
                f"keys: {path}, line {number}: accepted: the name of a job and {2 * KEY_BYTES} hexadecimal digits"
            )
        if name in found:
            raise ArgumentError(f"keys: {path}, line {number}: job {name!r} is there twice")
        found[name] = key
    if not found:
        raise ArgumentError(f"keys: {path} names no job; a line is a job's name and its key")
    return MappingProxyType(found)


def readable_by_others(path: str | os.PathLike[str]) -> bool:
    """Whether other users can read the file."""
    return bool(Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
