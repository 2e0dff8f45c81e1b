"""Stores: keys and values by which the ranks of a job find each other.

`Store` is the interface; every store of torch.distributed has it. `MemoryStore` serves ranks that are threads of one
process, `FileStore` serves processes that share a folder, `PrefixStore` is a part of another store. All waits in this
package go through `wait_for`, which polls: another thread can use the store meanwhile and Ctrl-C works, whereas a
store's own blocking `get` often holds a lock and delays signals. A store carries a few values per rank, never data.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from dlcp import checks, own_files
from dlcp.errors import ArgumentError, DlcpError, ResourceError, StoreGoneError, StoreTimeoutError
from dlcp.polling import looks

# Longest file name that every file system takes.
_NAME_BYTES_MAX = 200


class Store(Protocol):
    """Keys and values between processes. torch.distributed's TCPStore, FileStore, PrefixStore… are ones."""

    def set(self, key: str, value: str | bytes, /) -> None:
        """Sets a key, over what it held."""

    def get(self, key: str, /) -> bytes:
        """The value of a key; blocks until it is set, bounded by the store's timeout."""

    def add(self, key: str, amount: int, /) -> int:
        """Adds to a counter, from 0, in one step, and returns the sum."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all of the keys are set. Does not wait for them."""


def wait_for(store: Store, key: str, timeout_s: float, what: str) -> bytes:
    """The value of a key; blocks until it is set, at most `timeout_s`.

    `what`: what it is and who sets it, for the error. Raises StoreTimeoutError, StoreGoneError.
    """
    with asking(what):
        for _ in looks(timeout_s):
            if store.check([key]):
                return store.get(key)
    raise StoreTimeoutError(f"{what} was not in the store after {timeout_s:g} s (key {key!r})")


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """`with` around questions to a store about `what`. Raises StoreGoneError: it does not answer."""
    try:
        yield
    except (DlcpError, NotImplementedError):
        raise
    except (RuntimeError, OSError) as error:
        raise StoreGoneError(
            f"{what} is not known: the job's store does not answer ({error}). The process that holds it may have ended,"
            " as rank 0's does under env://: it has to stay until every rank has made its first call in each group"
        ) from error


def check_store(store: object) -> None:
    """Raises ArgumentError: not a store."""
    lacking = [name for name in ("set", "get", "add", "check") if not callable(getattr(store, name, None))]
    if lacking:
        raise ArgumentError(
            f"store is {store!r}; accepted: what has set, get, add and check, such as a FileStore, or a store of"
            " torch.distributed"
        )


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class MemoryStore:
    """A store for ranks that are threads of one process. `timeout_s`: how long get() waits."""

    def __init__(self, timeout_s: float = 300.0) -> None:
        self._timeout_s = timeout_s
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key, over what it held."""
        with self._changed:
            self._values[key] = _bytes(value)
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        """The value of a key; blocks until it is set. Raises StoreTimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, self._timeout_s):
                raise StoreTimeoutError(f"key {key!r} was not set within {self._timeout_s:g} s")
            return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter and returns the sum."""
        with self._changed:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def check(self, keys: list[str]) -> bool:
        """Whether all of the keys are set."""
        with self._changed:
            return all(key in self._values for key in keys)


class FileStore:
    """A store in a folder, for processes that share a file system: one file per key.

    `path`: the folder; created if missing, and not removed: use a fresh one for each job. `timeout_s`: how long get()
    waits. Any user who can read the folder can read the job key, so it is created for its owner alone. Raises
    ArgumentError: no path; ResourceError: the folder cannot be made, or is none.
    """

    def __init__(self, path: str | os.PathLike[str], timeout_s: float = 300.0) -> None:
        self._folder = checks.folder("path", path)
        self._timeout_s = timeout_s
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ResourceError(
                f"path is {os.fspath(path)!r}: {error.strerror}; accepted: a folder, or where one can be made"
            ) from error

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key, over what it held."""
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as file:
            file.write(_bytes(value))
        # A reader finds the old value or the new one, never half of it.
        Path(file.name).replace(self._file(key))

    def get(self, key: str) -> bytes:
        """The value of a key; blocks until it is set. Raises StoreTimeoutError."""
        for _ in looks(self._timeout_s):
            with contextlib.suppress(FileNotFoundError):
                return self._file(key).read_bytes()
        raise StoreTimeoutError(f"key {key!r} was not set in {self._folder} within {self._timeout_s:g} s")

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter and returns the sum."""
        with self._locked():
            file = self._file(key)
            total = (int(file.read_bytes()) if file.exists() else 0) + amount
            self.set(key, str(total))
            return total

    def check(self, keys: list[str]) -> bool:
        """Whether all of the keys are set."""
        return all(self._file(key).exists() for key in keys)

    def _file(self, key: str) -> Path:
        name = "k" + quote(key, safe="")
        if len(name) > _NAME_BYTES_MAX:
            name = "h" + hashlib.sha256(key.encode()).hexdigest()
        return self._folder / name

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / ".lock").open("w") as file:
            try:
                own_files.lock(file.fileno(), self._timeout_s)
            except TimeoutError as error:
                raise StoreTimeoutError(f"{file.name}: {error.strerror}") from None
            yield


class PrefixStore:
    """A part of a store: its keys are those of `store` that begin with `prefix` and a slash."""

    def __init__(self, prefix: str, store: Store) -> None:
        self._prefix = prefix + "/"
        self._store = store

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key, over what it held."""
        self._store.set(self._prefix + key, value)

    def get(self, key: str) -> bytes:
        """The value of a key; blocks until it is set, bounded by the store's timeout."""
        return self._store.get(self._prefix + key)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter and returns the sum."""
        return self._store.add(self._prefix + key, amount)

    def check(self, keys: list[str]) -> bool:
        """Whether all of the keys are set."""
        return self._store.check([self._prefix + key for key in keys])
