"""The aggregation packet: its bytes, and the value they mean.

Version 1, the payload of a UDP datagram, always 164 bytes, byte-aligned, big-endian; p4/aggregation.md draws it. The
switch reads it with p4/blocks/aggregation_parser.p4. A datagram that is not one decodes to None, which its receiver
counts; nothing about who sent it is known.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

MAGIC = 0x444C4341  # "DLCA"
VERSION = 1
LANES = 32  # values per packet of the P4 program, and the unit of what other switches have
MAX_LANES = 2208  # in a jumbo frame of 9000 bytes; 352 in one of 1500
HEADER_BYTES = 36
PACKET_BYTES = HEADER_BYTES + 4 * LANES
MAX_WORKERS = 32  # bits of the bitmap
HUB = 255  # the hub's worker number
INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)

_HEADER = struct.Struct(">I4B3I2HI4BI")
assert _HEADER.size == HEADER_BYTES
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
    """Worker: my values of this block."""
    RESULT = 2
    """Switch: the sum of the workers in `bitmap`. There is one per block, ever."""
    FLUSH = 3
    """Worker: the deadline is over, send what is in, if `quorum` workers are."""
    RELEASE = 4
    """Hub: this block is decided; its slot is free for newer ones."""
    QUERY = 5
    """Hub: the switch could not, so tell me what you have of this block, and take no more from the switch for it. In
    `bitmap`, whose contributions the hub has."""
    ANSWER = 6
    """Worker: the result that I have (flag has_result), my contribution (has_contribution), or neither yet."""
    DECIDED = 7
    """Hub: the result of this block, as RESULT."""
    ACK = 8
    """Worker: I have the decision."""
    FINISHED = 9
    """Worker: I have all results of this message."""
    CLOSED = 10
    """Hub: so has everyone; forget it."""
    FAILED = 11
    """Hub: this message cannot end; in `bitmap`, the workers that were silent."""


class Flag(enum.IntFlag):
    """`flags`."""

    TO_HUB = 1
    """Not for the switch: by its sender's will, or because the switch could not take it."""
    RETRANSMISSION = 2
    """Sent before."""
    HAS_RESULT = 4
    HAS_CONTRIBUTION = 8


NO_FLAGS = Flag(0)


class Operation(enum.IntEnum):
    """What is done with the values of different workers."""

    SUM = 0
    MAX = 1


ZEROS: Values = np.zeros(LANES, np.int32)
ZEROS.flags.writeable = False


@dataclass
class Packet:
    """One packet. Fields that a kind does not use are 0."""

    kind: Kind
    job: int
    message: int
    """From 1, +1 per all-reduce of the job."""
    block: int
    """Of the message, from 0."""
    worker: int
    """The sender, or the receiver of a repeated result; HUB: the hub."""
    slot: int = 0
    """Of the job's slots."""
    generation: int = 0
    """+1 whenever the control plane admits the job anew, so that packets from before are not aggregated."""
    operation: Operation = Operation.SUM
    flags: Flag = NO_FLAGS
    bitmap: int = 0
    """Workers whose contributions are in `values`."""
    count: int = 0
    """How many they are."""
    exponent: int = 0
    """Code of the block's exponent (quantise.py); the switch only sees to it that all are the same."""
    quorum: int = 0
    saturated: int = 0
    """Bit per lane: its sum left the 32 bits."""
    values: Values = field(default_factory=lambda: ZEROS)

    def encode(self) -> bytes:
        """The packet's bytes."""
        header = _HEADER.pack(MAGIC, VERSION, *(getattr(self, name) for name in _FIELDS))
        return header + self.values.astype(">i4").tobytes()


def decode(datagram: bytes) -> Packet | None:
    """The packet that these bytes are, or None."""
    if len(datagram) != PACKET_BYTES:
        return None
    magic, version, *numbers = _HEADER.unpack_from(datagram)
    kind, flags, operation = numbers[:3]
    if magic != MAGIC or version != VERSION or not 1 <= kind <= len(Kind):
        return None
    if operation > Operation.MAX or flags > 15:
        return None
    values = np.frombuffer(datagram, ">i4", LANES, HEADER_BYTES).astype(np.int32)
    fields = dict(zip(_FIELDS[3:], numbers[3:], strict=True))
    packet = Packet(Kind(kind), flags=Flag(flags), operation=Operation(operation), values=values, **fields)
    if packet.kind in _COUNTED and packet.bitmap.bit_count() != packet.count:
        return None
    if packet.worker >= MAX_WORKERS and packet.worker != HUB:
        return None
    return packet


# Kinds in which `count` must be the number of bits of `bitmap`.
_COUNTED = frozenset({Kind.RESULT, Kind.DECIDED})
