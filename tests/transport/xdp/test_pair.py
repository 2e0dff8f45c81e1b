"""Endpoints on XDP: the transport's own tests, two hosts on a cable, and a peer on the kernel's sockets."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support import station_ranks as rank
from tests.support.namespaces import Namespace
from tests.support.stations import PATIENCE_S, Station, both

pytestmark = pytest.mark.needs_root
SIZES = [0, 1, 1000, 1472, 100_000, 2_000_000]
# Of the transport's own tests over this driver: fewer were left out by mistake.
OWN_TESTS_MIN = 100
# Many times what all of them take together; one that hangs is ended sooner, by its own limit.
OWN_TESTS_S = 540

Hosts = tuple[Namespace, Namespace]
Stations = tuple[Station, Station]


def on_xdp(number: int, *, ipv6: bool = False, words: str = "", **settings: Any) -> dict[str, Any]:
    """Settings of the rank with this number: an address that its kernel does not have."""
    address = f"fd81::1{number + 1}/64" if ipv6 else f"10.81.0.1{number + 1}/24"
    return {
        "driver": "xdp",
        "interface": "eth0",
        "bind_host": address,
        "driver_options": words,
    } | settings


def on_sockets(number: int, *, ipv6: bool = False, **settings: Any) -> dict[str, Any]:
    return {"bind_host": f"fd81::{number + 1}" if ipv6 else f"10.81.0.{number + 1}"} | settings


@contextmanager
def connected(stations: Stations, *places: dict[str, Any]) -> Iterator[None]:
    """Rank 0 and 1 on the two stations, connected by both."""
    with ExitStack() as stack:
        addresses = []
        for number, (station, place) in enumerate(zip(stations, places, strict=True)):
            addresses.append(station.call(rank.open_endpoint, number, **place))
            stack.callback(station.call, rank.close_endpoint, number)
        both(*stations, rank.connect, (0, 1), (1, 0), (addresses[1], addresses[0]))
        yield


def check_counters(stations: Stations) -> None:
    for number, station in enumerate(stations):
        counted = station.call(rank.counters, number)
        assert counted["bad_tag"] == counted["inconsistent"] == counted["malformed_frames"] == 0
        assert counted["io_rx_truncated_packets"] == 0
        assert counted["data_bytes_placed"] == sum(SIZES)


@pytest.mark.parametrize(
    ("words", "ipv6"),
    [
        ("", False),
        ("", True),
        ("mode=generic", False),
        ("mode=native zero_copy=off", False),
        ("busy_poll", False),
        ("vlan=5", True),
        ("checksum=none", False),
    ],
)
def test_messages_of_every_size_in_each_way_of_working(stations: Stations, words: str, ipv6: bool) -> None:
    with connected(stations, *(on_xdp(number, ipv6=ipv6, words=words) for number in range(2))):
        both(*stations, rank.exchange, (0, 1), (1, 0), sizes=SIZES)
        check_counters(stations)


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_messages_with_a_peer_on_sockets(stations: Stations, ipv6: bool) -> None:
    with connected(stations, on_sockets(0, ipv6=ipv6), on_xdp(1, ipv6=ipv6)):
        both(*stations, rank.exchange, (0, 1), (1, 0), sizes=SIZES)
        check_counters(stations)


@pytest.mark.parametrize("how", [{}, {"delivery": "bounded", "loss_ratio": 0.1}], ids=["reliable", "bounded"])
def test_injected_loss_is_made_good(stations: Stations, how: dict[str, Any]) -> None:
    with connected(stations, *(on_xdp(number, inject_loss_ratio=0.05) for number in range(2))):
        for came in both(*stations, rank.exchange, (0, 1), (1, 0), sizes=SIZES, **how):
            assert came["abandoned_bytes"] <= how.get("loss_ratio", 0.0) * sum(SIZES)


def test_paths_are_source_ports_that_all_arrive(stations: Stations) -> None:
    with connected(stations, *(on_xdp(number, paths=64, run_packets=1) for number in range(2))):
        both(*stations, rank.exchange, (0, 1), (1, 0), sizes=[3_000_000])
        for number, station in enumerate(stations):
            sent = station.call(rank.packets_by_path, number, 1 - number)
            assert len(sent) == 64
            assert all(sent), sent


def ping(*ways: tuple[Namespace, str]) -> None:
    """Three questions to each, all at once. Each is answered once, however late."""
    running = [
        subprocess.Popen(
            host.command("ping", "-n", "-c", 3, "-i", 0.05, "-W", int(PATIENCE_S), address),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for host, address in ways
    ]
    for ping in running:
        said, _ = ping.communicate()
        assert ping.returncode == 0, said
        assert " 0% packet loss" in said, said
        assert "duplicates" not in said, said


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_kernel_of_the_interface_and_the_driver_both_answer(
    hosts: Hosts, stations: Stations, ipv6: bool
) -> None:
    one, other = hosts
    with connected(stations, on_sockets(0, ipv6=ipv6), on_xdp(1, ipv6=ipv6)):
        driver = "fd81::12" if ipv6 else "10.81.0.12"
        ping((one, "10.81.0.2"), (one, "fd81::2"), (other, "10.81.0.1"), (one, driver))


def program_of(host: Namespace) -> bool:
    shown = subprocess.run(
        host.command("ip", "-d", "link", "show", "dev", "eth0"), capture_output=True, text=True
    )
    return "xdp" in shown.stdout


def test_interface_is_left_clean_when_the_process_is_killed(hosts: Hosts, stations: Stations) -> None:
    with connected(stations, *map(on_xdp, range(2))):
        assert program_of(hosts[0])
    assert not program_of(hosts[0])
    with Station("killed", hosts[0]) as station:
        station.call(rank.open_endpoint, 0, **on_xdp(0))
        assert program_of(hosts[0])
        station.kill()
        end = time.monotonic() + PATIENCE_S
        while program_of(hosts[0]) and time.monotonic() < end:
            time.sleep(0.01)
        assert not program_of(hosts[0])
    # And another one can have it at once.
    with connected(stations, *map(on_xdp, range(2))):
        both(*stations, rank.exchange, (0, 1), (1, 0), sizes=[1000])


def test_lost_link_is_told_and_a_message_outlasts_it(hosts: Hosts, stations: Stations) -> None:
    with connected(stations, *map(on_xdp, range(2))):
        hosts[1].ip("link set eth0 down")
        assert "eth0 has lost its link" in stations[0].call(rank.await_event, 0, "link_down")
        sends = stations[0].start(rank.exchange, 0, 1, sizes=[100_000])
        receives = stations[1].start(rank.exchange, 1, 0, sizes=[100_000])
        hosts[1].ip("link set eth0 up")
        assert sends.result() == receives.result() == {"bytes": 100_000, "abandoned_bytes": 0}
        assert "has a link again" in stations[0].call(rank.await_event, 0, "link_up")


# The last one, so that they had the time of all others.
@pytest.mark.timeout(OWN_TESTS_S + 60)
def test_transports_own_tests(own_tests: Callable[[float], tuple[int, str]]) -> None:
    status, said = own_tests(OWN_TESTS_S)
    assert status == 0, said
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None, said
    assert int(passed[1]) >= OWN_TESTS_MIN, said
