"""Messages between two hosts of a lossy network: right in every mode, whatever the network drops."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dlcp.lab import Lab, Loss, missing

pytestmark = [pytest.mark.needs_root, pytest.mark.skipif((why := missing()) is not None, reason=why or "")]

pytest.importorskip("dlcp._native", reason="the extension module is not built")

PEER = Path(__file__).with_name("transfer_peer.py")
PORT = 7500
MESSAGES = 10
MESSAGE_BYTES = 1_000_000
KEY = "2b7e151628aed2a6abf7158809cf4f3c" * 2


@dataclass
class Transfer:
    """What both ends found."""

    sent: list[dict[str, int]]
    received: list[dict[str, int]]
    paths_down: list[int]
    dropped_packets: int

    def assert_right(self) -> None:
        """What holds in every mode."""
        assert len(self.received) == MESSAGES
        for sent, received in zip(self.sent, self.received, strict=True):
            assert received["wrong_bytes"] == 0
            assert received["accounted_bytes"] == MESSAGE_BYTES
            assert received["abandoned_critical_blocks"] == 0
            assert received["abandoned_bytes"] == sent["abandoned_bytes"]


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output


def transfer(loss: Loss, *, mtu: int = 1500, settings: dict[str, Any] | None = None, **how: Any) -> Transfer:
    """Ten messages from host 0 to host 1."""
    common = {"bytes": MESSAGE_BYTES, "messages": MESSAGES, "settings": settings or {}}
    with Lab(rate_bps=10**9, loss=loss, mtu=mtu) as lab:
        to = lab.addresses[1]
        receiver = lab.start(
            1,
            [sys.executable, PEER, "receive", json.dumps({**common, "bind": to})],
            stdin=subprocess.PIPE,
        )
        assert receiver.stdout is not None
        assert receiver.stdout.readline(), finish(receiver)
        options = {**common, "bind": lab.addresses[0], "to": f"{to}:{PORT}", "how": how}
        sender = lab.start(0, [sys.executable, PEER, "send", json.dumps(options)])
        sender.wait(timeout=60)
        if receiver.poll():
            finish(receiver)  # the sender's error would only be that nobody answers
        sent, received = json.loads(finish(sender)), json.loads(finish(receiver))
        return Transfer(sent["messages"], received, sent["paths_down"], lab.arrivals(1).dropped)


@pytest.mark.parametrize(
    "settings",
    [{}, {"paths": 1}, {"key": KEY}, {"key": KEY, "encrypt": True}, {"segmentation_offload": False}],
    ids=["default", "one path", "authenticated", "encrypted", "no segmentation"],
)
def test_reliable_arrives_whole_at_two_percent_loss(settings: dict[str, Any]) -> None:
    found = transfer(Loss(0.02), settings=settings)
    found.assert_right()
    assert found.dropped_packets > 0
    assert sum(sent["retransmitted_bytes"] for sent in found.sent) > 0
    assert all(received["abandoned_bytes"] == 0 for received in found.received)


def test_reliable_arrives_whole_when_a_quarter_is_lost() -> None:
    found = transfer(Loss(0.25))
    found.assert_right()
    assert all(received["abandoned_bytes"] == 0 for received in found.received)


def test_bounded_stays_within_its_budget() -> None:
    found = transfer(Loss(0.05), delivery="bounded", loss_ratio=0.02)
    found.assert_right()
    abandoned = [received["abandoned_bytes"] for received in found.received]
    assert max(abandoned) <= 0.02 * MESSAGE_BYTES
    assert sum(abandoned) > 0


def test_deadline_waits_for_critical_blocks_only() -> None:
    # The link takes 9 ms for a message, so the deadline comes before all of it has been sent once.
    found = transfer(Loss(0.2), delivery="deadline", loss_ratio=0.01, deadline_s=0.005)
    found.assert_right()
    assert sum(received["abandoned_bytes"] for received in found.received) > 0.01 * MESSAGE_BYTES * MESSAGES


def test_a_bad_path_is_left() -> None:
    found = transfer(Loss(bad_path=2, bad_path_ratio=1.0))
    found.assert_right()
    assert found.paths_down == [2]


def test_large_frames_carry_large_blocks() -> None:
    # A hello that is answered late is followed by smaller ones, and a busy machine answers late.
    found = transfer(Loss(0.02), mtu=9000, settings={"initial_rtt_s": 0.5})
    found.assert_right()
    assert found.sent[0]["block_bytes"] > 8000
