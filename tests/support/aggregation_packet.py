"""The aggregation packet in Python: written for switches under test, read back from their results.

Version 1, 164 bytes, big-endian; p4/aggregation.md draws it. It knows nothing of the compiled readers, which
tests/vectors/aggregation.txt holds to it: native/aggregation/packet.hpp and p4/blocks/aggregation_headers.p4.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dlcp.switch.aggregation.entries import LANES, Participant
from tests.support.aggregation_twin import Frame

MAGIC = 0x444C4341  # "DLCA"
VERSION = 1
UDP_PORT = 0xD1C5

_HEADER = struct.Struct(">I4B3I2HI4BI")
PACKET_BYTES = _HEADER.size + 4 * LANES
# Behind magic and version, in this order.
_FIELDS = (
    *("kind", "flags", "operation"),
    *("job", "message", "block", "slot", "generation", "bitmap"),
    *("worker", "count", "exponent", "quorum", "saturated"),
)

Values = npt.NDArray[np.int32]


class Kind(enum.IntEnum):
    """What a packet says. A switch looks at contribution, flush and release, and writes results."""

    CONTRIBUTION = 1
    RESULT = 2
    FLUSH = 3
    RELEASE = 4
    OTHER = 6
    """One of those that a switch forwards like any packet."""


class Flag(enum.IntFlag):
    """`flags`."""

    TO_HUB = 1
    RETRANSMISSION = 2
    UNKNOWN = 8
    """One that means nothing to a switch."""


NO_FLAGS = Flag(0)


class Operation(enum.IntEnum):
    """What is done with the values of different workers."""

    SUM = 0
    MAX = 1


ZEROS: Values = np.zeros(LANES, np.int32)
ZEROS.flags.writeable = False


@dataclass
class Packet:
    """One packet; p4/aggregation.md says what the fields mean."""

    kind: Kind
    job: int
    message: int
    block: int
    worker: int
    """HUB: the hub."""
    slot: int = 0
    generation: int = 0
    operation: Operation = Operation.SUM
    flags: Flag = NO_FLAGS
    bitmap: int = 0
    count: int = 0
    exponent: int = 0
    quorum: int = 0
    saturated: int = 0
    values: Values = field(default_factory=lambda: ZEROS)

    def encode(self) -> bytes:
        """The packet's bytes."""
        header = _HEADER.pack(MAGIC, VERSION, *(getattr(self, name) for name in _FIELDS))
        return header + self.values.astype(">i4").tobytes()


def decode(payload: bytes) -> Packet:
    """The packet that these bytes are. AssertionError, ValueError: they are none."""
    assert len(payload) == PACKET_BYTES
    magic, version, kind, flags, operation, *numbers = _HEADER.unpack_from(payload)
    assert (magic, version) == (MAGIC, VERSION)
    values = np.frombuffer(payload, ">i4", LANES, _HEADER.size).astype(np.int32)
    fields = dict(zip(_FIELDS[3:], numbers, strict=True))
    return Packet(Kind(kind), flags=Flag(flags), operation=Operation(operation), values=values, **fields)


def udp_frame(source: Participant, destination: Participant, payload: bytes, ttl: int = 64) -> bytes:
    """A frame with right checksums."""
    udp = struct.pack(">HHHH", source.udp_port, destination.udp_port, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, ttl, 17, 0)
    ip += source.ip_number.to_bytes(4, "big") + destination.ip_number.to_bytes(4, "big")
    macs = destination.mac_number.to_bytes(6, "big") + source.mac_number.to_bytes(6, "big")
    return Frame(macs + b"\x08\x00" + ip + udp).with_checksums().raw


def participant(port: int, udp_port: int = UDP_PORT) -> Participant:
    """The host at a port."""
    return Participant(port, f"02:00:00:00:00:{port:02x}", f"10.0.0.{port}", udp_port)
