"""Whose a folder or a file is: what another user has made or may write to is neither read nor written.

A link is asked for itself, never for what it leads to. A file is asked once it is open, so nobody can exchange it in
between, and opening does not wait for the other end of a pipe. Locks are waited for with an end, since whoever can open
a file can hold its lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from dlcp.polling import looks

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH  # with an access list, the group's bit is its mask


class ForeignError(PermissionError):
    """What is there is no regular file of this user's alone."""


def folder_fault(folder: Path) -> str | None:
    """Why a folder is not this user's alone, and what to do; None: it is. Raises OSError: it is not there."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        what = f"of user {found.st_uid}" if stat.S_ISDIR(found.st_mode) else "a link or a file"
        return f"{folder} is not a folder of this user (uid {os.geteuid()}): it is {what}; use another"
    if found.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(found.st_mode)
        return f"other users may write to {folder} (mode {mode:o}), so it is not used; chmod go-w it, or use another"
    return None


def open_file(path: str | os.PathLike[str], flags: int) -> int:
    """Opens a regular file of this user's alone; one that is made is. Raises ForeignError: it is none; OSError."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _foreign(path) from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        os.close(descriptor)
        raise _foreign(path)
    return descriptor


def lock(descriptor: int, timeout_s: float) -> None:
    """Takes the file's lock of flock(2), waiting for other holders. Raises TimeoutError."""
    for _ in looks(timeout_s):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
    raise TimeoutError(errno.ETIMEDOUT, f"another process has had its lock for {timeout_s:g} s")


def _foreign(path: str | os.PathLike[str]) -> ForeignError:
    return ForeignError(errno.EPERM, "no file of this user's alone", os.fspath(path))
