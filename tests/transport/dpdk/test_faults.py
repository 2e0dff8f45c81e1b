"""What goes wrong while ranks on DPDK speak: an event or an error says what, and what can go on goes on."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dlcp import errors
from tests.support import dpdk
from tests.support import station_ranks as rank
from tests.support.dpdk import Bed, Host
from tests.support.stations import PATIENCE_S, Station, both, on_all

LARGE_BYTES = 16_000_000
# Long enough for a rank that waits for a core, on a machine whose cores are busy.
PEER_TIMEOUT_S = 8.0
ETH_P_ARP = 0x0806


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that comes by itself."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.005)


@pytest.fixture
def pair(bed: Bed) -> Iterator[tuple[Station, Station]]:
    """Rank 0 on sockets and rank 1 on DPDK, connected; neither takes the other's silence for its end."""
    sockets, frames = bed.stations[:2]
    ours = sockets.call(rank.open_endpoint, 0, **bed.hosts[0].udp(peer_timeout_s=2 * PATIENCE_S))
    theirs = frames.call(rank.open_endpoint, 1, **bed.hosts[1].dpdk(peer_timeout_s=2 * PATIENCE_S))
    both(sockets, frames, rank.connect, (0, 1), (1, 0), (theirs, ours))
    yield sockets, frames
    bed.bridge.treat()
    sockets.call(rank.close_endpoint, 0)
    frames.call(rank.close_endpoint, 1)


@pytest.mark.needs_root
def test_cable_that_is_cut_and_mended_in_the_middle_of_messages(
    bed: Bed, pair: tuple[Station, Station]
) -> None:
    sockets, frames = pair
    # Half of each gets through: they are under way however late the cable is cut.
    bed.bridge.treat(loss_ratio=0.3, data_max=LARGE_BYTES // 2 // 1472)
    for station, own in ((sockets, 0), (frames, 1)):
        station.call(rank.start_receive, "in", own, 1 - own, LARGE_BYTES)
        station.call(rank.start_send, "out", own, 1 - own, LARGE_BYTES)
    for station, own in ((sockets, 0), (frames, 1)):
        call = partial(station.call, rank.counters, own)
        until(lambda call=call: call()["data_packets_received"] > 100, "the first packets")  # type: ignore[misc]
    with bed.bridge.cut(1):
        assert "net_af_packet0" in frames.call(rank.await_event, 1, "link_down")
        assert not frames.call(rank.is_over, "in")
        assert not sockets.call(rank.is_over, "in")
    bed.bridge.treat()
    assert "net_af_packet0" in frames.call(rank.await_event, 1, "link_up")
    for station in pair:
        assert station.call(rank.finish, "in") == LARGE_BYTES
        assert station.call(rank.finish, "out") == LARGE_BYTES
    assert not any(kind == "peer_down" for kind, _ in frames.call(rank.events, 1))


@pytest.mark.needs_root
def test_neighbour_that_is_absent_is_told_and_found_when_it_comes(
    bed: Bed, pair: tuple[Station, Station]
) -> None:
    _, frames = pair
    absent = "10.78.0.99"
    with pytest.raises(errors.PeerTimeoutError, match=absent):
        frames.call(rank.connect, 1, 7, f"{absent}:7000", timeout_s=1.0)
    assert absent in frames.call(rank.await_event, 1, "neighbour_lost")
    bed.hosts[2].namespace.ip(f"addr add {absent}/24 dev eth0")

    def found_when_asked_for() -> bool:
        with pytest.raises(errors.PeerTimeoutError):  # its kernel is there, but no rank
            frames.call(rank.connect, 1, 7, f"{absent}:7000", timeout_s=1.0)
        seen = frames.call(rank.events, 1)
        return any(kind == "neighbour_found" and absent in text for kind, text in seen)

    until(found_when_asked_for, f"{absent} is found")
    bed.hosts[2].namespace.ip(f"addr del {absent}/24 dev eth0")


def claim(claimant: Host, owner: Host) -> str:
    """An ARP announcement (RFC 5227, 2.3) of the owner's address, heard by the owner alone; whose MAC it names."""
    mac = claimant.mac()
    station, address = bytes.fromhex(mac.replace(":", "")), socket.inet_aton(owner.ipv4)
    frame = (
        bytes.fromhex(owner.mac().replace(":", ""))
        + station
        + struct.pack("!HHHBBH", ETH_P_ARP, 1, 0x0800, 6, 4, 1)
    )
    frame += station + address + bytes(6) + address

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("eth0", ETH_P_ARP))
            raw.send(frame.ljust(60, b"\0"))

    claimant.namespace.run(send)
    return mac


@pytest.mark.needs_root
def test_other_station_with_our_address_is_told(bed: Bed, pair: tuple[Station, Station]) -> None:
    mac = claim(bed.hosts[2], bed.hosts[1])
    words = pair[1].call(rank.await_event, 1, "address_taken")
    assert bed.hosts[1].ipv4 in words
    assert mac in words
    # It is ours still: who asks is answered.
    both(*pair, rank.exchange, (0, 1), (1, 0), sizes=[100_000])


@pytest.mark.needs_root
@pytest.mark.parametrize("victim", [0, 2], ids=["on_sockets", "on_dpdk"])
def test_rank_killed_in_an_all_reduce_is_named_by_the_others(victim: int, tmp_path: Path) -> None:
    if (reason := dpdk.missing_bed()) is not None:
        pytest.skip(reason)
    with dpdk.bed(3) as own:
        # Nothing but the victim's silence ends it within PATIENCE_S.
        own.open_jobs(tmp_path, 3, peer_timeout_s=PEER_TIMEOUT_S, timeout_s=2 * PATIENCE_S)
        on_all(own.stations, rank.all_reduce, [1000])
        calls = [
            station.start(rank.reduce_until_failure, number, 200_000)
            for number, station in enumerate(own.stations)
        ]
        reached = own.bridge.frames()
        until(lambda: own.bridge.frames() > reached + 1000, "collectives under way")
        own.stations[victim].kill()
        for number, call in enumerate(calls):
            if number == victim:
                continue
            told = call.result()
            assert told["culprit"] == victim, told
            assert told["kind"] == "PeerFailedError", told
            assert f"rank {victim}" in told["text"]


def test_memif_peer_that_is_killed_and_started_anew(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Station("server") as server:
        ours = server.call(rank.open_endpoint, 0, **dpdk.memif_of_two_processes(path, 0))
        for life in range(2):
            with Station(f"client {life}") as client:
                theirs = client.call(rank.open_endpoint, 1, **dpdk.memif_of_two_processes(path, 1, port=7000))
                if life == 0:
                    server.call(rank.connect, 0, 1, theirs)
                client.call(rank.connect, 1, 0, ours)
                # Of this life: what is sent to the one before is lost with it.
                server.call(rank.await_event, 0, "peer_established")
                both(server, client, rank.exchange, (0, 1), (1, 0), sizes=[1, 300_000])
                # Links are looked at now and then: one that is not seen to come is not seen to go.
                server.call(rank.await_event, 0, "link_up")
                client.kill()
            assert "net_memif0" in server.call(rank.await_event, 0, "link_down")


@pytest.mark.needs_root
def test_port_opens_and_closes_many_times(bed: Bed) -> None:
    sockets, frames = bed.stations[:2]
    for turn in range(10):
        ours = sockets.call(rank.open_endpoint, 0, **bed.hosts[0].udp())
        theirs = frames.call(rank.open_endpoint, 1, **bed.hosts[1].dpdk(ipv6=False))
        both(sockets, frames, rank.connect, (0, 1), (1, 0), (theirs, ours))
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=[1, 50_000], seed=turn)
        frames.call(rank.close_endpoint, 1)
        sockets.call(rank.close_endpoint, 0)
