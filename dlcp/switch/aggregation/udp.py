"""Worker and hub over UDP sockets, each in the thread that calls.

`UdpWorker.all_reduce` blocks until its result is there or the job has failed; `UdpHub.serve` until it is stopped. A
worker takes packets only from the hub's address, the hub only from its workers'. That keeps strays out, and is no
authentication (see the package). IPv4, as the switch's program.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import time
from collections.abc import Callable, Collection, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from dlcp.errors import AddressError
from dlcp.switch.aggregation.hub import Hub
from dlcp.switch.aggregation.packet import PACKET_BYTES
from dlcp.switch.aggregation.result import AggregationResult
from dlcp.switch.aggregation.settings import JobSettings
from dlcp.switch.aggregation.worker import Failed, Worker

Address = tuple[str, int]

_BUFFER_BYTES = 1 << 22  # results come in bursts of a window
_AT_ONCE = 256  # datagrams that are taken before others are sent
_MAX_WAIT_S = 0.1  # so that a stop is noticed


def _open(bind: Address) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        made.setblocking(False)
        made.bind(bind)
    except OSError as error:
        made.close()
        raise AddressError(f"cannot bind UDP socket to {bind[0]}:{bind[1]}: {error.strerror}") from None
    return made


def _checked(name: str, address: Address, least_port: int = 1) -> Address:
    """AddressError unless it is in the kernel's form, with which senders are compared. No name is looked up."""
    try:
        if not least_port <= address[1] <= 65535:
            raise ValueError
        return str(ipaddress.IPv4Address(address[0])), address[1]
    except ValueError:
        told = f"{address[0]}:{address[1]}"
        raise AddressError(
            f"{name} is {told!r}; accepted: an IPv4 address in numbers, and a port up to 65535"
        ) from None


def _receive(made: socket.socket) -> tuple[bytes, Address] | None:
    """The next datagram that is there. An ICMP error of an earlier one is passed over."""
    while True:
        try:
            data, address = made.recvfrom(PACKET_BYTES + 1)
        except BlockingIOError:
            return None
        except OSError:
            if made.fileno() < 0:
                raise AddressError("the socket is closed") from None
            continue
        return data, address


class _Endpoint:
    """An engine's socket; a context manager."""

    def __init__(self, engine: Hub | Worker, bind: Address) -> None:
        self._engine = engine
        self._socket = _open(_checked("bind", bind, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _take(self, senders: Collection[Address]) -> None:
        """Hands over what has arrived, up to a bound: a flood must not delay sending, or hide a stop."""
        for _ in range(_AT_ONCE):
            received = _receive(self._socket)
            if received is None:
                return
            data, address = received
            if address in senders:
                self._engine.handle_packet(data, time.monotonic_ns())
            else:
                self._engine.counters["stray"] += 1

    def _send(self, data: bytes, address: Address) -> None:
        """Sends one datagram; what the kernel does not take is lost like any packet."""
        with contextlib.suppress(OSError):
            self._socket.sendto(data, address)

    def _wait(self) -> None:
        next_ns = self._engine.next_time_ns()
        left_s = _MAX_WAIT_S if next_ns is None else (next_ns - time.monotonic_ns()) / 1e9
        if left_s > 0:
            select.select([self._socket], [], [], min(left_s, _MAX_WAIT_S))


class UdpWorker(_Endpoint):
    """One worker of a job; a context manager."""

    def __init__(self, settings: JobSettings, worker: int, bind: Address, hub: Address) -> None:
        self.engine = Worker(settings, worker)
        self._hub = _checked("hub", hub)
        super().__init__(self.engine, bind)

    def all_reduce(self, values: npt.NDArray[np.generic]) -> AggregationResult:
        """The sum of values (float32 or int32), and the workers in it. Blocks; raises the error of a failed job."""
        number = self.engine.start(values, time.monotonic_ns())
        while True:
            self._step()
            while (event := self.engine.poll_event()) is not None:
                if isinstance(event, Failed):
                    raise event.error
                if event.message == number:
                    return event.result
            self._wait()

    def linger(self, time_s: float) -> bool:
        """Answers requests until all workers have everything or the time is up; whether they have."""
        until_ns = time.monotonic_ns() + int(time_s * 1e9)
        while not self.engine.is_idle and time.monotonic_ns() < until_ns:
            self._step()
            self._wait()
        return self.engine.is_idle

    def _step(self) -> None:
        self._send_all()
        self._take((self._hub,))
        self._send_all()

    def _send_all(self) -> None:
        while (data := self.engine.poll_packet(time.monotonic_ns())) is not None:
            self._send(data, self._hub)


class UdpHub(_Endpoint):
    """The hub of a job; a context manager."""

    def __init__(self, settings: JobSettings, bind: Address, workers: Sequence[Address]) -> None:
        self.engine = Hub(settings)
        self._workers = [_checked(f"workers[{index}]", worker) for index, worker in enumerate(workers)]
        if len(set(self._workers)) != len(workers) or len(workers) != settings.workers:
            told = ", ".join(f"{host}:{port}" for host, port in self._workers)
            raise AddressError(f"workers are {told or 'none'}; accepted: {settings.workers}, each once")
        super().__init__(self.engine, bind)

    def serve(self, stop: Callable[[], bool]) -> None:
        """Works until `stop` says so, which is asked ten times a second at least."""
        while not stop():
            self._take(self._workers)
            while (sent := self.engine.poll_packet(time.monotonic_ns())) is not None:
                self._send(sent[1], self._workers[sent[0]])
            self._wait()
