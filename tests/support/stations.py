"""Processes that a test speaks to: each runs functions that it is told and keeps what they make.

What a process can have only once, such as DPDK's environment or a network namespace from its start, is had in a
station. Calls to one station run one after the other on its main thread; stations run at the same time. What a call
raises is raised in the test, with the station's stack; one that does not come back fails the test with its stacks and
with what it has written.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing.connection
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.support.namespaces import Namespace

Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parents[2]
# Ends what would hang; far above what anything here takes.
PATIENCE_S = 60.0
_CLONE_NEWNET = 0x40000000


class StationError(AssertionError):
    """A station failed, died or hung; the text says what it was doing."""


class Pending:
    """A call under way."""

    def __init__(self, station: Station, words: str) -> None:
        self._station = station
        self.words = words
        self._answer: tuple[Any, BaseException | None] | None = None

    def result(self, timeout_s: float = PATIENCE_S) -> Any:
        """What it returned or raised."""
        while self._answer is None:
            self._station._take(timeout_s)
        value, error = self._answer
        if error is not None:
            raise error
        return value


class Station:
    """One process, from `with` to its end; `name` is for messages.

    `namespace`: where its network is; None: the test's own. `environment`: more of it, over that of the test.
    """

    def __init__(
        self,
        name: str,
        namespace: Namespace | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._pending: deque[Pending] = deque()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in close()
        ours, theirs = socket.socketpair()
        with theirs:
            command = f"from tests.support.stations import serve; serve({theirs.fileno()})"
            self.process = subprocess.Popen(
                [sys.executable, "-c", command],
                cwd=ROOT,
                env={
                    **os.environ,
                    "STATION_NAMESPACE": namespace.name if namespace else "",
                    **(environment or {}),
                },
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        self._connection = multiprocessing.connection.Connection(ours.detach())

    def __enter__(self) -> Station:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, function: Callable[..., Result], *arguments: Any, **keywords: Any) -> Pending:
        """Begins a call; several wait for each other in this order. `function` is a module's."""
        words = f"station {self.name}: {function.__module__}.{function.__name__}{arguments} {keywords or ''}"
        pending = Pending(self, words)
        try:
            self._connection.send((function, arguments, keywords))
        except OSError as error:
            raise StationError(f"{words}: the process is gone\n{self.log()}") from error
        self._pending.append(pending)
        return pending

    def call(self, function: Callable[..., Result], *arguments: Any, **keywords: Any) -> Result:
        """What the function returns or raises there."""
        return self.start(function, *arguments, **keywords).result()  # type: ignore[no-any-return]

    def log(self) -> str:
        """What it has written so far."""
        self._log.flush()
        self._log.seek(0)
        return self._log.read()

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Lets it end, or ends it if it does not."""
        with contextlib.suppress(OSError):
            self._connection.close()
        try:
            self.process.wait(PATIENCE_S / 6)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()

    def _take(self, timeout_s: float) -> None:
        """Takes the next answer."""
        pending = self._pending[0]
        if not self._connection.poll(timeout_s):
            self.process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
            raise StationError(f"{pending.words}: not back after {timeout_s:g} s\n{self.log()}")
        try:
            value, error, where = self._connection.recv()
        except (EOFError, OSError):
            self.process.wait(PATIENCE_S)
            raise StationError(
                f"{pending.words}: the process ended with {self.process.returncode}\n{self.log()}"
            ) from None
        self._pending.popleft()
        if error is not None:
            error.add_note(f"{pending.words}\n{where}")
        pending._answer = (value, error)


def both(
    first: Station, second: Station, function: Callable[..., Any], *pairs: tuple[Any, Any], **keywords: Any
) -> tuple[Any, Any]:
    """One function on two stations at once; each of `pairs` is an argument, for the first and for the second."""
    calls = [
        station.start(function, *(pair[side] for pair in pairs), **keywords)
        for side, station in enumerate((first, second))
    ]
    return calls[0].result(), calls[1].result()


def on_all(
    stations: Sequence[Station], function: Callable[..., Any], *arguments: Any, **keywords: Any
) -> list[Any]:
    """function(0, …) on the first station, function(1, …) on the second, …, all at once."""
    calls = [
        station.start(function, number, *arguments, **keywords) for number, station in enumerate(stations)
    ]
    return [call.result() for call in calls]


def serve(descriptor: int) -> None:
    """A station's life: calls come by the connection until it closes."""
    if name := os.environ.pop("STATION_NAMESPACE", ""):
        # Before there is any other thread: all that come are in it too.
        with Path(f"/run/netns/{name}").open() as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns {name}")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    connection = multiprocessing.connection.Connection(descriptor)
    while True:
        try:
            function, arguments, keywords = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (function(*arguments, **keywords), None, "")
        except Exception as error:
            answer = (None, _portable(error), traceback.format_exc())
        connection.send(answer)


def _portable(error: Exception) -> Exception:
    """The error, or one that says the same and can be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return StationError(f"{type(error).__name__}: {error}")
    return error
