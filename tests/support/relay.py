"""A datagram relay on loopback between two endpoints, which drops what a test tells it to.

Each endpoint must have one path, so that what comes from its address is all that it sends.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from dlcp import _native

Header = dict[str, int]


class Relay:
    """Forwards between `server`, whose address is given, and the one client that sends to `address`.

    `drops(header, towards_server)` says for each packet whether it vanishes; it is called on the relay's thread.
    """

    def __init__(self, server: str, drops: Callable[[Header, bool], bool]) -> None:
        host, port = server.rsplit(":", 1)
        self._server = (host, int(port))
        self._client: tuple[str, int] | None = None
        self._drops = drops
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where the client connects to."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
            stop.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while True:
            datagram, source = self._socket.recvfrom(65536)
            if not datagram:
                return
            towards_server = source != self._server
            if towards_server:
                self._client = source
            target = self._server if towards_server else self._client
            error, header = _native.parse_header(datagram)
            assert header is not None, error
            if target is not None and not self._drops(header, towards_server):
                self._socket.sendto(datagram, target)
