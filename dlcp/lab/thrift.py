"""The few words of Thrift that BMv2 understands, without the Thrift library or generated code.

TCP, strict binary protocol, no framing, the service's name before the method's. A connection is made inside the
switch's network namespace, where the port is. Only calls with numbers and strings, one at a time.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from pathlib import Path

from dlcp.errors import DlcpError

I32, I64, STRING = 8, 10, 11  # types of arguments
_BOOL = 2
_NUMBERS = {_BOOL: ">B", I32: ">i", I64: ">q"}
_STOP = 0
_CALL, _EXCEPTION = 1, 3
_CLONE_NEWNET = 0x40000000


class Bmv2Error(DlcpError, RuntimeError):
    """The switch did not start, or refuses a command; the text holds what it said."""


class Thrift:
    """A connection to BMv2's Thrift server, in the network namespace that a file stands for; None: in ours."""

    def __init__(self, port: int, namespace: Path | None = None, timeout_s: float = 10.0) -> None:
        self._socket = _connect(port, namespace, timeout_s)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def call(self, service: str, method: str, *arguments: tuple[int, int | str]) -> int | bytes | None:
        """The result of a method whose arguments are numbered from 1; Bmv2Error if it answers an exception."""
        self._sequence += 1
        name = f"{service}:{method}".encode()
        message = struct.pack(">Ii", 0x80010000 | _CALL, len(name)) + name + struct.pack(">i", self._sequence)
        for field, (kind, value) in enumerate(arguments, 1):
            message += struct.pack(">bh", kind, field)
            if isinstance(value, str):
                text = value.encode()
                message += struct.pack(">i", len(text)) + text
            else:
                message += struct.pack(_NUMBERS[kind], value)
        self._socket.sendall(message + bytes([_STOP]))
        head, length = struct.unpack(">Ii", self._read(8))
        self._read(length + 4)  # the method's name again, and the sequence number
        if head & 0xFF == _EXCEPTION:
            self.close()
            raise Bmv2Error(f"{service}.{method}: the switch does not know this call")
        return self._result(f"{service}.{method}")

    def _result(self, what: str) -> int | bytes | None:
        result: int | bytes | None = None
        while (kind := self._read(1)[0]) != _STOP:
            (field,) = struct.unpack(">h", self._read(2))
            value: int | bytes
            if kind in _NUMBERS:
                (value,) = struct.unpack(_NUMBERS[kind], self._read(struct.calcsize(_NUMBERS[kind])))
            elif kind == STRING:
                (size,) = struct.unpack(">i", self._read(4))
                value = self._read(size)
            else:  # a struct: an exception of the method's own
                self.close()
                raise Bmv2Error(f"{what}: the switch refuses it")
            if field == 0:
                result = value
        return result

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise Bmv2Error("the switch closed its Thrift connection")
            data += part
        return data


def _connect(port: int, namespace: Path | None, timeout_s: float) -> socket.socket:
    """A socket belongs to the namespace it was made in, so a thread goes there and makes it."""
    made: list[socket.socket | OSError] = []

    def inside() -> None:
        try:
            if namespace is not None:
                with namespace.open() as handle:
                    if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
            made.append(socket.create_connection(("127.0.0.1", port), timeout_s))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
