"""Two ends on DPDK: the transport's own tests over virtual devices, and what its driver does between processes.

The transport's own tests (tests/transport/endpoint) run in a process of their own, since an EAL ends with its
process: once over memif with IPv4, once over the kernel's packet sockets with IPv6.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import dpdk, namespaces
from tests.support import station_ranks as rank
from tests.support.endpoints import TESTS, to_environment
from tests.support.namespaces import Namespace
from tests.support.stations import ROOT, Station, both

SIZES = [0, 1, 1472, 100_000, 2_000_000]
# Of the transport's own tests over another driver: fewer were left out by mistake.
OWN_TESTS_MIN = 100
# Many times what all of them take together; one that hangs is ended sooner, by its own limit.
OWN_TESTS_S = 540


def run_own_tests(places: list[dict[str, Any]], namespace: Namespace | None = None) -> None:
    """The transport's own tests with endpoints there; fails with what failed of them, or hung."""
    words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", "not loopback"]
    words.append(TESTS)
    added = to_environment(places)
    replay = (
        " ".join(f"{name}={shlex.quote(value)}" for name, value in added.items()) + " " + shlex.join(words)
    )
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            words if namespace is None else namespace.command(*words),
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **added},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(OWN_TESTS_S)
            over = ""
        except subprocess.TimeoutExpired:
            over = f"not over after {OWN_TESTS_S} s\n"
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        output = f"{log.read()[-8000:]}\n{over}replay: {replay}"
    assert process.returncode == 0, output
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None, output
    assert int(passed[1]) >= OWN_TESTS_MIN, output


@pytest.mark.timeout(OWN_TESTS_S + 60)
def test_transports_own_tests_over_memif(tmp_path: Path) -> None:
    run_own_tests(dpdk.memif_of_one_process(tmp_path))


@pytest.mark.timeout(OWN_TESTS_S + 60)
@pytest.mark.needs_root
@pytest.mark.skipif((reason := namespaces.missing()) is not None, reason=reason or "")
def test_transports_own_tests_over_packet_sockets_with_ipv6() -> None:
    with Namespace() as host:
        host.join(host, "eth0", "eth1")
        host.ip("link set eth0 up")
        host.ip("link set eth1 up")
        devices = " ".join(f"--vdev=net_af_packet{number},iface=eth{number}" for number in range(2))
        places = [
            {
                "driver": "dpdk",
                # Asking who has an address is tested by test_address_claim.py, and would take 60 ms each time here.
                "driver_options": f"port=net_af_packet{number} address_probe=off",
                "bind_host": f"fd00:79::{number + 1}/64",
                "eal_arguments": f"{dpdk.NO_HUGE} {devices}",
            }
            for number in range(2)
        ]
        run_own_tests(places, host)


# --- two processes over memif -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stations() -> Iterator[tuple[Station, Station]]:
    with Station("server") as server, Station("client") as client:
        yield server, client


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memif") / "socket"


@contextmanager
def connected(stations: tuple[Station, Station], socket: Path, **place: Any) -> Iterator[None]:
    """Rank 0 and 1 on the two stations, connected by both."""
    with ExitStack() as stack:
        addresses = []
        for number, station in enumerate(stations):
            own = dpdk.memif_of_two_processes(socket, number, **place)
            addresses.append(station.call(rank.open_endpoint, number, **own))
            stack.callback(station.call, rank.close_endpoint, number)
        both(*stations, rank.connect, (0, 1), (1, 0), (addresses[1], addresses[0]))
        yield


@pytest.mark.parametrize(
    "words",
    [
        "",
        "payload=copy",
        "payload=gather",
        "checksum=software",
        "checksum=none",
        "poll=spin",
        "poll=sleep",
        "vlan=5",
    ],
)
def test_messages_of_every_size_in_each_way_of_working(
    stations: tuple[Station, Station], socket_path: Path, words: str
) -> None:
    with connected(stations, socket_path, words=words):
        both(*stations, rank.exchange, (0, 1), (1, 0), sizes=SIZES)
        for number, station in enumerate(stations):
            counted = station.call(rank.counters, number)
            assert counted["bad_tag"] == counted["inconsistent"] == counted["malformed_frames"] == 0
            assert counted["io_rx_truncated_packets"] == 0
            assert counted["data_bytes_placed"] == sum(SIZES)


@pytest.mark.parametrize("how", [{}, {"delivery": "bounded", "loss_ratio": 0.1}], ids=["reliable", "bounded"])
def test_injected_loss_is_made_good(
    stations: tuple[Station, Station], socket_path: Path, how: dict[str, Any]
) -> None:
    with connected(stations, socket_path, inject_loss_ratio=0.05):
        for came in both(*stations, rank.exchange, (0, 1), (1, 0), sizes=SIZES, **how):
            assert came["abandoned_bytes"] <= how.get("loss_ratio", 0.0) * sum(SIZES)


def test_paths_are_source_ports_that_all_arrive(stations: tuple[Station, Station], socket_path: Path) -> None:
    with connected(stations, socket_path, paths=64, run_packets=1):
        both(*stations, rank.exchange, (0, 1), (1, 0), sizes=[3_000_000])
        for number, station in enumerate(stations):
            sent = station.call(rank.packets_by_path, number, 1 - number)
            assert len(sent) == 64
            assert all(sent), sent


def test_encrypted_messages(stations: tuple[Station, Station], socket_path: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    with connected(stations, socket_path, key_file=str(key), encrypt=True):
        both(*stations, rank.exchange, (0, 1), (1, 0), sizes=SIZES)


def test_messages_from_huge_pages(tmp_path: Path) -> None:
    """As on a host with cards: DPDK's memory is of 2 MB pages, which no file names."""
    with dpdk.huge_pages() as refused:
        if refused is not None:
            pytest.skip(refused)
        with Station("server") as server, Station("client") as client:
            ends = server, client
            with connected(ends, tmp_path / "socket", memory="--in-memory --no-pci -m 24"):
                both(*ends, rank.exchange, (0, 1), (1, 0), sizes=SIZES)
