"""A device goes away while its rank speaks: an event names it, both sides get an error that names the peer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlcp import errors
from tests.support import dpdk
from tests.support import station_ranks as rank
from tests.support.dpdk import Bed
from tests.support.dpdk_devices import Event, tell
from tests.support.stations import Station, both

PEER_TIMEOUT_S = 2.0
LARGE_BYTES = 2_000_000_000


def begin(left: Station, right: Station) -> None:
    """Messages both ways that do not end by themselves soon."""
    for station, own in ((left, 0), (right, 1)):
        station.call(rank.start_receive, "in", own, 1 - own, LARGE_BYTES)


def check_failed(left: Station, right: Station) -> None:
    """What was under way has failed on both sides, with the other's rank in the words."""
    for station, own in ((left, 0), (right, 1)):
        with pytest.raises(errors.PeerTimeoutError, match=f"rank {1 - own}"):
            station.call(rank.finish, "in")
        assert any(kind == "peer_down" for kind, _ in station.call(rank.events, own))


@pytest.mark.parametrize(
    ("event", "words"),
    [(Event.INTR_RMV, "was taken away"), (Event.INTR_RESET, "was reset by its physical function")],
)
def test_device_that_goes_is_an_event_and_its_peers_time_out(
    event: Event, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    with Station("server") as server, Station("client") as client:
        places = [dpdk.memif_of_two_processes(path, own, peer_timeout_s=PEER_TIMEOUT_S) for own in range(2)]
        ours = server.call(rank.open_endpoint, 0, **places[0])
        theirs = client.call(rank.open_endpoint, 1, **places[1])
        both(server, client, rank.connect, (0, 1), (1, 0), (theirs, ours))
        both(server, client, rank.exchange, (0, 1), (1, 0), sizes=[1, 300_000])
        begin(server, client)
        server.call(tell, "net_memif0", event)
        told = server.call(rank.await_event, 0, "device_gone")
        assert "net_memif0" in told
        assert words in told
        check_failed(server, client)
        for station, own in ((client, 1), (server, 0)):
            station.call(rank.close_endpoint, own)


def two_ports(directory: Path, own: int, second: str) -> dict[str, Any]:
    """Settings of the rank at one end of two memif connections, its second port at `second`."""
    ends = [dpdk.memif(directory / f"socket{number}", number, server=own == 0) for number in range(2)]
    return {
        "driver": "dpdk",
        "driver_options": f"port=net_memif0 port=net_memif1@{second}",
        "bind_host": f"10.77.0.{own + 1}/24",
        "eal_arguments": " ".join([dpdk.NO_HUGE, *ends]),
        "paths": 4,
    }


@pytest.mark.parametrize("second", ["10.79.0.{}/24", "fd79::{}/64"], ids=["one_family", "both_families"])
def test_device_that_goes_leaves_the_paths_of_another_port(second: str, tmp_path: Path) -> None:
    with Station("server") as server, Station("client") as client:
        ours = server.call(rank.open_endpoint, 0, **two_ports(tmp_path, 0, second.format(1)))
        theirs = client.call(rank.open_endpoint, 1, **two_ports(tmp_path, 1, second.format(2)))
        both(server, client, rank.connect, (0, 1), (1, 0), (theirs, ours))
        both(server, client, rank.exchange, (0, 1), (1, 0), sizes=[1, 1_000_000])
        assert all(count > 0 for count in server.call(rank.packets_by_path, 0, 1))
        server.call(tell, "net_memif1", Event.INTR_RMV)
        assert "net_memif1" in server.call(rank.await_event, 0, "device_gone")
        both(server, client, rank.exchange, (0, 1), (1, 0), sizes=[1, 1_000_000], seed=1)
        assert not any(kind == "peer_down" for kind, _ in server.call(rank.events, 0))
        for station, own in ((client, 1), (server, 0)):
            station.call(rank.close_endpoint, own)


@pytest.mark.needs_root
def test_interface_that_is_deleted_below_a_device_is_an_event_and_its_peers_time_out() -> None:
    if (reason := dpdk.missing_bed()) is not None:
        pytest.skip(reason)
    with dpdk.bed(2) as own:
        sockets, frames = own.stations
        ours = sockets.call(rank.open_endpoint, 0, peer_timeout_s=PEER_TIMEOUT_S, **own.hosts[0].udp())
        theirs = frames.call(rank.open_endpoint, 1, peer_timeout_s=PEER_TIMEOUT_S, **own.hosts[1].dpdk())
        both(sockets, frames, rank.connect, (0, 1), (1, 0), (theirs, ours))
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=[1, 300_000])
        begin(sockets, frames)
        own.hosts[1].namespace.ip("link del eth0")
        told = frames.call(rank.await_event, 1, "device_gone")
        assert "net_af_packet0" in told
        assert "the kernel's interface below it is gone" in told
        check_failed(sockets, frames)
        frames.call(rank.close_endpoint, 1)
        # Nothing is left that could be opened, and that is said.
        with pytest.raises(errors.InterfaceError, match="net_af_packet0"):
            frames.call(rank.open_endpoint, 1, **own.hosts[1].dpdk())


@pytest.mark.needs_root
def test_interface_names_the_port_that_lies_over_it(bed: Bed) -> None:
    """As the setting says of other drivers."""
    station, host = bed.stations[1], bed.hosts[1]
    place = host.dpdk() | {"driver_options": "", "interface": "eth0"}
    station.call(rank.open_endpoint, 1, **place)
    with pytest.raises(errors.InterfaceError, match="net_af_packet0 is in use"):
        station.call(rank.open_endpoint, 2, **place)
    station.call(rank.close_endpoint, 1)


@pytest.mark.parametrize(
    ("word", "wanted"),
    [("checksum=card", "checksum=auto"), ("flow_isolation=on", "cannot take single flows off the kernel")],
)
def test_word_that_a_device_cannot_do_is_a_wrong_setting(word: str, wanted: str) -> None:
    with Station("null") as station, pytest.raises(errors.SettingsError, match=wanted) as caught:
        station.call(
            rank.open_endpoint,
            0,
            driver="dpdk",
            bind_host="10.77.0.1/24",
            driver_options=f"port=net_null0 {word}",
            eal_arguments=f"{dpdk.NO_HUGE} --vdev=net_null0",
        )
    assert "net_null0" in str(caught.value)
