"""Random frames for an aggregating switch with the jobs of tests/vectors/aggregation.py."""

from __future__ import annotations

import random

import numpy as np

from dlcp.switch.aggregation.entries import HUB
from tests.support.aggregation_packet import Flag, Kind, Operation, Packet, participant, udp_frame
from tests.support.aggregation_twin import Frame
from tests.vectors import aggregation


def random_frame(rng: random.Random) -> tuple[int, bytes]:
    """A frame of a few blocks, slots and workers, so that they meet; some of them broken."""
    port = rng.randint(1, 7)
    first = port <= 4
    request = aggregation.REQUESTS[0 if first else 1]
    number = port - (1 if first else 5)
    worker = HUB if number == len(request.workers) else number
    kinds = [Kind.CONTRIBUTION] * 8 + [Kind.FLUSH, Kind.RELEASE, Kind.OTHER]
    big = rng.random() < 0.3
    packet = Packet(
        rng.choice(kinds),
        request.job,
        rng.randint(1, 3),
        rng.randint(0, 3),
        worker if rng.random() < 0.95 else rng.randint(0, 3),
        slot=rng.choice((0, 0, 0, 1, 1, 3, 4)),
        generation=request.generation,
        operation=Operation(rng.random() < 0.2),
        flags=Flag(rng.choice((0, 0, 0, 2, 1))),
        exponent=rng.choice((0, 0, 0, 0, 130)),
        quorum=rng.randint(0, 3),
        values=np.array(
            [rng.randint(-(2**31), 2**31 - 1) if big else rng.randint(-99, 99) for _ in range(32)], np.int32
        ),
    )
    to = request.hub if rng.random() < 0.9 else participant(rng.randint(1, 7))
    frame = udp_frame(participant(port), to, packet.encode(), ttl=rng.randint(0, 255))
    fate = rng.random()
    if fate < 0.05:
        at = rng.randrange(len(frame))
        frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]
    elif fate < 0.10:
        frame = frame[: rng.randrange(14, len(frame))]
    elif fate < 0.15:  # a field that lies, under a right checksum
        at = rng.randrange(14, 78)
        frame = Frame(frame[:at] + bytes([rng.randrange(256)]) + frame[at + 1 :]).with_checksums().raw
    return port, frame
