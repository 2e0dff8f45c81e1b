"""What tests of the xdp driver share: whether there can be any, and two hosts on one cable with a station each."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp import _native
from tests.support import namespaces
from tests.support.namespaces import Namespace
from tests.support.stations import Station

PLUGIN = Path(_native.__file__).resolve().parent / "libdlcp_io_xdp.so"


def _missing() -> str | None:
    """Why the driver cannot be tested here, or None."""
    if not PLUGIN.exists():
        return f"no {PLUGIN.name} beside the module: apt-get install libxdp-dev pkgconf, then make setup"
    try:
        ctypes.CDLL(str(PLUGIN))
    except OSError as error:
        return f"the xdp driver does not load ({error}): apt-get install libxdp1"
    return namespaces.missing()


@pytest.fixture(scope="session")
def _reason() -> str | None:
    return _missing()


@pytest.fixture(autouse=True)
def _driver(_reason: str | None) -> None:
    """Skips where there is no driver or can be no hosts."""
    if _reason is not None:
        pytest.skip(_reason)


@pytest.fixture
def hosts() -> Iterator[tuple[Namespace, Namespace]]:
    """Two hosts on one cable, eth0 to eth0; their kernels have 10.81.0.1 and .2, fd81::1 and ::2."""
    with Namespace() as one, Namespace() as other:
        one.join(other)
        for number, host in enumerate((one, other), 1):
            host.ip("link set eth0 up")
            host.ip(f"address add 10.81.0.{number}/24 dev eth0")
            host.ip(f"address add fd81::{number}/64 dev eth0 nodad")
        yield one, other


@pytest.fixture
def stations(hosts: tuple[Namespace, Namespace]) -> Iterator[tuple[Station, Station]]:
    """A process on each."""
    with Station("rank 0", hosts[0]) as first, Station("rank 1", hosts[1]) as second:
        yield first, second
