"""What tests of the xdp driver share: whether there can be any, and two hosts on one cable with a station each."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dlcp.transport import plugins
from tests.support import namespaces
from tests.support import station_ranks as rank
from tests.support.endpoints import TESTS, to_environment
from tests.support.namespaces import Namespace
from tests.support.stations import PATIENCE_S, ROOT, Station, StationError


def _missing() -> str | None:
    """Why the driver cannot be tested here, or None."""
    lack = plugins.why_not("xdp")
    return str(lack) if lack is not None else namespaces.missing()


@pytest.fixture(scope="session")
def _reason() -> str | None:
    return _missing()


@pytest.fixture(autouse=True)
def _driver(_reason: str | None) -> None:
    """Skips where there is no driver or can be no hosts."""
    if _reason is not None:
        pytest.skip(_reason)


@pytest.fixture(scope="session")
def hosts(_reason: str | None) -> Iterator[tuple[Namespace, Namespace]]:
    """Two hosts on one cable, eth0 to eth0; their kernels have 10.81.0.1 and .2, fd81::1 and ::2.

    All tests have the same ones: to make them, and processes on them, takes longer than most tests.
    """
    if _reason is not None:
        pytest.skip(_reason)
    with Namespace() as one, Namespace() as other:
        one.join(other)
        for number, host in enumerate((one, other), 1):
            host.ip("link set eth0 up")
            host.ip(f"address add 10.81.0.{number}/24 dev eth0")
            host.ip(f"address add fd81::{number}/64 dev eth0 nodad")
        yield one, other


@pytest.fixture(scope="session")
def _kept() -> Iterator[dict[str, Station]]:
    kept: dict[str, Station] = {}
    yield kept
    for station in kept.values():
        station.close()


@pytest.fixture
def stations(hosts: tuple[Namespace, Namespace], _kept: dict[str, Station]) -> tuple[Station, Station]:
    """A process on each, from the test before if it still answers."""
    return kept_station(_kept, "rank 0", hosts[0]), kept_station(_kept, "rank 1", hosts[1])


@pytest.fixture
def neighbours(hosts: tuple[Namespace, Namespace], _kept: dict[str, Station]) -> tuple[Station, Station]:
    """Two processes on the first host."""
    return kept_station(_kept, "rank 0", hosts[0]), kept_station(_kept, "its neighbour", hosts[0])


def kept_station(kept: dict[str, Station], name: str, host: Namespace) -> Station:
    """The station of that name; a new one in the place of one that a failed test has left dead or hung."""
    if name in kept:
        with contextlib.suppress(StationError):
            kept[name].start(rank.process_id).result(PATIENCE_S / 10)
            return kept[name]
        kept.pop(name).kill()
    return kept.setdefault(name, Station(name, host))


# The transport's own tests run beside all others: most of their time is the kernel's, which waits for all cores to have
# seen that a program or a socket is gone.
OWN_TESTS = "test_transports_own_tests"


class OwnTests:
    """tests/transport/endpoint on two interfaces of a host of its own, from the moment that this is made."""

    def __init__(self, host: Namespace, places: list[dict[str, Any]]) -> None:
        words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", "not loopback"]
        words.append(TESTS)
        added = to_environment(places)
        self._replay = f"{' '.join(f'{n}={shlex.quote(v)}' for n, v in added.items())} {shlex.join(words)}"
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in close()
        self._process = subprocess.Popen(
            host.command(*words),
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **added},
            stdout=self._said,
            stderr=self._said,
        )

    def result(self, timeout_s: float) -> tuple[int, str]:
        """How it ended, and what it has said last; the line that replays it."""
        try:
            status, over = self._process.wait(timeout_s), ""
        except subprocess.TimeoutExpired:
            status, over = -1, f"not over after {timeout_s} s\n"
        self._said.seek(0)
        return status, f"{self._said.read()[-8000:]}\n{over}replay: {self._replay}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._said.close()


@pytest.fixture(scope="session", autouse=True)
def own_tests(
    request: pytest.FixtureRequest, _reason: str | None
) -> Iterator[Callable[[float], tuple[int, str]] | None]:
    """Under way since the folder's first test, if they are among those to run."""
    if _reason is not None or all(item.name != OWN_TESTS for item in request.session.items):
        yield None
        return
    with Namespace() as host:
        host.join(host, "eth0", "eth1")
        places = []
        for number in range(2):
            host.ip(f"link set eth{number} up")
            address = f"10.81.0.1{number + 1}/24"
            place = {"driver": "xdp", "interface": f"eth{number}", "bind_host": address}
            # Asking who has an address is tested by the driver's own tests, and would take 60 ms each time here.
            places.append(place | {"driver_options": "address_probe=off"})
        with contextlib.closing(OwnTests(host, places)) as running:
            yield running.result
