"""How long a packet takes to another host and back: rank 0 measures it at the start of a job, for all ranks.

The time that an algorithm's hops take decides which one is quickest, and all ranks have to choose the same one. So one
rank's figure serves all; it is in the store before the start is complete (meeting.py), and does not change after.

Handshakes do not tell: they wait for the neighbour's hardware address, and for ciphers to be loaded. Empty messages
follow them, to a few ranks that expect them.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterable

from dlcp.errors import DlcpError
from dlcp.transport.endpoint import Endpoint
from dlcp.transport.rank_card import RankCard

_MESSAGES = 8
# Of a single message, but with bits that no group's messages have (native/collective/tag.hpp).
_TAG = 1 << 48 | 1 << 47
# A host that does not answer by then is left out.
_WAIT_S = 1.0


def asked_ranks(size: int) -> list[int]:
    """Whom rank 0 asks: a few near and far ones, among them some of other hosts, if there are any, however many."""
    return sorted({1 << power for power in range((size - 1).bit_length())} | {size - 1})


def expect(endpoint: Endpoint) -> None:
    """On a rank that is asked, before rank 0 can know its address: receives for what will come. Does not block."""
    for _ in range(_MESSAGES):
        endpoint.ireceive(None, bytearray(1), tag=_TAG)


def round_trip_s(endpoint: Endpoint, own: RankCard, others: Iterable[RankCard]) -> float | None:
    """The median over ranks of other hosts of the least time that was seen, seconds. None: none of them answered.

    Blocks for a few milliseconds, 1 s at most where a host does not answer.
    """
    far = [card for card in others if card.where != own.where and not card.refusal]
    end_s = time.monotonic() + _WAIT_S
    asked = []
    for card in far:
        # What is wrong with an address is said when the rank is needed.
        with contextlib.suppress(DlcpError):
            endpoint.connect(card.rank, card.address, wait=False)
            asked.append(card.rank)
    found_s = []
    for rank in asked:
        if not endpoint.runtime.wait_established(rank, _left_s(end_s)):
            endpoint.runtime.disconnect(rank)
            continue
        with contextlib.suppress(DlcpError):
            for _ in range(_MESSAGES):
                endpoint.send(rank, b"", tag=_TAG, timeout_s=_left_s(end_s))
        found_s.append(float(endpoint.runtime.peer_statistics(rank)["rtt_s_min"]))
    return statistics.median(found_s) if found_s else None


def _left_s(end_s: float) -> float:
    return max(1e-3, end_s - time.monotonic())
