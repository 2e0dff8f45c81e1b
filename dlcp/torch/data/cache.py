"""A data set that is read from far away once, and then from this rank's disk and from the memory of all ranks.

After DataCache of Shi et al. (arXiv 2010.10458): remote -> disk (raw) -> memory (decoded, shared out over ranks), with
augmentation above it. Other ranks' memory is read over dlcp in the lowest traffic class, so that gradients leave first.

    cache = dlcp.torch.DataCache(dataset, folder="/scratch/cifar", decode=to_tensor, transform=augment)
    sampler = cache.sampler(seed=1)
    loader = DataLoader(cache, batch_size=64, sampler=sampler)
    for epoch in range(90):
        sampler.set_epoch(epoch)
        for batch in loader:
            ...
    cache.close()

The owner of a sample (ownership.py) keeps it: decoded in memory, raw on its disk. The other ranks ask the owner. So
every sample is read from the data set once, by one rank, and never again while memory or a disk has it. If the owner
does not answer, the rank that asked reads its own disk and then the data set.

DataLoader workers are processes of their own. A forked one has a copy of the memory level as it was, and reads the
disk and the data set below it. It does not ask other ranks: an endpoint belongs to the process that opened it. What it
reads from the data set it puts on the disk, whoever owns it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.utils.data import Dataset, get_worker_info

from dlcp import checks
from dlcp.errors import ArgumentError, ClosedError, DlcpError
from dlcp.torch.data.disk_level import DiskLevel
from dlcp.torch.data.memory_level import MemoryLevel
from dlcp.torch.data.own_levels import OwnLevels, indices_in_range
from dlcp.torch.data.ownership import owner_of
from dlcp.torch.data.read_counts import ReadCounts
from dlcp.torch.data.sampler import EpochSampler, Remainder

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from dlcp.torch.data.exchange import Exchange


class DataCache(Dataset[Any]):
    """A map-style data set for any DataLoader: `transform(decode(dataset[i]))`, with dataset and decode cached.

    With a group, all ranks make it, for the same data set, and close it; both wait for the others.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        folder: str | os.PathLike[str] | None = None,
        disk_bytes: int | None = None,
        memory_bytes: int = 1 << 30,
        decode: Callable[[Any], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        group: dist.ProcessGroup | None = None,
        version: str = "",
        read_threads: int = 1,
        reply_timeout_s: float = 30.0,
        linger_s: float = 10.0,
    ) -> None:
        """`dataset`: has `len()` and gives raw samples, such as encoded images; anything that can be pickled.

        `folder`: of the disk level, on a local disk, for this data set alone; ranks of one host may share it. None: no
        disk level. What lies there is unpickled, so it must be this user's alone. Ranks unpickle what others send,
        too: whoever has the job key can run code in all of them. `disk_bytes`: bound of the folder; None: nine tenths
        of what is free when it is opened. `version`: names the state of the data set; entries of another one are
        removed. `memory_bytes`: bound of this rank's memory level. Nothing is evicted from either: what finds no room
        is read again from the level below, in each epoch.

        `decode`: makes of a raw sample the one that memory keeps. `transform`: what is drawn anew each time,
        augmentation; it may change its argument. None: the sample as it is.

        `group`: whose ranks share their memory, of the backend dlcp; None: the default group, if it is one, or else
        this rank alone. `read_threads`: so many threads of this process may use `dataset` and `decode` at a time: the
        caller's and those that answer other ranks. More than 1 only if both allow it. `reply_timeout_s`: how long to
        wait for an owner. `linger_s`: how long close() goes on answering ranks that have not closed.

        Raises ArgumentError, also of a folder that another user made or may write to; TypeError: another backend's
        group; MismatchError: ranks have data sets of different lengths or versions; OSError: the folder cannot be made;
        and what opening a group raises. Blocks for all ranks.
        """
        if isinstance(dataset, str | bytes) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise ArgumentError(
                checks.refusal("dataset", dataset, "a map-style data set: len() and dataset[i]")
            )
        self._length = len(dataset)
        self._transform = _callable_or_none("transform", transform)
        self._pid = os.getpid()
        self._counts = ReadCounts()
        if disk_bytes is not None:
            disk_bytes = checks.integer("disk_bytes", disk_bytes, 0)
        version = checks.text("version", version)
        threads = checks.integer("read_threads", read_threads, 1, 64)
        memory = MemoryLevel(checks.integer("memory_bytes", memory_bytes, 0))
        reply_s = checks.number("reply_timeout_s", reply_timeout_s, 0, above=True, unit="seconds")
        linger_s = checks.number("linger_s", linger_s, 0, unit="seconds")
        decode = _callable_or_none("decode", decode)
        disk = None if folder is None else DiskLevel(checks.folder("folder", folder), disk_bytes, version)
        self._levels = OwnLevels(dataset, decode, disk, memory, self._counts, threads)
        self._rank, self._world_size = 0, 1
        # A worker keeps nothing: the bound would hold for each of them.
        self._keeps = True
        self._exchange: Exchange | None = None
        self._closed = False
        self._grouped = False
        if (shared := _group(group)) is not None:
            self._grouped = True
            self._rank, self._world_size = shared.rank(), shared.size()
            if self._world_size > 1:
                self._join(shared, version, threads, reply_s, linger_s)

    def _join(self, group: Any, version: str, threads: int, reply_timeout_s: float, linger_s: float) -> None:
        # Here: alone, the cache needs no engine.
        from dlcp.torch.data.exchange import Exchange
        from dlcp.torch.failures import for_torch

        try:
            communicator = group.data_communicator()
            communicator.barrier(agree=f"data cache of {self._length} samples, version {version!r}").wait()
        except DlcpError as error:
            raise for_torch(error) from None
        self._exchange = Exchange(
            communicator,
            lambda index: self._levels.payload(index, keep=True),
            self._counts,
            threads=threads,
            reply_timeout_s=reply_timeout_s,
            linger_s=linger_s,
        )
        group.call_before_shutdown(self._exchange.close)

    # ---- as a data set ----

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Collection[int]) -> list[Any]:
        """The samples of a batch, in order. Requests to other ranks travel together, while own samples are read.

        Raises IndexError, TypeError, ClosedError, and what the data set, decode and transform raise. Blocks for the
        slowest.
        """
        if self._closed:
            raise ClosedError("the data cache is closed")
        plain = indices_in_range(indices, self._length)
        if os.getpid() != self._pid:
            self._enter_worker()
        exchange = self._exchange
        wanted: dict[int, list[int]] = {}
        if exchange is not None:
            for index in dict.fromkeys(plain):
                if (owner := owner_of(index, self._world_size)) != self._rank:
                    wanted.setdefault(owner, []).append(index)
        found: dict[int, Any] = {}
        fetch = exchange.fetch(wanted) if exchange is not None and wanted else None
        asked = {index for indices in wanted.values() for index in indices}
        for index in dict.fromkeys(plain):
            if index not in asked:
                found[index] = self._levels.payload(index, keep=self._keeps)
        if fetch is not None:
            arrived = fetch.result()
            self._counts.add("peer", len(arrived))
            self._counts.add("peer_failed", len(asked) - len(arrived))
            found.update(arrived)
            for index in asked - arrived.keys():
                found[index] = self._levels.payload(index, keep=False)
        samples = [pickle.loads(found[index]) for index in plain]
        return samples if self._transform is None else [self._transform(sample) for sample in samples]

    def sampler(
        self, *, seed: int = 0, shuffle: bool = True, remainder: Remainder = "uneven"
    ) -> EpochSampler:
        """The order of epochs for this rank's DataLoader. The arguments are alike on all ranks."""
        return EpochSampler(
            self._length,
            rank=self._rank if self._grouped else None,
            world_size=self._world_size if self._grouped else None,
            seed=seed,
            shuffle=shuffle,
            remainder=remainder,
        )

    # ---- what it holds ----

    @property
    def counts(self) -> dict[str, int]:
        """Where this rank's samples came from, its workers' included: see read_counts.COUNTS."""
        return self._counts.totals()

    @property
    def memory_used_bytes(self) -> int:
        """What the memory level holds."""
        return self._levels.memory.used_bytes

    @property
    def disk_used_bytes(self) -> int:
        """What the folder holds, of all its users; 0 without one. Raises OSError."""
        return 0 if self._levels.disk is None else self._levels.disk.used_bytes

    # ---- ending ----

    def close(self) -> None:
        """Leaves the exchange: answers other ranks until they close too, for `linger_s` at most. Again: nothing.

        The folder stays. destroy_process_group() does the same for a cache that is open; at the interpreter's end the
        cache leaves at once, and ranks that still ask it read for themselves.
        """
        self._leave(linger=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the other ranks may never come to close.
        self._leave(linger=error is None)

    def _leave(self, *, linger: bool) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._exchange is not None:
            self._exchange.close(linger=linger)

    # ---- DataLoader workers ----

    def _enter_worker(self) -> None:
        """In a forked child: its own locks, its own counts, and no exchange."""
        self._pid = os.getpid()
        info = get_worker_info()
        self._counts.use_row(0 if info is None else info.id + 1)
        self._levels.enter_worker()
        self._exchange = None
        self._keeps = False

    def __getstate__(self) -> dict[str, Any]:
        # For a spawned worker, which then does what a forked one does at its first read.
        return self.__dict__ | {"_exchange": None, "_pid": 0}


def _callable_or_none(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ArgumentError(checks.refusal(name, value, "something to call with a sample, or None"))
    return value


def _group(group: dist.ProcessGroup | None) -> Any:
    """The group whose ranks share their memory; None: nobody does."""
    given = group is not None
    if group is None:
        group = dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    if group is None:
        return None
    # Here: a program without a group of dlcp need not load it.
    from dlcp.torch.process_group import ProcessGroup

    inner = ProcessGroup.within(group)
    if inner is None and given:
        raise TypeError(f"group is a {type(group).__name__}; accepted: a group of the backend dlcp")
    return inner
