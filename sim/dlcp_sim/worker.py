"""A process that simulates points of a sweep, one after the other: `python -m dlcp_sim.worker DESCRIPTOR PARENT`.

It is asked and answers over one connection, of which it is given the descriptor, by the process PARENT. A program of
its own, not a fork or a spawn of the sweep's, so that it inherits neither threads nor somebody's `__main__`. It ends
when the connection ends, or when the process that started it is gone.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any


def simulate(tables: Mapping[str, Any], modules: Sequence[str] = (), parent: int | None = None) -> bytes:
    """Runs a scenario given in tables. Returns its result as a block. `modules` are imported first.

    Ends this process when `parent` is not its parent any more; None: whoever is now.
    """
    from dlcp_sim.scenario import Scenario

    for module in modules:
        importlib.import_module(module)

    parent = parent or os.getppid()

    def look(_: object) -> None:
        if os.getppid() != parent:
            sys.exit("the sweep that asked for this is gone")

    return Scenario.from_dict(tables).run(look).to_bytes()


def explained(error: BaseException) -> str:
    """An error in one line if it is a caller's mistake, else with the place where it happened."""
    from dlcp.errors import DlcpError

    if isinstance(error, DlcpError):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()


def main() -> int:
    """The process. Returns its exit status."""
    # Ctrl-C on a terminal reaches the whole group; the sweep decides what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not asked of the kernel: the sweep may be gone before this process has come so far.
    parent = int(sys.argv[2])
    os.dup2(2, 1)  # who reads standard output wants no lines of ours
    with Connection(int(sys.argv[1])) as sweep:
        while True:
            try:
                tables, modules = sweep.recv()
            except (EOFError, ConnectionError):
                return 0
            try:
                answer: tuple[bytes | None, str] = simulate(tables, modules, parent), ""
            except Exception as error:
                answer = None, explained(error)
            try:
                sweep.send(answer)
            except ConnectionError:
                return 1


if __name__ == "__main__":
    sys.exit(main())
