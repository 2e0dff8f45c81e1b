"""The packet that tests write has the bytes of the drawing in p4/aggregation.md."""

from __future__ import annotations

import numpy as np

from tests.support.aggregation_packet import PACKET_BYTES, Flag, Kind, Operation, Packet, decode

PACKET = Packet(
    Kind.OTHER, 0x01020304, 0x05060708, 0x090A0B0C, 31, 0x0D0E, 0x0F10, Operation.MAX, Flag.TO_HUB,
    0x80000001, 2, 255, 3, 0x11121314, np.arange(-16, 16, dtype=np.int32),
)  # fmt: skip


def test_packet_has_the_bytes_of_the_drawing() -> None:
    header = "444c4341010601010102030405060708090a0b0c0d0e0f10800000011f02ff0311121314"
    assert PACKET.encode()[:36].hex() == header
    assert PACKET.encode()[36:40].hex() == "fffffff0"
    assert len(PACKET.encode()) == PACKET_BYTES == 164


def test_packet_is_read_as_it_was_written() -> None:
    got = decode(PACKET.encode())
    assert np.array_equal(got.values, PACKET.values)
    got.values = PACKET.values
    assert got.__dict__ == PACKET.__dict__
