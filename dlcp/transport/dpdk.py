"""What DPDK says of itself and of its ports, before and beside an endpoint with driver dpdk.

    from dlcp.transport import dpdk

    dpdk.start("-a 0000:3b:00.0")
    print(dpdk.ports())

DPDK is started once per process and never stopped: by start(), or by the first endpoint with driver dpdk. Both are
one DPDK, that of the driver's plugin, which stands beside the compiled module where dlcp was built with DPDK. Any
thread may call any function; none holds the interpreter's lock meanwhile. After a fork the child has no DPDK: it must
be a process of its own (spawn).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlcp.errors import (
    ArgumentError,
    DlcpError,
    DriverError,
    ForkError,
    InterfaceError,
    ResourceError,
    SettingsError,
)
from dlcp.requirements import REBUILD
from dlcp.transport import plugins

_PLUGIN = "dpdk"
# native/io/dpdk/control.h, of which this module is the other side.
_CONTROL_VERSION = 1
_ERROR_BYTES = 1024
_SPEED_UNLIMITED = 0xFFFFFFFF
# What is there may grow between asking how much it is and asking for it.
_TRIES = 8
_Fill = Callable[[Any, int], int]


@dataclass(frozen=True, slots=True)
class Port:
    """One Ethernet port of DPDK, as it was when asked."""

    id: int
    """DPDK's number of it."""
    name: str
    """Of the device, as driver_options name it: "0000:3b:00.0", "net_memif0"."""
    driver: str
    """DPDK's driver for it: "mlx5_pci", "net_memif"."""
    mac: str
    """"b8:ce:f6:00:00:01"."""
    mtu_bytes: int
    link_up: bool
    """Many drivers see a link only once an endpoint has the port."""
    speed_bps: int | None
    """None: not known, or not limited, as virtual devices' often is."""
    full_duplex: bool
    numa_node: int | None
    """Whose memory is near; None: nobody says."""
    rx_queues_max: int
    tx_queues_max: int
    claimed: bool
    """An endpoint of this process has it."""


# ---- whether it is there ----


def is_available() -> bool:
    """Whether dlcp was built with DPDK and its libraries load. Starts nothing."""
    return why_not() is None


def why_not() -> str | None:
    """Why DPDK cannot be used, and what to install; None: it can. Starts nothing."""
    try:
        _library()
    except DriverError as error:
        return str(error)
    return None


def version() -> str:
    """Of the library that is loaded: "DPDK 22.11.11". Raises DriverError: it is not there."""
    return bytes(_library().dlcp_dpdk_version()).decode(errors="replace")


# ---- starting ----


def start(arguments: str = "") -> None:
    """Starts DPDK in this process; blocks for some tenths of a second, with many huge pages for seconds.

    `arguments`: of its environment (EAL), quoted as in a shell: "-a 0000:3b:00.0", "--no-huge -m 256 --vdev=net_null0".
    What suits several ranks on one host is added; arguments() tells. Started already: the same arguments, or none,
    change nothing.

    Raises ArgumentError: no text, or one that UTF-8 does not hold; DriverError: DPDK is not there, or runs with other
    arguments, or does not start; ResourceError: no permission, no huge pages; SettingsError: an argument that it does
    not know; InterfaceError: a device that is not there; ForkError: it was started before a fork.

    What is refused before DPDK sees it (no free huge page; a quote that is not closed, text that is no argument,
    --help) leaves this process free to call again. What DPDK itself refuses (an unknown option, a wrong value, too
    little memory, a device that is not there) is final, since DPDK initializes once per process: each later call
    raises DriverError with the first reason.
    """
    if not isinstance(arguments, str) or "\0" in arguments or not _is_utf8(arguments):
        raise ArgumentError(f"arguments is {arguments!r}; accepted: a text like --no-huge -m 256")
    library = _library()
    _check_not_forked(library)
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    _check(library.dlcp_dpdk_start(arguments.encode(), error, _ERROR_BYTES), error)


def started() -> bool:
    """Whether DPDK runs in this process; False too where it is not there."""
    return is_available() and bool(_library().dlcp_dpdk_started())


def arguments() -> str:
    """With what it was started, and what was added to that; "": it was not. Raises DriverError: it is not there."""
    library = _library()
    return _read_text(library.dlcp_dpdk_arguments) if library.dlcp_dpdk_started() else ""


def log() -> str:
    """The last lines of DPDK's own log, oldest first. Raises DriverError: it is not there."""
    return _read_text(_library().dlcp_dpdk_log)


# ---- ports ----


def ports() -> list[Port]:
    """All ports, by number. Raises DriverError: DPDK is not there, or not started; ForkError: before a fork."""
    library = _started_library()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    found = _read_all(
        _Port, lambda out, room: _check(library.dlcp_dpdk_ports(out, room, error, _ERROR_BYTES), error)
    )
    return [_port(one) for one in found]


def statistics(port: int) -> dict[str, int]:
    """A port's counters by name, unit last: those that every port has, then its driver's own.

    "rx_missed_packets" here is what Endpoint.driver_statistics(), which tells of all ports, has as
    "port0_rx_missed_packets". `port`: its number, Port.id. Asking the card may take some ms.

    Raises ArgumentError: not a number of a port; InterfaceError: there is none of that number (any more); DriverError:
    DPDK is not there, or not started; ForkError: it was started before a fork.
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 0xFFFF:
        raise ArgumentError(f"port is {port!r}; accepted: the number of a port, 0 to 65535 (Port.id)")
    library = _started_library()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    found = _read_all(
        _Statistic,
        lambda out, room: _check(library.dlcp_dpdk_statistics(port, out, room, error, _ERROR_BYTES), error),
    )
    return {_text(one.name).removeprefix(f"port{port}_"): int(one.value) for one in found}


# ---- the plugin ----


class _Port(ctypes.Structure):
    """struct dlcp_dpdk_port."""

    _fields_ = (
        ("id", ctypes.c_uint16),
        ("link_up", ctypes.c_uint8),
        ("full_duplex", ctypes.c_uint8),
        ("claimed", ctypes.c_uint8),
        ("mac", ctypes.c_uint8 * 6),
        ("numa_node", ctypes.c_int32),
        ("mtu_bytes", ctypes.c_uint32),
        ("speed_mbps", ctypes.c_uint32),
        ("rx_queues_max", ctypes.c_uint16),
        ("tx_queues_max", ctypes.c_uint16),
        ("name", ctypes.c_char * 64),
        ("driver", ctypes.c_char * 32),
    )


class _Statistic(ctypes.Structure):
    """struct dlcp_io_statistic."""

    _fields_ = (("name", ctypes.c_char * 56), ("value", ctypes.c_uint64))


@functools.cache
def _library() -> ctypes.CDLL:
    """The plugin, with what its functions take. Raises DriverError."""
    library = plugins.load(_PLUGIN)
    try:
        found = library.dlcp_dpdk_control_version()
    except AttributeError:
        found = 0
    if found != _CONTROL_VERSION:
        raise DriverError(f"the DPDK driver {library._name} was built for another version of dlcp: {REBUILD}")
    library.dlcp_dpdk_version.restype = ctypes.c_char_p
    error_arguments = (ctypes.c_char_p, ctypes.c_size_t)
    for name in ("dlcp_dpdk_arguments", "dlcp_dpdk_log"):
        getattr(library, name).argtypes = error_arguments
        getattr(library, name).restype = ctypes.c_size_t
    library.dlcp_dpdk_start.argtypes = (ctypes.c_char_p, *error_arguments)
    library.dlcp_dpdk_ports.argtypes = (ctypes.POINTER(_Port), ctypes.c_int, *error_arguments)
    library.dlcp_dpdk_statistics.argtypes = (
        ctypes.c_uint16,
        ctypes.POINTER(_Statistic),
        ctypes.c_int,
        *error_arguments,
    )
    return library


def _started_library() -> ctypes.CDLL:
    library = _library()
    _check_not_forked(library)
    if not library.dlcp_dpdk_started():
        raise DriverError(
            "DPDK is not started in this process: call dlcp.transport.dpdk.start(), or open an endpoint with driver"
            " dpdk"
        )
    return library


def _check_not_forked(library: ctypes.CDLL) -> None:
    """Raises ForkError: DPDK has arguments here, and does not run, so it was started by the process that forked."""
    # In this order: another thread may be starting it.
    if library.dlcp_dpdk_arguments(None, 0) > 0 and not library.dlcp_dpdk_started():
        raise ForkError(
            "DPDK was started before this process was forked, and does not survive that: start the process with spawn"
            " instead of fork"
        )


def _check(result: int, error: ctypes.Array[ctypes.c_char]) -> int:
    """The result, if it is no error. Raises the kind that the errno stands for, with the driver's sentence.

    The kinds are an endpoint's (native/io/io_error.cpp).
    """
    if result >= 0:
        return result
    kinds: dict[int, type[DlcpError]] = {
        errno.EPERM: ResourceError,
        errno.EACCES: ResourceError,
        errno.ENOMEM: ResourceError,
        errno.EINVAL: SettingsError,
        errno.EDOM: SettingsError,
        errno.ENODEV: InterfaceError,
    }
    sentence = _text(error.value) or os.strerror(-result)
    raise kinds.get(-result, DriverError)(sentence)


def _read_all(kind: type[Any], fill: _Fill) -> list[Any]:
    """What `fill(array, room)` fills in; it answers how much there is."""
    room = 64
    for _ in range(_TRIES):
        out = (kind * room)()
        count = fill(out, room)
        if count <= room:
            return list(out[:count])
        room = count + count // 4
    return list(out)


def _read_text(read: Callable[[Any, int], int]) -> str:
    """What `read(buffer, room)` writes; it answers how long it is, without NUL."""
    room = 4096
    for _ in range(_TRIES):
        text = ctypes.create_string_buffer(room)
        length = read(text, room)
        if length < room:
            break
        room = length + 1 + length // 4
    return _text(text.value)


def _port(one: _Port) -> Port:
    limited = one.speed_mbps not in (0, _SPEED_UNLIMITED)
    return Port(
        id=one.id,
        name=_text(one.name),
        driver=_text(one.driver),
        mac=bytes(one.mac).hex(":"),
        mtu_bytes=one.mtu_bytes,
        link_up=bool(one.link_up),
        speed_bps=one.speed_mbps * 1_000_000 if limited else None,
        full_duplex=bool(one.full_duplex),
        numa_node=None if one.numa_node < 0 else one.numa_node,
        rx_queues_max=one.rx_queues_max,
        tx_queues_max=one.tx_queues_max,
        claimed=bool(one.claimed),
    )


def _is_utf8(text: str) -> bool:
    """False: it has halves of characters, as the environment's bytes become where they are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
