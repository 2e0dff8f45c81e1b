"""Two ranks of a job on XDP, and one that shares the job with a rank on the kernel's sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import station_ranks as rank
from tests.support.stations import Station, both

pytestmark = pytest.mark.needs_root
COUNTS = [1, 1000, 500_000]


@pytest.mark.parametrize("first_on_sockets", [False, True], ids=["xdp", "mixed"])
def test_all_reduce_of_two_ranks(
    stations: tuple[Station, Station], tmp_path: Path, first_on_sockets: bool
) -> None:
    calls = []
    for number, station in enumerate(stations):
        place = {"datapath": "xdp", "interface": "eth0", "bind_host": f"10.81.0.1{number + 1}/24"}
        if first_on_sockets and number == 0:
            place = {"bind_host": "10.81.0.1"}
        calls.append(station.start(rank.open_job, str(tmp_path), number, 2, **place))
    for call in calls:
        call.result()
    results = both(*stations, rank.all_reduce, (0, 1), counts=COUNTS)
    assert results[0] == results[1]
    both(*stations, rank.close_job, (0, 1))
