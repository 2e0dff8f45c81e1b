"""The hub's file of keys: which jobs may use it.

One job per line, its name and the key that admits it, of 64 hexadecimal digits; `#` begins a comment. Whoever can read
the file can join these jobs, so it should belong to the hub's user alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from dlcp.errors import ArgumentError
from dlcp.transport.key_warnings import file_warnings, key_fault
from dlcp.transport.setting_rules import KEY_BYTES

DRAW = "head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \\n'"
"""The command that writes a new key's digits, by what every system has."""


def read_keys(path: str | os.PathLike[str]) -> Mapping[str, bytes]:
    """What admits a job, by its name. Raises ArgumentError: it cannot be read, or a line is none. Shows no key."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
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


def warnings_of(path: str | os.PathLike[str], keys: Mapping[str, bytes]) -> list[str]:
    """What speaks against the file and its keys, as of a rank's: a sentence each."""
    faults = {name: fault for name, key in keys.items() if (fault := key_fault(key))}
    return file_warnings(Path(path)) + [
        f"the key of job {name!r} {fault}; draw another: {DRAW}" for name, fault in faults.items()
    ]
