"""A neighbour's TCP on a rank's link: on and off as a trace says, or always; and what of it arrived.

    python -m bench.neighbour listen RATE_BPS RUNNING             says "ready", then a line of JSON at the end
    python -m bench.neighbour connect RATE_BPS RUNNING ADDRESS    the same, at the other end
    with --always: no trace; --congestion NAME: TCP's

One connection, and each end sends, so that both directions of the link are shared. The trace begins when the file
RUNNING comes to be, and is over with it: every way of training meets the same seconds. While it is on, an end sends at
the rate, and not faster afterwards to make up for what it could not send: it is never more than its share of a link.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from dlcp.lab import Lab, LabError

TRACE = Path(__file__).with_name("neighbour_trace.txt")
PORT = 7701
_CHUNK = bytes(32 * 1024)
# Who was not scheduled for longer does not send all of it at once, as in dlcp.lab.traffic.
_CREDIT_S = 0.02
# What a socket holds unsent, and so sends after its time: 3 ms at 160 Mbit/s.
_UNSENT_BYTES = 64 * 1024
_READY_S, _BEGIN_S = 20.0, 300.0
_LOOK_S = 0.005


@dataclass(frozen=True)
class Trace:
    """On and off in turn, on first; it begins again at its end."""

    phases: tuple[tuple[float, float], ...]
    """Seconds on, seconds off; all more than 0."""

    def __post_init__(self) -> None:
        if not self.phases or not all(on_s > 0 and off_s > 0 for on_s, off_s in self.phases):
            raise ValueError(f"phases is {self.phases}; accepted: one pair or more, all above 0")

    @classmethod
    def load(cls, path: Path) -> Self:
        """A line is a pair; `#` begins a comment."""
        lines = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
        return cls(tuple((float(on_s), float(off_s)) for on_s, off_s in filter(None, lines)))

    @classmethod
    def always(cls) -> Self:
        """On for a day, which is longer than any run."""
        return cls(((86400.0, 1.0),))

    @cached_property
    def period_s(self) -> float:
        return sum(on_s + off_s for on_s, off_s in self.phases)

    @cached_property
    def on_s_per_period(self) -> float:
        return sum(on_s for on_s, _ in self.phases)

    def at(self, time_s: float) -> tuple[bool, float]:
        """Whether it is on then, and for how long it stays so."""
        left_s = time_s % self.period_s
        for on_s, off_s in self.phases:
            if left_s < on_s:
                return True, on_s - left_s
            if left_s < on_s + off_s:
                return False, on_s + off_s - left_s
            left_s -= on_s + off_s
        return True, self.phases[0][0]  # by rounding, the very end

    def on_s(self, until_s: float) -> float:
        """How long it has been on from its beginning until then."""
        rounds, left_s = divmod(until_s, self.period_s)
        total_s = rounds * self.on_s_per_period
        for on_s, off_s in self.phases:
            total_s += min(max(0.0, left_s), on_s)
            left_s -= on_s + off_s
        return total_s


@dataclass(frozen=True)
class Moved:
    """What arrived at both ends together."""

    nbytes: int
    on_s: float

    @property
    def rate_bps(self) -> float:
        """Of payload, both directions together, while it was on."""
        return 8 * self.nbytes / self.on_s


class Neighbour:
    """A connection between two hosts of a lab that waits for its trace to begin; ended with the lab at the latest.

    Raises LabError: an end did not get ready, or did not say what it saw.
    """

    def __init__(
        self,
        lab: Lab,
        host: int,
        peer: int,
        rate_bps: int,
        running: Path,
        *,
        always: bool = False,
        congestion: str = "cubic",
    ) -> None:
        words = [sys.executable, "-m", "bench.neighbour", "--congestion", congestion]
        words += ["--always"] if always else []
        listening = lab.start(host, [*words, "listen", rate_bps, running])
        connecting = lab.start(peer, [*words, "connect", rate_bps, running, lab.addresses[host]])
        self._ends: list[subprocess.Popen[str]] = [listening, connecting]
        for end in self._ends:
            assert end.stdout is not None
            if end.stdout.readline() != "ready\n":
                raise LabError(f"the neighbour's TCP: {_last_words(end)}")

    def moved(self) -> Moved:
        """What arrived; to be called once its trace is over."""
        told = []
        for end in self._ends:
            try:
                told.append(json.loads(end.communicate(timeout=_READY_S)[0]))
            except (subprocess.TimeoutExpired, json.JSONDecodeError):
                raise LabError(f"the neighbour's TCP: {_last_words(end)}") from None
        return Moved(sum(one["received_bytes"] for one in told), max(one["on_s"] for one in told))


def _last_words(end: subprocess.Popen[str]) -> str:
    end.kill()
    _, complaint = end.communicate()
    return complaint.strip().splitlines()[-1] if complaint.strip() else "did not answer in time"


# --- at an end --------------------------------------------------------------------------------------------------


def replay(connection: socket.socket, trace: Trace, rate_bps: int, running: Path) -> dict[str, float]:
    """Sends and receives while the file is there, and says what arrived; the file may be late, by minutes."""
    _wait_for(running)
    connection.settimeout(0.2)
    over, received_bytes = threading.Event(), 0
    start_s = time.perf_counter()
    sender = threading.Thread(target=_send, args=(connection, trace, rate_bps, start_s, over))
    watch = threading.Thread(target=_watch, args=(running, over))
    sender.start()
    watch.start()
    while not over.is_set():
        try:
            data = connection.recv(1 << 18)
        except TimeoutError:
            continue
        except ConnectionResetError:
            data = b""
        received_bytes += len(data)
        if not data:  # the other end saw the file's end first
            break
    elapsed_s = time.perf_counter() - start_s
    sender.join()
    watch.join()
    return {"received_bytes": received_bytes, "on_s": trace.on_s(elapsed_s), "elapsed_s": elapsed_s}


def _send(
    connection: socket.socket, trace: Trace, rate_bps: int, start_s: float, over: threading.Event
) -> None:
    interval_s = len(_CHUNK) * 8 / rate_bps
    next_s = start_s
    while not over.is_set():
        now_s = time.perf_counter()
        is_on, left_s = trace.at(now_s - start_s)
        if not is_on:
            over.wait(left_s)
        elif now_s < next_s:
            over.wait(next_s - now_s)
        else:
            next_s = max(next_s, now_s - _CREDIT_S) + interval_s
            try:
                _send_chunk(connection, over)
            except OSError:  # the other end saw the file's end first
                return


def _send_chunk(connection: socket.socket, over: threading.Event) -> None:
    left = memoryview(_CHUNK)
    while left and not over.is_set():
        with contextlib.suppress(TimeoutError):
            left = left[connection.send(left) :]


def _watch(running: Path, over: threading.Event) -> None:
    while running.exists():
        time.sleep(_LOOK_S)
    over.set()


def _wait_for(running: Path) -> None:
    end_s = time.monotonic() + _BEGIN_S
    while not running.exists():
        if time.monotonic() > end_s:
            raise SystemExit(f"{running} is not there after {_BEGIN_S:g} s")
        time.sleep(_LOOK_S)


def _connect(address: str) -> socket.socket:
    end_s = time.monotonic() + _READY_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=_READY_S)
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)


def _accept() -> socket.socket:
    with socket.create_server(("", PORT)) as listening:
        listening.settimeout(_READY_S)
        return listening.accept()[0]


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m bench.neighbour", description=__doc__.split("\n", 1)[0])
    parser.add_argument("end", choices=["listen", "connect"])
    parser.add_argument("rate_bps", type=int)
    parser.add_argument("running", type=Path)
    parser.add_argument("address", nargs="?", help="of who listens")
    parser.add_argument("--always", action="store_true", help="on all the time, not as the trace says")
    parser.add_argument("--congestion", metavar="NAME", default="cubic", help="TCP's congestion control")
    options = parser.parse_args()
    trace = Trace.always() if options.always else Trace.load(TRACE)
    with _accept() if options.end == "listen" else _connect(options.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.congestion.encode())
        print("ready", flush=True)
        print(json.dumps(replay(connection, trace, options.rate_bps, options.running)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
