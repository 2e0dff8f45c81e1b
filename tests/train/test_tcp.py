"""What TCP connections have sent, as the kernel counts it."""

from __future__ import annotations

import socket

import pytest

from dlcp.train import tcp


def test_what_was_sent_is_counted_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = socket.create_connection(server.getsockname())
        second, _ = server.accept()
        with first, second:
            before = tcp.sent_bytes()
            if before is None:
                pytest.skip("this kernel does not count what TCP sends")
            for count in (1, 70_000):
                first.sendall(bytes(count))
                received = 0
                while received < count:
                    received += len(second.recv(1 << 16))
            second.sendall(bytes(500))
            assert len(first.recv(500, socket.MSG_WAITALL)) == 500
            after = tcp.sent_bytes()
            assert after is not None
            assert after - before == 70_501
