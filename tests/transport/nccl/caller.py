"""NCCL's side of a network plug-in: its table, called in the way in which NCCL calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_uint64, c_ulong, c_void_p
from typing import Any

import numpy as np

from dlcp.transport import plugins

SUCCESS, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_USAGE, REMOTE_ERROR = 0, 2, 3, 5, 6
HANDLE_BYTES = 128

_PLACE = POINTER(c_void_p)
# The last two are variable arguments for C; whatever NCCL's format asks for, here it is one text.
_LOGGER = ctypes.CFUNCTYPE(None, c_int, c_ulong, c_char_p, c_int, c_char_p, c_char_p)


def _function(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(c_int, *arguments)


class Properties(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("pci_path", c_char_p),
        ("guid", c_uint64),
        ("pointers", c_int),
        ("registration_is_global", c_int),
        ("speed_mbps", c_int),
        ("port", c_int),
        ("latency_us", c_float),
        ("max_connections", c_int),
        ("max_grouped_receives", c_int),
        ("device_type", c_int),
        ("device_version", c_int),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("init", _function(_LOGGER)),
        ("devices", _function(POINTER(c_int))),
        ("get_properties", _function(c_int, POINTER(Properties))),
        ("listen", _function(c_int, c_void_p, _PLACE)),
        ("connect", _function(c_int, c_void_p, _PLACE, _PLACE)),
        ("accept", _function(c_void_p, _PLACE, _PLACE)),
        ("register", _function(c_void_p, c_void_p, ctypes.c_size_t, c_int, _PLACE)),
        ("register_dma_buffer", c_void_p),
        ("deregister", _function(c_void_p, c_void_p)),
        ("send", _function(c_void_p, c_void_p, c_int, c_int, c_void_p, _PLACE)),
        ("receive", _function(c_void_p, c_int, _PLACE, POINTER(c_int), POINTER(c_int), _PLACE, _PLACE)),
        ("flush", _function(c_void_p, c_int, _PLACE, POINTER(c_int), _PLACE, _PLACE)),
        ("test", _function(c_void_p, POINTER(c_int), POINTER(c_int))),
        ("close_sender", _function(c_void_p)),
        ("close_receiver", _function(c_void_p)),
        ("close_listener", _function(c_void_p)),
        ("get_device_registration", c_void_p),
        ("receive_consumed", c_void_p),
    )


class NetError(Exception):
    """A call gave another result than success."""

    def __init__(self, result: int, log: list[str]) -> None:
        super().__init__(f"result {result}; {'; '.join(log)}")
        self.result = result


class Net:
    """The plug-in of this process: calls raise NetError where they give NCCL anything but success.

    Environment variables are read once in a process, by the first Net.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self._logger = _LOGGER(lambda _level, _of, _file, _line, form, text: self._note(form, text))
        self.table = _Table.in_dll(ctypes.CDLL(str(plugins.nccl_net_path())), "ncclNetPlugin_v8")
        self.call("init", self._logger)

    def _note(self, form: bytes, text: bytes) -> None:
        self.log.append(form.decode() % text.decode())

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.table, name)(*arguments)
        if result != SUCCESS:
            raise NetError(result, self.log)

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """What a call makes, which it puts in the place that is its last argument; empty: not yet."""
        place = c_void_p()
        self.call(name, *arguments, byref(place))
        return place

    def devices(self) -> int:
        count = c_int()
        self.call("devices", byref(count))
        return count.value

    def properties(self, device: int) -> Properties:
        properties = Properties()
        self.call("get_properties", device, byref(properties))
        return properties

    def listen(self, device: int = 0) -> tuple[c_void_p, ctypes.Array[c_char]]:
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        return self.made("listen", device, handle), handle

    def connect(self, handle: ctypes.Array[c_char], device: int = 0) -> c_void_p:
        """The sender; empty: not yet."""
        sender, offload = c_void_p(), c_void_p()
        self.call("connect", device, handle, byref(sender), byref(offload))
        return sender

    def accept(self, listener: c_void_p) -> c_void_p:
        """The receiver; empty: not yet."""
        receiver, offload = c_void_p(), c_void_p()
        self.call("accept", listener, byref(receiver), byref(offload))
        return receiver

    def send(self, sender: c_void_p, data: np.ndarray) -> Request:
        return Request(self, self.made("send", sender, data.ctypes.data, data.nbytes, 0, None), data)

    def receive(self, receiver: c_void_p, data: np.ndarray) -> Request:
        buffer, bytes_, tag, none = c_void_p(data.ctypes.data), c_int(data.nbytes), c_int(0), c_void_p()
        arguments = (byref(buffer), byref(bytes_), byref(tag), byref(none))
        return Request(self, self.made("receive", receiver, 1, *arguments), data)

    def connection(self) -> tuple[c_void_p, c_void_p]:
        """A sender and a receiver, both of this process."""
        listener, handle = self.listen()
        sender = until(lambda: self.connect(handle))
        receiver = until(lambda: self.accept(listener))
        self.call("close_listener", listener)
        return sender, receiver


class Request:
    """A send or a receive under way, which uses the memory of `data`."""

    def __init__(self, net: Net, made: c_void_p, data: np.ndarray) -> None:
        self.net, self.made, self.data = net, made, data
        self.bytes = -1
        """What moved, once it is over."""

    def test(self) -> bool:
        done, bytes_ = c_int(), c_int()
        self.net.call("test", self.made, byref(done), byref(bytes_))
        if done.value:
            self.bytes = bytes_.value
        return bool(done.value)


def until(ask: Callable[[], Any]) -> Any:
    """Asks until the answer is true, as NCCL does."""
    while not (answer := ask()):
        pass
    return answer
