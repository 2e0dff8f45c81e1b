"""Ranks of a job on XDP: of two hosts, beside one on the kernel's sockets, and of one host with a macvlan each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import station_ranks as rank
from tests.support.namespaces import Namespace
from tests.support.stations import Station, both

pytestmark = pytest.mark.needs_root
COUNTS = [1, 1000, 500_000]


@pytest.mark.parametrize("first_on_sockets", [False, True], ids=["xdp", "mixed"])
def test_all_reduce_of_two_ranks(
    stations: tuple[Station, Station], tmp_path: Path, first_on_sockets: bool
) -> None:
    calls = []
    for number, station in enumerate(stations):
        place = {"driver": "xdp", "interface": "eth0", "bind_host": f"10.81.0.1{number + 1}/24"}
        if first_on_sockets and number == 0:
            place = {"bind_host": "10.81.0.1"}
        calls.append(station.start(rank.open_job, str(tmp_path), number, 2, **place))
    for call in calls:
        call.result()
    results = both(*stations, rank.all_reduce, (0, 1), counts=COUNTS)
    assert results[0] == results[1]
    both(*stations, rank.close_job, (0, 1))


@pytest.fixture
def macvlans(hosts: tuple[Namespace, Namespace]) -> Iterator[tuple[str, str]]:
    """Two of the first host's card."""
    names = ("part0", "part1")
    for name in names:
        hosts[0].ip(f"link add link eth0 name {name} type macvlan mode bridge")
        hosts[0].ip(f"link set {name} up")
    yield names
    for name in names:
        hosts[0].ip(f"link del {name}")


@pytest.mark.parametrize("shm", [True, False], ids=["shared_memory", "frames"])
def test_ranks_of_one_host_share_a_card(
    macvlans: tuple[str, str], neighbours: tuple[Station, Station], tmp_path: Path, shm: bool
) -> None:
    calls = []
    for number, station in enumerate(neighbours):
        place = {"driver": "xdp", "interface": macvlans[number], "bind_host": f"10.81.0.2{number}/24"}
        calls.append(station.start(rank.open_job, str(tmp_path), number, 2, shm=shm, **place))
    for call in calls:
        call.result()
    results = both(*neighbours, rank.all_reduce, (0, 1), counts=COUNTS)
    assert results[0] == results[1]
    assert neighbours[0].call(rank.counters, 0)["io_channels"] == shm
    both(*neighbours, rank.close_job, (0, 1))
