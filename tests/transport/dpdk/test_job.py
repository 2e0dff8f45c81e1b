"""Ranks of one host in a job on DPDK: they share memory, unless told not to; then frames carry what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dpdk
from tests.support import station_ranks as rank
from tests.support.stations import Station, both

COUNTS = [1, 1000, 500_000]


@pytest.fixture(scope="module")
def stations() -> Iterator[tuple[Station, Station]]:
    with Station("rank 0") as first, Station("rank 1") as second:
        yield first, second


@pytest.mark.parametrize("shm", [True, False], ids=["shared_memory", "ports"])
def test_ranks_of_one_host(stations: tuple[Station, Station], tmp_path: Path, shm: bool) -> None:
    # One device per process, the same in both cases: an EAL is started once.
    socket = tmp_path.parent / "ranks_of_one_host.sock"
    places = tuple(dpdk.memif_of_two_processes(socket, number) for number in range(2))
    opening = [
        station.start(rank.open_job, str(tmp_path), number, 2, shm=shm, **places[number])
        for number, station in enumerate(stations)
    ]
    for number, opened in enumerate(opening):
        address = opened.result()
        assert address.startswith(f"10.77.0.{number + 1}:")
        assert ("+shm:" in address) == shm
    results = both(*stations, rank.all_reduce, (0, 1), counts=COUNTS)
    assert results[0] == results[1]
    for number, station in enumerate(stations):
        counted = station.call(rank.counters, number)
        assert counted["io_channels"] == shm
        # A handshake may go by the ports before a channel is there; data does not.
        data_bytes = 4 * sum(COUNTS) // 2
        by_channel = counted["io_channel_tx_bytes"]
        assert (by_channel > data_bytes) == shm
        assert (counted["io_tx_bytes"] - by_channel > data_bytes) == (not shm)
    both(*stations, rank.close_job, (0, 1))
