"""An address that somebody on the link has: opening fails and names the station."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
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


# Sends the frame that it is given without an end, and says so after the first.
FLOOD = """
import socket, sys, time
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("eth0", 0))
frame = bytes.fromhex(sys.argv[1])
out.send(frame)
print("sent", flush=True)
while True:
    for _ in range(8):
        out.send(frame)
    time.sleep(0.001)
"""


def datagram(source: Host, to: Host, address: Host, port: int, *, ipv6: bool) -> bytes:
    """A frame to the station of `to` with a datagram to the IP address of `address`."""
    payload = bytes(64)
    length = 8 + len(payload)
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    ends = [socket.inet_pton(family, host.ipv6 if ipv6 else host.ipv4) for host in (source, address)]
    if ipv6:
        header = struct.pack("!IHBB", 6 << 28, length, 17, 64) + b"".join(ends)
        pseudo = b"".join(ends) + struct.pack("!II", length, 17)
    else:
        blank = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + b"".join(ends)
        header = blank[:10] + struct.pack("!H", checksum(blank)) + blank[12:]
        pseudo = b"".join(ends) + struct.pack("!HH", 17, length)
    udp = struct.pack("!HHH", 7000, port, length)
    udp += struct.pack("!H", checksum(pseudo + udp + bytes(2) + payload)) + payload
    macs = bytes.fromhex((to.mac() + source.mac()).replace(":", ""))
    return macs + (b"\x86\xdd" if ipv6 else b"\x08\x00") + header + udp


def checksum(data: bytes) -> int:
    """Of the internet, RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@contextlib.contextmanager
def flooded(source: Host, frame: bytes) -> Iterator[None]:
    """`source` sends the frame until the end of `with`."""
    words = source.namespace.command(sys.executable, "-c", FLOOD, frame.hex())
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"sent\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_address_that_another_station_has_is_refused_though_peers_send_there_already(
    bed: Bed, ipv6: bool
) -> None:
    _, frames, claimant = bed.stations
    owner = bed.hosts[1]
    port = 29000
    frames.call(rank.open_endpoint, 1, **owner.dpdk(ipv6=ipv6))
    try:
        settings = at_address_of(owner, bed.hosts[2], ipv6=ipv6) | {"port": port}
        frame = datagram(bed.hosts[0], bed.hosts[2], owner, port, ipv6=ipv6)
        with flooded(bed.hosts[0], frame):
            check_refused(claimant, owner, settings, ipv6=ipv6)
    finally:
        frames.call(rank.close_endpoint, 1)


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
