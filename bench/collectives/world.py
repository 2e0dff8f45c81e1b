"""Ranks for a benchmark: processes with torch in them, each in the network namespace that it is placed in.

Importing torch costs more than most measurements, so ranks are forked from a server that has imported it. They find
each other through a store that another process keeps, as under torchrun: the store outlives every rank.

Invariant: no rank outlives its world, and no world the `with` around Ranks; if this process is killed, the kernel kills
them. What a rank reads of DLCP_*, GLOO_* and TORCH_* is what its place and its backend say, not what is set outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Self

from dlcp.lab import Lab
from dlcp.lab.namespaces import INTERFACE

# How long a rank may take for what it was not told a time for.
WORLD_S = 240.0
_PRELOAD = ["torch", "torch.distributed", "dlcp.torch.process_group", "numpy", "bench.collectives.world"]
_FOREIGN = ("DLCP_", "GLOO_", "TORCH_", "NCCL_")
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1


class WorldError(RuntimeError):
    """A rank failed, died or did not come back; the message holds its words."""


@dataclass(frozen=True)
class Backend:
    """What is measured: a name for tables, torch's name, and settings by environment variable."""

    label: str
    name: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    precision: str | None = None
    """dlcp: of the all-reduces that are timed; None: they are exact."""
    device: str = "cpu"
    """Where the tensors of those are."""


GLOO = Backend("Gloo", "gloo")
DLCP = Backend("dlcp", "dlcp", {"DLCP_SHM": "0"})
DLCP_UNAUTHENTICATED = Backend(
    "dlcp, no tags",
    "dlcp",
    {"DLCP_SHM": "0", "DLCP_ALLOW_UNAUTHENTICATED": "1", "DLCP_LOG_LEVEL": "error"},
)
DLCP_SHM = Backend("dlcp, shared memory", "dlcp")


@dataclass(frozen=True)
class Place:
    """Where ranks run: the network namespaces in order of rank, the store's address, and the interface."""

    namespaces: tuple[str | None, ...]
    address: str = "127.0.0.1"
    interface: str = "lo"
    addresses: tuple[str, ...] = ()
    """The ranks' own, in order; empty: all have the store's."""

    @classmethod
    def loopback(cls, world: int) -> Place:
        return cls((None,) * world)

    @classmethod
    def of_lab(cls, lab: Lab, world: int) -> Place:
        """Ranks in blocks, as launchers place them: with 2 hosts, ranks 0 and 1 of 4 are on the first."""
        hosts = [rank * lab.hosts // world for rank in range(world)]
        addresses = tuple(lab.addresses[host] for host in hosts)
        return cls(tuple(lab.namespace(host) for host in hosts), lab.addresses[0], INTERFACE, addresses)

    @property
    def world(self) -> int:
        return len(self.namespaces)


class Rank:
    """One rank's process."""

    def __init__(self, process: Any, answer: multiprocessing.connection.Connection) -> None:
        self.process = process
        self._answer = answer

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def result(self, timeout_s: float) -> Any:
        """What the rank's function returned. Raises WorldError: it raised, died, or is not back in time."""
        try:
            if not self._answer.poll(max(0.0, timeout_s)):
                raise WorldError("not back in time")
            value, complaint = self._answer.recv()
        except EOFError:
            self.process.join(1)
            raise WorldError(f"died with {self.process.exitcode} and no word") from None
        if complaint:
            raise WorldError(complaint)
        return value

    def end(self, timeout_s: float) -> bool:
        """Whether the process has ended by itself within the time; it is killed if not."""
        self.process.join(timeout_s)
        ended = self.process.exitcode is not None
        if not ended:
            self.process.kill()
            self.process.join()
        self._answer.close()
        return ended


class Ranks:
    """Starts worlds of ranks at one place or several, from `with` to its end."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)
        _start_server()
        self._worlds = itertools.count()
        self._stores: dict[tuple[str | None, str], int] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(
        self,
        function: Callable[..., Any],
        place: Place,
        backend: Backend,
        *arguments: Any,
        timeout_s: float = WORLD_S,
    ) -> list[Any]:
        """What `function(*arguments)` returned on each rank of a world, in order. Raises WorldError."""
        with self.world(function, place, backend, *arguments) as ranks:
            end_s = time.monotonic() + timeout_s
            results, complaints = [], []
            for number, rank in enumerate(ranks):
                try:
                    results.append(rank.result(end_s - time.monotonic()))
                except WorldError as error:
                    complaints.append(f"{backend.label}, rank {number} of {place.world}: {error}")
                    end_s = min(end_s, time.monotonic() + 10)  # the others are not likely to come back
            for number, rank in enumerate(ranks):
                if not complaints and not rank.end(20):
                    complaints.append(f"{backend.label}, rank {number} of {place.world} hangs at its end")
        if complaints:
            raise WorldError("\n".join(complaints))
        return results

    @contextlib.contextmanager
    def world(
        self,
        function: Callable[..., Any],
        place: Place,
        backend: Backend,
        *arguments: Any,
        group_timeout_s: float = 120.0,
    ) -> Iterator[list[Rank]]:
        """Ranks that make the default group and call `function(*arguments)`; what is left of them is killed.

        The function is one of a module; what goes in and out can be pickled.
        """
        group = Group(
            next(self._worlds), place.world, place.address, self._store(place), backend.name, group_timeout_s
        )
        ranks = []
        try:
            for number, namespace in enumerate(place.namespaces):
                answer, theirs = self._context.Pipe(duplex=False)
                environment = {"GLOO_SOCKET_IFNAME": place.interface, **backend.environment}
                process = self._context.Process(
                    target=_rank, args=(number, namespace, environment, group, function, arguments, theirs)
                )
                process.daemon = True
                process.start()
                theirs.close()
                ranks.append(Rank(process, answer))
            yield ranks
        finally:
            for rank in ranks:
                rank.end(0)

    def _store(self, place: Place) -> int:
        """The port of the store that serves a place."""
        where = (place.namespaces[0], place.address)
        if where not in self._stores:
            answer, theirs = self._context.Pipe(duplex=False)
            process = self._context.Process(target=_keep_store, args=(*where, theirs), daemon=True)
            process.start()
            theirs.close()
            keeper = Rank(process, answer)
            self._open.callback(keeper.end, 0)
            self._stores[where] = keeper.result(60)
        return self._stores[where]


@dataclass(frozen=True)
class Group:
    """What the ranks of a world need to find each other."""

    number: int
    world: int
    address: str
    port: int
    backend: str
    timeout_s: float


def _start_server() -> None:
    """Starts the server that forks ranks. torch reads its log level when it is imported, so it is set for that.

    It says of every namespace that its addresses have no names.
    """
    before = os.environ.get("TORCH_CPP_LOG_LEVEL")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["TORCH_CPP_LOG_LEVEL"]


# --- in the processes -----------------------------------------------------------------------------------------


def _keep_store(namespace: str | None, address: str, answer: Any) -> None:
    _settle_in(namespace, {})
    import torch.distributed as dist

    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    answer.send((store.port, ""))
    while True:
        signal.pause()


def _rank(
    number: int,
    namespace: str | None,
    environment: Mapping[str, str],
    group: Group,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    answer: Any,
) -> None:
    import torch
    import torch.distributed as dist

    try:
        _settle_in(namespace, environment)
        torch.set_num_threads(1)
        timeout = timedelta(seconds=group.timeout_s)
        store = dist.TCPStore(group.address, group.port, is_master=False, timeout=timeout)
        dist.init_process_group(
            group.backend,
            store=dist.PrefixStore(f"world{group.number}", store),
            rank=number,
            world_size=group.world,
            timeout=timeout,
        )
        result = function(*arguments)
        # Nobody leaves while another still works: its goodbye would be an error there.
        if not isinstance(result, Broken):
            dist.barrier()
        dist.destroy_process_group()
        answer.send((result, ""))
    except BaseException:
        answer.send((None, traceback.format_exc()))
        raise SystemExit(1) from None


@dataclass(frozen=True)
class Broken:
    """What a rank returns whose group has failed, so that nobody waits for the others."""

    what: Any


def _settle_in(namespace: str | None, environment: Mapping[str, str]) -> None:
    """Enters the namespace, takes on the environment, and dies with the server that forked this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl")
    if namespace is not None:
        with Path("/run/netns", namespace).open() as file:
            if libc.setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {namespace}")
    for name in list(os.environ):
        if name.startswith(_FOREIGN):
            del os.environ[name]
    os.environ.update({"OMP_NUM_THREADS": "1", **environment})
