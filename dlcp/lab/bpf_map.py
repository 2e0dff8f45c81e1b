"""Maps of the BPF programs that tc has attached, by bpf(2): found through the program, read and written.

tc gives each filter maps of its own and pins nothing, so a port's configuration and counters are reached by the id of
its program. Needs CAP_SYS_ADMIN; the layout of what a map holds is its program's business.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import struct
import subprocess
from pathlib import Path

from dlcp.lab.namespaces import LabError, run

# bpf(2)'s commands, in the order of enum bpf_cmd.
_LOOKUP, _UPDATE, _PROGRAM_BY_ID, _MAP_BY_ID, _INFO = 1, 2, 13, 14, 15
_SYSCALL = {"x86_64": 321, "aarch64": 280}
_INFO_BYTES = 256


def compile_program(name: str, target: Path) -> None:
    """Compiles a BPF program with clang; its source lies beside this file. Raises LabError with clang's words."""
    source = Path(__file__).with_name(f"{name}.bpf.c")
    # clang's BPF target does not search the host's architecture directory, where Debian keeps asm/.
    include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    run("clang", "-O2", "-g", "-target", "bpf", include, "-c", source, "-o", target)


def attach(namespace: str, interface: str, direction: str, program: Path) -> int:
    """Attaches a program to the `ingress` or `egress` of an interface and returns its id."""
    tc = ["tc", "-n", namespace]
    # Adding it again is refused, and harmless.
    subprocess.run([*tc, "qdisc", "add", "dev", interface, "clsact"], capture_output=True)
    run(*tc, "filter", "replace", "dev", interface, direction, "prio", 1, "handle", 1, "bpf", "da", "obj", program,
        "sec", "tc")  # fmt: skip
    found = attached(namespace, interface, direction)
    if found is None:
        raise LabError(f"{namespace}, {interface}: tc attached {program.name}, but does not show it")
    return found


def attached(namespace: str, interface: str, direction: str) -> int | None:
    """The id of the program there, or None."""
    shown = run("tc", "-n", namespace, "-j", "filter", "show", "dev", interface, direction)
    for one in json.loads(shown or "[]"):
        if "prog" in one.get("options", {}):
            return int(one["options"]["prog"]["id"])
    return None


class Map:
    """A map of a program, from `with` to its end."""

    def __init__(self, program: int, name: str) -> None:
        self._name = name
        self._fd, self._value_bytes = _open_map(program, name)

    def __enter__(self) -> Map:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, key: int = 0) -> bytes:
        """The value at `key`."""
        value = ctypes.create_string_buffer(self._value_bytes)
        self._element(_LOOKUP, key, value)
        return value.raw

    def write(self, value: bytes, key: int = 0) -> None:
        """Replaces the value at `key`."""
        assert len(value) == self._value_bytes, (
            f"{self._name} holds {self._value_bytes} bytes, not {len(value)}"
        )
        self._element(_UPDATE, key, ctypes.create_string_buffer(value, len(value)))

    def _element(self, command: int, key: int, value: ctypes.Array[ctypes.c_char]) -> None:
        number = ctypes.create_string_buffer(struct.pack("=I", key))
        _bpf(
            command, struct.pack("=IIQQQ", self._fd, 0, ctypes.addressof(number), ctypes.addressof(value), 0)
        )


def _open_map(program: int, name: str) -> tuple[int, int]:
    """Descriptor, and bytes of a value, of the map of this name."""
    program_fd = _bpf(_PROGRAM_BY_ID, struct.pack("=III", program, 0, 0))
    try:
        ids = (ctypes.c_uint32 * 16)()
        # struct bpf_prog_info: nr_map_ids at 52, the pointer to them at 56.
        info = bytearray(_INFO_BYTES)
        struct.pack_into("=IQ", info, 52, len(ids), ctypes.addressof(ids))
        count = struct.unpack_from("=I", _info(program_fd, info), 52)[0]
    finally:
        os.close(program_fd)
    for number in ids[: min(count, len(ids))]:
        fd = _bpf(_MAP_BY_ID, struct.pack("=III", number, 0, 0))
        # struct bpf_map_info: type, id, key_size, value_size, max_entries, flags, name.
        _, _, _, value_bytes, _, _, label = struct.unpack_from("=6I16s", _info(fd, bytearray(_INFO_BYTES)))
        if label.rstrip(b"\0").decode() == name:
            return fd, value_bytes
        os.close(fd)
    raise LabError(f"BPF program {program} has no map {name!r}")


def _info(fd: int, info: bytearray) -> bytes:
    buffer = ctypes.create_string_buffer(bytes(info), len(info))
    _bpf(_INFO, struct.pack("=IIQ", fd, len(buffer), ctypes.addressof(buffer)))
    return buffer.raw


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise LabError(f"bpf(2) has no known number on {platform.machine()}; accepted: {', '.join(_SYSCALL)}")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = int(libc.syscall(number, command, buffer, len(buffer)))
    if result < 0:
        code = ctypes.get_errno()
        raise LabError(f"bpf(2), command {command}: {os.strerror(code)}")
    return result


def refused() -> str | None:
    """Why the system lets this process use no BPF, or None."""
    with contextlib.suppress(LabError):
        # BPF_MAP_CREATE of an array of one number.
        os.close(_bpf(0, struct.pack("=IIII", 2, 4, 8, 1)))
        return None
    return (
        "the system refuses BPF to this process (CAP_BPF; an unprivileged user's namespace does not give it)"
    )
