"""Runs a function on every rank of a small world, each rank a process of its own, and brings back what they say.

Importing torch costs more than most tests, so the ranks are forked from a server that has imported it, and only it and
dlcp: every rank is fresh otherwise. A rank that is not back in time fails the test with the stacks of its threads, and
all ranks are killed.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# Generous: the machine may be busy with other tests, and much beside them.
TIMEOUT_S = 200.0
# Of the group: a hang inside a collective should say so itself before the test's own limit.
GROUP_TIMEOUT_S = 45.0
# Tests use the names of torch 2.13.
for new, old in (
    ("all_gather_single", "all_gather_into_tensor"),
    ("reduce_scatter_single", "reduce_scatter_tensor"),
):
    if not hasattr(dist, new):
        setattr(dist, new, getattr(dist, old))

_context = multiprocessing.get_context("forkserver")
# dlcp first: it must not need dynamo. Most tests do, since DDP imports it.
_PRELOADED = ("torch", "dlcp.torch.process_group", "torch._dynamo", "torch.distributed.fsdp", "pytest")


class RanksError(AssertionError):
    """Some rank failed, died or hung; the text is theirs."""


def start_server() -> None:
    """Starts the server that forks ranks, if there is none.

    A process has one such server, with the modules that its first user named. Tests of the benchmarks' worlds call this
    before those start it: with their few modules every rank of every later test would import the others anew.
    """
    _context.set_forkserver_preload(list(_PRELOADED))
    forkserver.ensure_running()


def run(
    function: Callable[..., Any],
    world_size: int = 2,
    *,
    backend: str | None = "dlcp",
    timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
    **arguments: Any,
) -> list[Any]:
    """What `function(**arguments)` returned on each rank, in order.

    `backend`: of the default group, made before and destroyed after; None: the function makes its own. The function is
    one of a module, and what goes in and out can be pickled. Raises RanksError.
    """
    start_server()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = [_Rank(rank, world_size, store.port, environment or {}) for rank in range(world_size)]
    try:
        for rank in ranks:
            rank.start(function, arguments, backend, timeout_s)
        end_s = time.monotonic() + timeout_s + 5
        for rank in ranks:
            rank.finish(max(0.0, end_s - time.monotonic()))
    finally:
        for rank in ranks:
            rank.kill()
    failed = [f"--- rank {rank.number} ---\n{rank.complaint}" for rank in ranks if rank.complaint]
    if failed:
        raise RanksError("\n".join(failed))
    return [rank.result for rank in ranks]


class _Rank:
    """One rank's process, seen from the test."""

    def __init__(self, number: int, world_size: int, port: int, environment: Mapping[str, str]) -> None:
        self.number = number
        self.result: Any = None
        self.complaint = ""
        self._environment = {
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # env:// connects to the store that the test serves
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            **environment,
        }

    def start(
        self, function: Callable[..., Any], arguments: dict[str, Any], backend: str | None, timeout_s: float
    ) -> None:
        self._answer, theirs = _context.Pipe(duplex=False)
        with tempfile.NamedTemporaryFile(prefix="dlcp-stacks-", delete=False) as file:
            self._stacks = Path(file.name)
        self._process = _context.Process(
            target=_main,
            args=(function, arguments, backend, timeout_s, self._environment, theirs, str(self._stacks)),
            daemon=True,
        )
        self._process.start()
        theirs.close()

    def finish(self, wait_s: float) -> None:
        """Waits for the answer and for the process's own end."""
        end_s = time.monotonic() + wait_s
        try:
            if self._answer.poll(wait_s):
                self.result, self.complaint = self._answer.recv()
            else:
                self.complaint = f"not back in time\n{self._stacks.read_text()}"
                return
        except EOFError:
            self._process.join(1)
            self.complaint = f"died with {self._process.exitcode} and no word\n{self._stacks.read_text()}"
            return
        self._process.join(max(1.0, end_s - time.monotonic()))
        if self._process.exitcode is None:
            self.complaint += f"\nhangs at its end\n{self._stacks.read_text()}"
        elif self._process.exitcode:
            self.complaint += f"\nended with {self._process.exitcode}"

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._answer.close()
        self._stacks.unlink(missing_ok=True)


def _main(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    backend: str | None,
    timeout_s: float,
    environment: Mapping[str, str],
    answer: Any,
    stacks: str,
) -> None:
    missing = [name for name in _PRELOADED if name not in sys.modules]
    if missing:
        answer.send(
            (None, f"forked from a server without {', '.join(missing)}: call ranks.start_server() first")
        )
        sys.exit(1)
    os.environ.update(environment)
    torch.set_num_threads(1)
    # torch read it when the server imported it.
    dist.set_debug_level_from_env()
    with Path(stacks).open("w") as file:
        faulthandler.enable(file)
        faulthandler.dump_traceback_later(timeout_s, file=file)
        try:
            if backend is not None:
                dist.init_process_group(backend, timeout=timedelta(seconds=GROUP_TIMEOUT_S))
            result = function(**arguments)
            if backend is not None:
                dist.destroy_process_group()
            pickle.dumps(result)
            answer.send((result, ""))
        except BaseException:
            answer.send((None, traceback.format_exc()))
            sys.exit(1)
        finally:
            answer.close()
            faulthandler.cancel_dump_traceback_later()
            faulthandler.disable()
