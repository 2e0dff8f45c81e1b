"""Ports that a test gives to a program by number.

A port that bind() to 0 has given, and that is closed again, may be anybody's a moment later: tests beside this one, and
whatever else runs here, ask the kernel for theirs all the time. So these come from below what Linux gives by itself
(32768 and above: ip(7), ip_local_port_range), and each worker of pytest-xdist has blocks of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

HOST = "127.0.0.1"
_FIRST, _BLOCKS, _BLOCK_PORTS = 8192, 384, 64
_taken = itertools.count()


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_DGRAM) -> range:
    """Ports of loopback in a row that nobody has: at most 64 of them, UDP's unless `kind` says otherwise."""
    assert count <= _BLOCK_PORTS
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # The parent is the same for all workers of one run; another run begins elsewhere.
    start = os.getppid() if workers > 1 else os.getpid()
    for number in itertools.islice(_taken, _BLOCKS):
        first = _FIRST + (start + number * workers + worker) % _BLOCKS * _BLOCK_PORTS
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket(socket.AF_INET, kind)).bind((HOST, port))
            return range(first, first + count)
    raise AssertionError(f"no {count} ports in a row are free")


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    """A port of loopback that nobody has."""
    return free_ports(1, kind)[0]
