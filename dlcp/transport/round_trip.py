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
from dlcp.transport.transfer import TransferFuture

_MESSAGES = 8
# Of a single message, but with bits that no group's messages have (native/collective/tag.hpp).
_TAG = 1 << 48 | 1 << 47
# What has not been answered by then does not count.
_WAIT_S = 1.0


def asked_ranks(size: int) -> list[int]:
    """Whom rank 0 asks: a few near and far ones, since there is no telling yet which are on other hosts."""
    return sorted({1 << power for power in range((size - 1).bit_length())} | {size - 1})


def expect(endpoint: Endpoint) -> list[TransferFuture]:
    """On a rank that is asked, before rank 0 can know its address: receives for what will come. Does not block."""
    posted = []
    with contextlib.suppress(DlcpError):  # such as a bound on receives that is lower
        for _ in range(_MESSAGES):
            posted.append(endpoint.ireceive(None, bytearray(1), tag=_TAG))
    return posted


def give_up(messages: Iterable[TransferFuture]) -> None:
    """Ends what is not over. Does not block."""
    for message in messages:
        message.cancel()


def round_trip_s(endpoint: Endpoint, own: RankCard, others: Iterable[RankCard]) -> float | None:
    """The median over ranks of other hosts of the least time that was seen, seconds. None: none of them answered.

    Blocks for some round trips, 1 s at most.
    """
    end_s = time.monotonic() + _WAIT_S
    asked = []
    for card in others:
        # What is wrong with an address is said when the rank is needed.
        if card.where != own.where and not card.refusal:
            with contextlib.suppress(DlcpError):
                endpoint.connect(card.rank, card.address, wait=False)
                asked.append(card.rank)
    there = []
    for rank in asked:
        if endpoint.runtime.wait_established(rank, _left_s(end_s)):
            there.append(rank)
        else:
            with contextlib.suppress(DlcpError):
                endpoint.runtime.disconnect(rank)
    for _ in range(_MESSAGES):
        messages: list[TransferFuture] = []
        with contextlib.suppress(DlcpError):
            messages += (endpoint.isend(rank, b"", tag=_TAG) for rank in there)
            for message in messages:
                message.exception(_left_s(end_s))
        give_up(messages)
    found_s = []
    for rank in there:
        with contextlib.suppress(DlcpError):
            found_s.append(float(endpoint.runtime.peer_statistics(rank)["rtt_s_min"]))
    return statistics.median(found_s) if found_s else None


def _left_s(end_s: float) -> float:
    return max(1e-3, end_s - time.monotonic())
