"""Packets that a relay loses: what is repaired, what is abandoned, and what both ends are told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlcp.transport import Endpoint, Settings
from tests.support.endpoints import PATIENCE_S
from tests.support.relay import Header, Relay


def lossy_send(importance: Any, dropped: set[int], **arguments: Any) -> tuple[Any, Any, np.ndarray, int]:
    """Sends 60 blocks of ones through a relay that loses the first copy of some; both outcomes and the buffer."""
    settings = Settings(paths=1, max_datagram_bytes=1064)
    seen: set[int] = set()

    def drops(header: Header, towards_server: bool) -> bool:
        if not towards_server or header["type"] not in (1, 4) or header["block_index"] in seen:
            return False
        seen.add(header["block_index"])
        return header["block_index"] in dropped

    with (
        Endpoint(0, settings=settings) as a,
        Endpoint(1, settings=settings) as b,
        Relay(b.address, drops) as relay,
    ):
        a.connect(1, relay.address, timeout_s=PATIENCE_S)
        block = a.block_bytes(1)
        got = np.full(60 * block, 9, np.uint8)
        future = b.ireceive(0, got)
        sent = a.send(1, np.ones_like(got), importance=importance, timeout_s=PATIENCE_S, **arguments)
        return sent, future.result(PATIENCE_S), got, block


@pytest.mark.loopback("the relay is a socket")
def test_reliable_message_repairs_what_is_lost() -> None:
    sent, received, got, _ = lossy_send(None, {0, 7, 8, 59})
    assert (got == 1).all()
    assert sent.abandoned_bytes == received.abandoned_bytes == 0
    assert sent.retransmitted_bytes > 0


@pytest.mark.loopback("the relay is a socket")
def test_bounded_message_abandons_within_its_budget() -> None:
    dropped = {3, 4, 50}
    sent, received, got, block = lossy_send(None, dropped, delivery="bounded", loss_ratio=0.1)
    # Only what the network dropped. On a host that stalls for long the sender may have repaired some of it.
    missing = set(np.flatnonzero(received.abandoned))
    assert missing <= dropped
    assert (sent.abandoned == received.abandoned).all()
    for outcome in (sent, received):
        assert outcome.abandoned_blocks == len(missing)
        assert outcome.abandoned_bytes == len(missing) * block
        assert outcome.delivered_bytes == (60 - len(missing)) * block
        assert sum(end - start for start, end in outcome.abandoned_ranges().tolist()) == len(missing) * block
    # Abandoned blocks keep what the buffer held.
    assert (got.reshape(60, block) == np.where(received.abandoned, 9, 1)[:, None]).all()


@pytest.mark.loopback("the relay is a socket")
def test_bounded_message_never_abandons_critical_blocks() -> None:
    importance = np.full(60, 10, np.uint8)
    importance[[3, 4]] = 255
    sent, received, got, block = lossy_send(importance, {3, 4, 50}, delivery="bounded", loss_ratio=0.5)
    assert (got.reshape(60, block)[[3, 4]] == 1).all()
    assert set(np.flatnonzero(received.abandoned)) <= {50}
    assert (sent.abandoned == received.abandoned).all()


@pytest.mark.loopback("the relay is a socket")
def test_bounded_message_repairs_what_exceeds_its_budget() -> None:
    _, received, _, block = lossy_send(
        np.arange(60, dtype=np.uint8), set(range(30)), delivery="bounded", loss_ratio=0.1
    )
    assert received.abandoned_bytes <= 0.1 * 60 * block


@pytest.mark.loopback("the relay is a socket")
def test_deadline_message_ends_with_what_is_there() -> None:
    sent, received, _, _ = lossy_send(5, set(range(40)), delivery="deadline", loss_ratio=0.1, deadline_s=1e-4)
    assert received.delivered_bytes + received.abandoned_bytes == received.message_bytes
    assert sent.abandoned_bytes == received.abandoned_bytes
