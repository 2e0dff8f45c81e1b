"""An address that somebody on the link has: opening fails and names the station."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import station_ranks as rank
from tests.support.dpdk import Bed, Host
from tests.support.stations import Station, both

pytestmark = pytest.mark.needs_root


def at_address_of(owner: Host, host: Host, *, ipv6: bool) -> dict[str, Any]:
    """Settings of a rank on `host` that believes itself at the owner's address."""
    return host.dpdk(ipv6=ipv6, bind_host=f"{owner.ipv6}/64" if ipv6 else f"{owner.ipv4}/24")


def check_refused(station: Station, owner: Host, settings: dict[str, Any], *, ipv6: bool) -> None:
    with pytest.raises(OSError, match="has the address") as refused:
        station.call(rank.open_endpoint, 2, **settings)
    assert owner.mac() in str(refused.value)
    assert (owner.ipv6 if ipv6 else owner.ipv4) in str(refused.value)


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("who", [0, 1], ids=["kernel", "dpdk"])
def test_address_that_another_station_has_is_refused(bed: Bed, who: int, ipv6: bool) -> None:
    sockets, frames, claimant = bed.stations
    owner = bed.hosts[who]
    ours = sockets.call(rank.open_endpoint, 0, **bed.hosts[0].udp(ipv6=ipv6))
    theirs = frames.call(rank.open_endpoint, 1, **bed.hosts[1].dpdk(ipv6=ipv6))
    try:
        both(sockets, frames, rank.connect, (0, 1), (1, 0), (theirs, ours))
        check_refused(claimant, owner, at_address_of(owner, bed.hosts[2], ipv6=ipv6), ipv6=ipv6)
        # Who has it is not disturbed, and not told either: nobody else uses it.
        both(sockets, frames, rank.exchange, (0, 1), (1, 0), sizes=[100_000])
        assert not any(kind == "address_taken" for kind, _ in frames.call(rank.events, 1))
        # The one that was refused may have another address.
        claimant.call(rank.open_endpoint, 2, **bed.hosts[2].dpdk(ipv6=ipv6))
        claimant.call(rank.close_endpoint, 2)
    finally:
        frames.call(rank.close_endpoint, 1)
        sockets.call(rank.close_endpoint, 0)


def test_address_is_taken_unasked_if_told_so(bed: Bed) -> None:
    _, frames, claimant = bed.stations
    owner = bed.hosts[1]
    frames.call(rank.open_endpoint, 1, **owner.dpdk())
    try:
        settings = bed.hosts[2].dpdk(words="address_probe=off", bind_host=f"{owner.ipv4}/24")
        claimant.call(rank.open_endpoint, 2, **settings)
        # Its announcement is what the owner hears.
        assert bed.hosts[2].mac() in frames.call(rank.await_event, 1, "address_taken")
        claimant.call(rank.close_endpoint, 2)
    finally:
        frames.call(rank.close_endpoint, 1)
