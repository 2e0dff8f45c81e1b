"""What speaks against a key file that is accepted all the same: who can read it, and keys that can be guessed."""

from __future__ import annotations

import contextlib
import os
import string
from pathlib import Path

from dlcp.transport.settings import Settings

# 32 random bytes have 30 different ones on average; fewer than this has happened to nobody.
_DIFFERENT_BYTES_MIN = 12
_PRINTABLE = frozenset(string.printable.encode())


def key_warnings(settings: Settings) -> list[str]:
    """A sentence for each, with what to do; none without a key file. Raises SettingsError: it cannot be read."""
    key = settings.job_key()
    if settings.key_file is None or key is None:
        return []
    path = Path(settings.key_file)
    fault = key_fault(key)
    anew = f"write 32 random bytes there: head -c 32 /dev/urandom > {path}"
    return [*([f"the key in {path} {fault}; {anew}"] if fault else []), *file_warnings(path)]


def key_fault(key: bytes) -> str | None:
    """Why a key is no secret: what it "is" or "has"; None: it may be one."""
    if len(set(key)) < _DIFFERENT_BYTES_MIN:
        return f"has only {len(set(key))} different bytes and can be guessed"
    return "is a text of 32 characters and may be guessed" if _PRINTABLE.issuperset(key) else None


def file_warnings(path: Path) -> list[str]:
    """Who else can read or change a file of keys, a sentence for each."""
    found = []
    with contextlib.suppress(OSError):
        status = path.stat()
        if status.st_mode & 0o077:
            found.append(
                f"key file {path} is open to other users (mode {status.st_mode & 0o777:o}); chmod 600 {path}"
            )
        if status.st_uid not in (os.geteuid(), 0):
            found.append(
                f"key file {path} belongs to another user (number {status.st_uid}), who knows the key"
            )
    return found
