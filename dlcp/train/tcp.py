"""What the TCP connections of this process have sent, as the kernel counts it: Gloo does not say.

struct tcp_info (linux/tcp.h) has the field since Linux 4.19; a test compares it with what was sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path

_INFO_BYTES = 256
_BYTES_SENT_OFFSET = 200
"""Of tcpi_bytes_sent in struct tcp_info."""


def sent_bytes() -> int | None:
    """Payload that all open TCP connections of this process have sent, bytes that were sent again included.

    What a connection had sent before it was closed is not in it. None: the kernel does not say.
    """
    counts = [_sent_bytes(descriptor) for descriptor in _sockets()]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _sockets() -> list[int]:
    """Descriptors of this process that are sockets of any kind."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        with contextlib.suppress(OSError):  # closed meanwhile, as the listing's own
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found.append(number)
    return found


def _sent_bytes(descriptor: int) -> int | None:
    """None: not a TCP socket, or a kernel that does not say."""
    try:
        # A copy, so that closing it here leaves the owner's open.
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.type != socket.SOCK_STREAM or copy.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return None
    if len(info) < _BYTES_SENT_OFFSET + 8:
        return None
    (count,) = struct.unpack_from("=Q", info, _BYTES_SENT_OFFSET)
    return int(count)
