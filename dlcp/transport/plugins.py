"""dlcp's own drivers that are plugins: whether they are there, and what brings them.

A plugin is a library beside the compiled module. It is built where the library that it drives is found, and needs that
library's files when it is loaded. To load one starts nothing.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

from dlcp import _native
from dlcp.errors import DriverError
from dlcp.requirements import REBUILD

_FOLDER = Path(_native.__file__).parent


@dataclass(frozen=True, slots=True)
class _Plugin:
    called: str
    """By people."""
    library: str
    to_build: str
    """Debian's packages with the library, its headers and pkg-config."""
    packages: dict[str, str]
    """Debian's package with a library that it loads, by a pattern of the library's name."""


_PLUGINS = {
    "dpdk": _Plugin("DPDK", "DPDK", "libdpdk-dev dpdk pkgconf", {r"librte_": "dpdk"}),
    "xdp": _Plugin(
        "XDP",
        "libxdp",
        "libxdp-dev pkgconf",
        {r"libxdp\.so\.1$": "libxdp1", r"libbpf\.so\.1$": "libbpf1", r"libelf\.so\.1$": "libelf1"},
    ),
}


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a driver cannot be used, and what to do about it; str() is both."""

    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}"


def install(name: str) -> str:
    """What gives dlcp this driver."""
    return f"apt-get install {_PLUGINS[name].to_build}, then {REBUILD}"


def path(name: str) -> Path:
    """Where a wheel puts the plugin; it may not be there."""
    return _FOLDER / f"libdlcp_io_{name}.so"


def nccl_net_path() -> Path:
    """NCCL's network over dlcp, for NCCL_NET_PLUGIN (docs/frameworks.md)."""
    return _FOLDER / "libnccl-net-dlcp.so"


def load(name: str) -> ctypes.CDLL:
    """The plugin, found as native/io/driver_registry.cpp finds it. Raises DriverError, with what to install."""
    found = _open(name)
    if isinstance(found, Lack):
        raise DriverError(str(found))
    return found


def why_not(name: str) -> Lack | None:
    """Why the plugin does not load; None: it does."""
    found = _open(name)
    return found if isinstance(found, Lack) else None


def _open(name: str) -> ctypes.CDLL | Lack:
    beside = path(name)
    try:
        return ctypes.CDLL(str(beside) if beside.exists() else beside.name)
    except OSError as error:
        return _read(name, str(error), beside)


def _read(name: str, said: str, beside: Path) -> Lack:
    """What the loader's words mean."""
    plugin = _PLUGINS[name]
    if not beside.exists():
        return Lack(f"dlcp was built without {plugin.library}", install(name))
    missing = re.match(r"(\S+): cannot open shared object file", said)
    if missing is None or missing[1].endswith(beside.name):
        return Lack(f"the {plugin.called} driver does not load ({said})", install(name))
    text = f"the {plugin.called} driver needs the library {missing[1]}, which is not installed"
    package = next((one for pattern, one in plugin.packages.items() if re.match(pattern, missing[1])), None)
    if package is None:
        return Lack(text, install(name))
    return Lack(text, f"apt-get install {package}; if that brings another version, {install(name)}")
