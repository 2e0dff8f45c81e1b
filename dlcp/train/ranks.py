"""The ranks of a job as processes of this machine: started, given orders, listened to, and ended.

Invariants: leaving the context ends every process that was started, whatever happened. A rank that fails or dies ends
the run with its own words; the others are not waited for. Every wait has a bound.

Ranks have a session of their own, so Ctrl-C at the terminal reaches only the driver, which ends them; a rank whose
driver is gone ends by itself (worker.py). What they print goes to one log file each.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dlcp.signals import fate
from dlcp.train.errors import RankError
from dlcp.train.plan import Run

# Importing torch takes a second or two, on a busy machine with cold disks much longer.
START_S_MAX = 180.0
# After the first sign of trouble, for the others' words: the death of one rank is often the error of all.
GRACE_S = 1.0
LEAVE_S = 5.0
LOG_LINES = 12

Command = Callable[[int, list[str]], list[str]]
Listener = Callable[[int, dict[str, Any]], None]


@dataclass(slots=True)
class _Rank:
    """One process and the pipe it reports to."""

    number: int
    process: subprocess.Popen[str]
    reports: int
    """File descriptor to read from."""
    log: Path
    unread: bytes = b""
    error: str | None = None
    """Its last word, if that was an error."""
    over: bool = False
    """The pipe is closed: the process is ending, or has ended."""
    ready: dict[str, Any] = field(default_factory=dict)


class TrainingRanks:
    """The processes of all ranks, from `with` to its end.

    `command`: what runs a rank's words, such as inside a network namespace. `host`: where rank 0 serves the store.
    `environment`: added to this process's.
    """

    def __init__(
        self,
        world_size: int,
        logs: Path,
        *,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        command: Command = lambda _, words: words,
    ) -> None:
        self._world_size = world_size
        self._logs = logs
        self._runtime = host
        # The ranks together have few cores; more threads would only take turns.
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self._command = command
        self._ranks: list[_Rank] = []
        self._selector = selectors.DefaultSelector()
        self._store: tuple[str, int] | None = None
        self._runs = 0

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            for number in range(self._world_size):
                self._start(number)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._dismiss()
        self._end()

    @property
    def pids(self) -> list[int]:
        """Process ids, by rank."""
        return [rank.process.pid for rank in self._ranks]

    def train(
        self,
        run: Run,
        data: Path,
        *,
        options: Mapping[str, Any],
        timeout_s: float,
        listen: Listener,
        own_options: Sequence[Mapping[str, Any]] = (),
        sharers: int = 0,
    ) -> None:
        """Has all ranks do a run, and calls `listen` with rank and report for each thing they say.

        `own_options`: by rank, beside `options`. `sharers`: ranks of one host, which share what its interface sends as
        what they have sent; 0: each counts its own packets.
        Blocks until every rank is done. Raises RankError: a rank failed, died, or none spoke for longer than any of
        their waits takes.
        """
        if self._store is None:
            self._await_all("ready", lambda _rank, _report: None, START_S_MAX)
            self._store = (self._runtime, int(self._ranks[0].ready["port"]))
        order = {
            "store": self._store,
            "number": self._runs,
            "run": asdict(run),
            "data": str(data),
            "sharers": sharers,
            "timeout_s": timeout_s,
        }
        self._runs += 1
        for rank in self._ranks:
            own = own_options[rank.number] if own_options else {}
            self._tell(rank, {**order, "options": {**options, **own}})
        # Twice: a timeout in the middle of a run, then another one while the group is closed.
        self._await_all("done", listen, 2 * timeout_s + 30)

    # --- starting and ending ------------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        reports, far_end = os.pipe()
        log = self._logs / f"rank-{number}.log"
        words = [sys.executable, "-m", "dlcp.train.worker"]
        words += [str(number), str(self._world_size), str(far_end), self._runtime]
        try:
            with log.open("w") as output:
                process = subprocess.Popen(
                    self._command(number, words),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(far_end,),
                    env=self._environment,
                    text=True,
                    start_new_session=True,
                )
        except BaseException:
            os.close(reports)
            raise
        finally:
            os.close(far_end)
        rank = _Rank(number, process, reports, log)
        self._ranks.append(rank)
        self._selector.register(reports, selectors.EVENT_READ, rank)

    def _tell(self, rank: _Rank, order: dict[str, Any] | None) -> None:
        assert rank.process.stdin is not None
        # One that has died is found out by its pipe.
        with contextlib.suppress(BrokenPipeError):
            rank.process.stdin.write(json.dumps(order) + "\n")
            rank.process.stdin.flush()

    def _dismiss(self) -> None:
        """Lets the ranks end by themselves."""
        for rank in self._ranks:
            self._tell(rank, None)
        deadline_s = time.monotonic() + LEAVE_S
        for rank in self._ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(max(0.0, deadline_s - time.monotonic()))

    def _end(self) -> None:
        for rank in self._ranks:
            if rank.process.poll() is None:
                rank.process.kill()
        for rank in self._ranks:
            rank.process.wait()
            if rank.process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # a line that it did not read any more
                    rank.process.stdin.close()
            os.close(rank.reports)
        self._ranks.clear()
        self._selector.close()

    # --- listening ----------------------------------------------------------------------------------------------

    def _await_all(self, event: str, listen: Listener, silence_s: float) -> None:
        """Blocks until every rank has said `event`."""
        missing = set(range(self._world_size))
        heard_s = time.monotonic()
        while missing:
            ready = self._selector.select(max(0.0, heard_s + silence_s - time.monotonic()))
            if not ready:
                names = ", ".join(map(str, sorted(missing)))
                raise RankError(
                    f"nothing was heard for {silence_s:g} s; rank {names} did not become {event}; "
                    f"see {self._logs}"
                )
            heard_s = time.monotonic()
            for key, _ in ready:
                self._read(key.data, event, missing, listen)
            if any(rank.error is not None or rank.over for rank in self._ranks):
                raise self._failure(event, missing, listen)

    def _read(self, rank: _Rank, event: str, missing: set[int], listen: Listener) -> None:
        got = os.read(rank.reports, 1 << 16)
        if not got:
            rank.over = True
            self._selector.unregister(rank.reports)
            return
        *lines, rank.unread = (rank.unread + got).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if report["event"] == "error":
                rank.error = report["text"]
                continue
            if report["event"] == "ready":
                rank.ready = report
            if report["event"] == event:
                missing.discard(rank.number)
            listen(rank.number, report)

    def _failure(self, event: str, missing: set[int], listen: Listener) -> RankError:
        """What all that fail say; first the one that died, which the others only miss."""
        deadline_s = time.monotonic() + GRACE_S
        while self._selector.get_map() and (left_s := deadline_s - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                self._read(key.data, event, missing, listen)
        died = [rank for rank in self._ranks if rank.over and rank.error is None]
        failed = [rank for rank in self._ranks if rank.error is not None]
        for rank in died:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(GRACE_S)
        lines = [f"rank {rank.number} {_fate(rank)}" for rank in died]
        for error in dict.fromkeys(rank.error for rank in failed):
            names = ", ".join(str(rank.number) for rank in failed if rank.error == error)
            lines.append(f"rank {names} failed: {error}")
        first = (died or failed)[0]
        if died and (tail := _tail(first.log)):
            lines.append(f"the last lines of {first.log}:")
            lines += [f"    {line}" for line in tail]
        else:
            lines.append(f"logs are in {self._logs}")
        return RankError("\n".join(lines))


def _fate(rank: _Rank) -> str:
    status = rank.process.returncode
    return "closed its report and went on" if status is None else fate(status)


def _tail(log: Path) -> Sequence[str]:
    return log.read_text(errors="replace").splitlines()[-LOG_LINES:]
