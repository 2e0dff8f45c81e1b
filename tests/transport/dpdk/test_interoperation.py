"""A rank on DPDK speaks with one on the kernel's sockets, the other implementation of everything below UDP.

Hosts are namespaces on a bridge of the kernel, which loses and marks what it is told to; the DPDK rank has the whole of
its host's interface by net_af_packet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import dpdk
from tests.support import station_ranks as rank
from tests.support.dpdk import Bed
from tests.support.stations import PATIENCE_S, Station, both, on_all

pytestmark = pytest.mark.needs_root
SIZES = [0, 1, 1000, 1472, 100_000, 1_000_000]
# Where a tenth is lost, this is enough for every kind of loss, the last packet's among them. Where a hundredth is, so
# many packets that all of a station's arrive once in 10^9 runs: the bridge draws without a seed.
LOSSY_SIZES = {0.1: [1, 5000, 200_000], 0.01: [*SIZES, 2_000_000]}


@contextmanager
def pair(bed: Bed, *, ipv6: bool = False, words: str = "") -> Iterator[tuple[Station, Station]]:
    """Rank 0 on sockets and rank 1 on DPDK, connected by both."""
    sockets, frames = bed.stations[:2]
    with ExitStack() as stack:
        stack.callback(bed.bridge.treat)
        ours = sockets.call(rank.open_endpoint, 0, **bed.hosts[0].udp(ipv6=ipv6))
        stack.callback(sockets.call, rank.close_endpoint, 0)
        theirs = frames.call(rank.open_endpoint, 1, **bed.hosts[1].dpdk(ipv6=ipv6, words=words))
        stack.callback(frames.call, rank.close_endpoint, 1)
        both(sockets, frames, rank.connect, (0, 1), (1, 0), (theirs, ours))
        yield sockets, frames


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_messages_both_ways(bed: Bed, ipv6: bool) -> None:
    with pair(bed, ipv6=ipv6) as (sockets, frames):
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=SIZES)
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=[500_000] * 4, seed=1, traffic_class=5)
        for station, own in ((sockets, 0), (frames, 1)):
            counted = station.call(rank.counters, own)
            assert counted["bad_tag"] == counted["inconsistent"] == counted["malformed_frames"] == 0
            assert counted["io_rx_truncated_packets"] == 0
            # Each full packet fills the MTU: both see 1500 bytes of it.
            assert counted["io_rx_bytes"] > 3_000_000


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("loss_ratio", [0.01, 0.1])
def test_everything_arrives_where_datagrams_are_lost_and_marked(
    bed: Bed, ipv6: bool, loss_ratio: float
) -> None:
    with pair(bed, ipv6=ipv6) as (sockets, frames):
        bed.bridge.treat(loss_ratio=loss_ratio, mark_ratio=0.2)
        sizes = LOSSY_SIZES[loss_ratio]
        for came in both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=sizes):
            assert came == {"bytes": sum(sizes), "abandoned_bytes": 0}
        assert bed.bridge.counted("lost") > 0
        assert bed.bridge.counted("marked") > 0
        for station, own in ((sockets, 0), (frames, 1)):
            counted = station.call(rank.counters, own)
            assert counted["io_ce_packets"] > 0
            assert counted["repair_packets_sent"] > 0


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_checksums_that_the_kernel_leaves_to_a_card_are_no_damage(bed: Bed, ipv6: bool) -> None:
    """As on cables of the kernel unless somebody turns it off: containers, namespaces, virtual machines."""
    with bed.checksums_left_to_cards(), pair(bed, ipv6=ipv6) as (sockets, frames):
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=SIZES)
        counted = frames.call(rank.driver_statistics, 1)
        assert counted["port0_rx_partial_checksum_frames"] > 0
        assert counted["port0_rx_bad_checksum_frames"] == 0


def test_bounded_messages_lose_no_more_than_they_may(bed: Bed) -> None:
    with pair(bed) as (sockets, frames):
        bed.bridge.treat(loss_ratio=0.03)
        sizes = [300_000, 70_000]
        for came in both(
            sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=sizes, delivery="bounded", loss_ratio=0.2
        ):
            assert came["abandoned_bytes"] <= 0.2 * sum(sizes)


def test_deadline_ends_messages_with_what_has_come(bed: Bed) -> None:
    """Nothing else can have ended them: half of each gets through, and no loss is granted."""
    with pair(bed) as (sockets, frames):
        size = 3_000_000
        bed.bridge.treat(data_max=size // 2 // 1472)
        start = time.monotonic()
        how = {"sizes": [size], "delivery": "deadline", "deadline_s": 0.1}
        for came in both(sockets, frames, rank.exchange, (0, 1), (1, 0), **how):
            # What is not told as abandoned is right: exchange() has looked.
            assert size / 2 < came["abandoned_bytes"] < size
        assert time.monotonic() - start < PATIENCE_S / 2


def test_kernel_is_answered_and_learns_the_neighbour(bed: Bed) -> None:
    other = bed.hosts[1]
    for ipv6 in (False, True):
        with pair(bed, ipv6=ipv6):
            address = other.ipv6 if ipv6 else other.ipv4
            for _ in range(3):
                answer = bed.hosts[0].ping(address)
                assert answer.returncode == 0, answer.stdout + answer.stderr
            entry = bed.hosts[0].neighbours()[address]
            assert entry["lladdr"] == other.mac()
            # Larger than one frame: not for it to put together; it stays silent and goes on.
            bed.hosts[0].ping(address, "-s", "4000", "-W", "1")
            assert bed.hosts[0].ping(address).returncode == 0


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_reduce_of_mixed_ranks_has_the_same_bits_everywhere(bed: Bed, tmp_path: Path, ranks: int) -> None:
    bed.open_jobs(tmp_path, ranks)
    bed.bridge.treat(loss_ratio=0.005)
    stations = bed.stations[:ranks]
    results = on_all(stations, rank.all_reduce, [1, 1000, 300_000, 17])
    assert all(result == results[0] for result in results)
    bed.bridge.treat()
    on_all(stations, rank.close_job)


def test_frames_of_9000_bytes() -> None:
    if (reason := dpdk.missing_bed()) is not None:
        pytest.skip(reason)
    with dpdk.bed(2, mtu_bytes=9000) as jumbo, pair(jumbo, words="mtu=9000") as (sockets, frames):
        jumbo.bridge.treat(loss_ratio=0.01)
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=[1, 9000, 3_000_000])
        for station, own in ((sockets, 0), (frames, 1)):
            counted = station.call(rank.counters, own)
            # Most of a packet is more than any of 1500 bytes could hold.
            assert counted["data_bytes_received"] > 4000 * counted["data_packets_received"]
            assert counted["io_rx_truncated_packets"] == 0
