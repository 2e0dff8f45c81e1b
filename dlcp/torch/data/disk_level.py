"""The disk level: raw samples as files of a local folder, one entry each, that outlive the process.

An entry is a header (magic, index, length, checksum) and the payload. A writer fills a temporary file and renames it,
so under an entry's name there is a whole entry or none, whoever is killed at whatever moment. Nothing is synced:
what a power cut tears the checksum tells. A reader removes an entry that is torn, corrupt, or of another version of
the data set, counts it, and the sample is read again from the data set.

The bound in bytes holds for the folder, however many ranks and DataLoader workers write there: they add up in one
file, `used_bytes`, under its lock. A writer that was killed leaves its bytes counted until the next process opens the
folder and counts anew. Nothing is evicted, for the reason that memory_level.py gives; only a folder that is opened
with a smaller bound loses entries, the highest indices first.

A full disk, a quota or a read-only file system turns the level read-only for this process, with one warning; so does
a process that keeps the lock.

Payloads are unpickled, so whoever writes here runs code in the job: the folder and those in it are this user's alone or
are not used, and so is each file, asked when it is open (dlcp/own_files.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dlcp import own_files
from dlcp.errors import ArgumentError

logger = logging.getLogger("dlcp")

_MAGIC = b"dlcpdata"
_HEADER = struct.Struct("<8sQQ16s")
HEADER_BYTES = _HEADER.size
"""What an entry has on disk besides its payload."""
# Entries spread over so many folders: file systems are slow with very many names in one.
_FOLDERS = 256
_SUFFIX = ".sample"
_TEMPORARY = "writing-"
# Errors of the disk, not of one entry: the next write would fail too.
_FULL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ETIMEDOUT}
)
# For the lock of used_bytes: an opening process has it while it counts the entries, one after the other.
_LOCK_TIMEOUT_S = 120.0


class Found(NamedTuple):
    """What a look at the disk gave."""

    payload: bytes | None
    torn: bool = False
    """Whether there was an entry that could not be used. It is removed."""


class DiskLevel:
    """Payloads by index in a folder. Any thread and any number of processes may use one folder.

    Opening it counts the folder's bytes, which reads its names and sizes, and removes what killed writers left.
    Raises ArgumentError: the folder or one in it is not this user's alone; OSError: it cannot be made.
    """

    def __init__(self, folder: Path, bytes_max: int | None, version: str = "") -> None:
        """`bytes_max`: None, nine tenths of what is free now, beside what the folder has; the disk is not ours alone.

        `version`: of the data set; entries that were written under another are torn ones.
        """
        self.folder = folder
        self.read_only = False
        """Whether the disk refused a write. No other is tried then."""
        self._key = hashlib.blake2b(version.encode(), digest_size=32).digest()
        # Samples may be private: the folder is this user's.
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        for place in (folder, *self._folders()):
            if fault := own_files.folder_fault(place):
                raise ArgumentError(f"folder: {fault}")
        self.bytes_max = 0
        """The bound on the sum of entries, headers included."""
        try:
            with self._account() as account:
                used_bytes = self._clean(bytes_max)
                account.write(used_bytes)
                if bytes_max is None:
                    bytes_max = used_bytes + shutil.disk_usage(folder).free * 9 // 10
            self.bytes_max = bytes_max
        except OSError as error:
            self._refused(error)

    @property
    def used_bytes(self) -> int:
        """The sum of the folder's entries, as counted by those that write there. Raises OSError."""
        with self._account() as account:
            return account.read()

    def get(self, index: int) -> Found:
        """The sample's payload, if the folder has it whole."""
        path = self._path(index)
        entry = b""
        try:
            with os.fdopen(own_files.open_file(path, os.O_RDONLY), "rb") as file:
                entry = file.read()
        except own_files.ForeignError:
            pass  # removed, as one that is torn
        except OSError:
            return Found(None)
        payload = self._checked(index, entry)
        if payload is not None:
            return Found(payload)
        self._remove(path, len(entry))
        return Found(None, torn=True)

    def put(self, index: int, payload: bytes) -> bool:
        """Writes the sample's entry if there is room and the disk takes it. Whether the folder has the sample now."""
        if self.read_only:
            return False
        path = self._path(index)
        nbytes = HEADER_BYTES + len(payload)
        try:
            if path.exists():
                return True
            if not self._reserve(nbytes):
                return False
        except OSError as error:
            self._refused(error)
            return False
        try:
            self._write(path, index, payload)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._release(nbytes)
            self._refused(error)
            return False
        return True

    # ---- entries ----

    def _folders(self) -> list[Path]:
        """Those that entries spread over, as far as they are there."""
        places = (self.folder / f"{number:02x}" for number in range(_FOLDERS))
        return [place for place in places if os.path.lexists(place)]

    def _path(self, index: int) -> Path:
        return self.folder / f"{index % _FOLDERS:02x}" / f"{index}{_SUFFIX}"

    def _checksum(self, index: int, payload: bytes) -> bytes:
        digest = hashlib.blake2b(index.to_bytes(8, "little"), digest_size=16, key=self._key)
        digest.update(payload)
        return digest.digest()

    def _checked(self, index: int, entry: bytes) -> bytes | None:
        """The payload of an entry that is whole and this sample's; else None."""
        if len(entry) < HEADER_BYTES:
            return None
        magic, stated, length, checksum = _HEADER.unpack_from(entry)
        payload = entry[HEADER_BYTES:]
        if magic != _MAGIC or stated != index or length != len(payload):
            return None
        return payload if checksum == self._checksum(index, payload) else None

    def _write(self, path: Path, index: int, payload: bytes) -> None:
        header = _HEADER.pack(_MAGIC, index, len(payload), self._checksum(index, payload))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
        try:
            try:
                # Held until the rename: a process that opens the folder removes temporary files without a writer.
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                _write_all(descriptor, header)
                _write_all(descriptor, payload)
                Path(temporary).rename(path)
            finally:
                os.close(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise

    def _remove(self, path: Path, nbytes: int) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
            self._release(nbytes)

    # ---- the account of bytes ----

    @contextlib.contextmanager
    def _account(self) -> Iterator[_Account]:
        """The folder's count of bytes, locked. Opened for each use: a lock of flock is shared with forked children."""
        descriptor = own_files.open_file(self.folder / "used_bytes", os.O_RDWR | os.O_CREAT)
        try:
            own_files.lock(descriptor, _LOCK_TIMEOUT_S)
            yield _Account(descriptor)
        finally:
            os.close(descriptor)

    def _reserve(self, nbytes: int) -> bool:
        with self._account() as account:
            used_bytes = account.read() + nbytes
            if used_bytes > self.bytes_max:
                return False
            account.write(used_bytes)
        return True

    def _release(self, nbytes: int) -> None:
        with self._account() as account:
            account.write(max(0, account.read() - nbytes))

    def _clean(self, bytes_max: int | None) -> int:
        """Removes what killed writers left and what exceeds the bound; the bytes of the rest."""
        entries: list[tuple[int, int, Path]] = []
        for folder in self._folders():
            for file in os.scandir(folder):
                path = Path(file.path)
                if file.name.startswith(_TEMPORARY):
                    _remove_abandoned(path)
                elif file.name.endswith(_SUFFIX):
                    with contextlib.suppress(OSError, ValueError):
                        entries.append((int(path.stem), file.stat(follow_symlinks=False).st_size, path))
        used_bytes = sum(nbytes for _, nbytes, _ in entries)
        entries.sort()
        while entries and bytes_max is not None and used_bytes > bytes_max:
            _, nbytes, path = entries.pop()
            path.unlink(missing_ok=True)
            used_bytes -= nbytes
        return used_bytes

    def _refused(self, error: OSError) -> None:
        """A file that vanished is this entry's matter; anything that the disk refuses is the level's."""
        if error.errno in _FULL and not self.read_only:
            self.read_only = True
            logger.warning(
                "data cache: %s takes no more samples (%s); what it holds is used, the rest is read from the data set",
                self.folder,
                error.strerror,
            )


class _Account:
    """One number in a file that this process has locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> int:
        return int.from_bytes(os.pread(self._descriptor, 8, 0), "little")

    def write(self, value: int) -> None:
        os.pwrite(self._descriptor, value.to_bytes(8, "little"), 0)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _remove_abandoned(path: Path) -> None:
    """Removes a temporary file unless its writer lives, which holds its lock."""
    with contextlib.suppress(OSError):
        descriptor = own_files.open_file(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(descriptor)
