"""A bridge that snoops: who listens to a group says so, and is found though groups are no longer flooded."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import dpdk
from tests.support import station_ranks as rank
from tests.support.dpdk import Bed
from tests.support.stations import PATIENCE_S, both

pytestmark = pytest.mark.needs_root
GROUP = "ff02::1:ff00:2"
"""The solicited-node group of host 1's address, fd00:78::2."""


@pytest.fixture
def own_bed() -> Iterator[Bed]:
    """Hosts on a bridge of their own, which the test sets to snooping."""
    if (reason := dpdk.missing_bed()) is not None:
        pytest.skip(reason)
    with dpdk.bed(2) as made:
        yield made


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.01)


def ports_of_group(bed: Bed) -> set[str]:
    """The bridge's ports that it gives frames to GROUP."""
    words = bed.bridge.namespace.command("bridge", "-j", "mdb", "show", "dev", "br0")
    shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout or "[]")
    return {entry["port"] for one in shown for entry in one.get("mdb", []) if entry["grp"] == GROUP}


def snoop(bed: Bed, version: int) -> None:
    """Snooping on, forgetful: a group that is not reported for three seconds is nobody's."""
    bridge = bed.bridge.namespace
    # The bridge asks from a link-local address of its own.
    bridge.run(lambda: Path("/proc/sys/net/ipv6/conf/br0/disable_ipv6").write_text("0"))
    bridge.ip("addr add fe80::99/64 dev br0 nodad")
    bridge.ip(
        f"link set br0 type bridge mcast_snooping 1 mcast_mld_version {version} mcast_querier 1"
        " mcast_startup_query_interval 50 mcast_query_interval 100 mcast_query_response_interval 50"
        " mcast_membership_interval 300"  # hundredths of a second
    )


@contextlib.contextmanager
def on_dpdk(bed: Bed) -> Iterator[str]:
    frames = bed.stations[1]
    address = frames.call(rank.open_endpoint, 1, **bed.hosts[1].dpdk(ipv6=True))
    try:
        yield address
    finally:
        frames.call(rank.close_endpoint, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_group_is_in_the_table_of_a_snooping_bridge_and_stays(own_bed: Bed, version: int) -> None:
    snoop(own_bed, version)
    sockets, frames = own_bed.stations
    ours = sockets.call(rank.open_endpoint, 0, **own_bed.hosts[0].udp(ipv6=True))
    with on_dpdk(own_bed) as theirs:
        until(lambda: ports_of_group(own_bed) == {"eth1"}, f"{GROUP} in the table")

        def answered() -> int:
            return int(frames.call(rank.driver_statistics, 1)["port0_rx_listener_query_frames"])

        # Answers to queries keep it there for longer than it would stay by itself.
        until(lambda: answered() >= 6, "six queries")
        assert ports_of_group(own_bed) == {"eth1"}
        # The peer's kernel asks for us through the group alone.
        both(sockets, frames, rank.connect, (0, 1), (1, 0), (theirs, ours))
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=[100_000])
    sockets.call(rank.close_endpoint, 0)


def test_group_of_a_rank_that_has_ended_leaves_the_table(own_bed: Bed) -> None:
    snoop(own_bed, 2)
    with on_dpdk(own_bed):
        until(lambda: ports_of_group(own_bed) == {"eth1"}, f"{GROUP} in the table")
    until(lambda: not ports_of_group(own_bed), f"{GROUP} forgotten")
