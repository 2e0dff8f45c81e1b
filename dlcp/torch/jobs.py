"""Which job carries a group: one endpoint per process for the world, shared by the groups made from it.

The default group opens a job over the store it was given. A subgroup uses that job if the default group is dlcp's and
the subgroup asks for no settings of its own; otherwise (default group Gloo's, other settings) it opens its own. A job
closes when its last group is gone, and whatever is left closes when the interpreter ends, in the process that opened
it: a forked child has only a copy that it may not touch.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from dlcp.transport.job import HURRIED_S, Job, uncaught
from dlcp.transport.settings import Settings

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator
    from dlcp.transport.store import Store as OurStore

_lock = threading.Lock()
_open: set[SharedJob] = set()


class SharedJob:
    """A job and the number of groups that use it; closed with the last one."""

    def __init__(self, job: Job, settings: Settings | None) -> None:
        self.job = job
        self.settings = settings
        # Of the groups that use it, and those that are about to be opened.
        self._communicators: list[Communicator] = []
        self._users = 0
        self._pid = os.getpid()
        with _lock:
            _open.add(self)

    @classmethod
    def open(
        cls, store: Store, rank: int, size: int, settings: Settings | None, timeout_s: float
    ) -> SharedJob:
        """A job of its own for the ranks that share this store. Blocks for the store at most."""
        toward = _host_of(store)
        # What torch's stubs say of a store's values is narrower than what it takes.
        ours = cast("OurStore", store)
        return cls(Job(ours, rank, size, settings=settings, timeout_s=timeout_s, toward=toward), settings)

    def communicator(
        self,
        name: str,
        members: Sequence[int] | None,
        store: Store,
        timeout_s: float,
        *,
        adders: bool = False,
    ) -> Communicator:
        """A communicator of some of the job's ranks; `release` gives it back. `adders`: as Job.open_communicator.

        `timeout_s`: of its operations, unless the setting of that name says otherwise. Blocks for the store.
        """
        if self.job.settings.timeout_s is not None:
            timeout_s = self.job.settings.timeout_s
        with _lock:
            self._users += 1
        try:
            ours = cast("OurStore", store)
            communicator = self.job.open_communicator(
                name, members, store=ours, timeout_s=timeout_s, adders=adders
            )
        except BaseException:
            self._leave()
            raise
        with _lock:
            self._communicators.append(communicator)
        return communicator

    def release(self, communicator: Communicator, timeout_s: float | None = None) -> None:
        """Closes the communicator, and the job if no other group uses it. `timeout_s`: as Job.close."""
        if os.getpid() != self._pid:
            return
        try:
            with _lock:
                self._communicators.remove(communicator)
            communicator.close()
        finally:
            self._leave(timeout_s)

    def _leave(self, timeout_s: float | None = None) -> None:
        with _lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.close(timeout_s)

    def abort(self, reason: str) -> None:
        """Aborts every group that has pending operations, on all ranks.

        Groups without any are left alone: other ranks may still be working on what this rank has finished.
        """
        if os.getpid() == self._pid:
            for communicator in list(self._communicators):
                if communicator.under_way:
                    communicator.abort(reason)

    def close(self, timeout_s: float | None = None) -> None:
        """Closes the job, even if groups still use it. May be called again. `timeout_s`: as Job.close."""
        with _lock:
            if self not in _open or os.getpid() != self._pid:
                return
            _open.discard(self)
        self.job.close(timeout_s)


def _host_of(store: Store) -> str | None:
    """Where the store is served, which is on the network that the ranks share; None: it is a file."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else None


def close_all(timeout_s: float | None = None) -> None:
    """Closes every job of this process. `timeout_s`: as Job.close."""
    for shared in list(_open):
        shared.close(timeout_s)


@atexit.register
def _at_exit() -> None:
    # A thread that runs torch's code while the interpreter is taken down ends the process with SIGABRT. So the
    # jobs end first, which fails what is still under way; then the threads that complete futures have nothing left.
    from dlcp.torch import callbacks

    # Without an uncaught exception, what is under way may end well, and closing gives it the time.
    error = uncaught()
    if error is not None:
        for shared in list(_open):
            shared.abort(f"the program ended with {type(error).__name__}")
    close_all(None if error is None else HURRIED_S)
    callbacks.pool.close()
