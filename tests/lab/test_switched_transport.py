"""dlcp through switches that are offered 1.3 times what a port carries: nothing critical is lost, all bits agree.

Congestion control alone would not let it come to that, so a sender that listens to nobody loads the same class.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.lab.counts import PortCount
from dlcp.lab.fabric import Fabric
from dlcp.lab.policies import usual
from dlcp.lab.switched_lab import SwitchedLab, missing
from dlcp.lab.traffic import PacketStream
from tests.lab.switched import begin

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif((reason := missing()) is not None, reason=reason or ""),
]

pytest.importorskip("dlcp._native", reason="the extension module is not built")

PEER = Path(__file__).with_name("transfer_peer.py")
TRAFFIC = [sys.executable, "-m", "dlcp.lab.traffic"]
RATE_BPS = 40_000_000
OVERLOAD = 1.3
# Of each of two such senders: they alone overload the port, so nothing that dlcp holds back would make room.
DEAF_SHARE = OVERLOAD / 2
BUDGET = 0.2
# Of ranks that start, on a machine that may have other work.
PATIENCE_S = 250.0
# Of the class that dlcp's data travels in, and of little importance: what is more important than this gets through.
DEAF = PacketStream(dscp=0, importance=40)


@pytest.fixture
def bed() -> Iterator[SwitchedLab]:
    with SwitchedLab(
        Fabric(leaves=1, spines=0, hosts_per_leaf=4, host_rate_bps=RATE_BPS), policy=usual(RATE_BPS)
    ) as made:
        yield made


def load(bed: SwitchedLab, source: int, target: int, share: float, seconds: float) -> subprocess.Popen[str]:
    """Packets at a share of the link's rate, whatever becomes of them; nobody takes them in."""
    words = ["send", bed.addresses[target], "--rate", f"{share * RATE_BPS / 1e6:.2f}M", "--seconds", seconds]
    return bed.start(source, [*TRAFFIC, *words, "--stream", DEAF, "--wait"], stdin=subprocess.PIPE)


def lost_between(before: PortCount, after: PortCount) -> tuple[int, int]:
    """Critical packets that a port dropped, and droppable ones that it dropped, with all that it cut to headers."""
    assert before.critical_dropped is not None
    assert before.droppable_dropped is not None
    assert after.critical_dropped is not None
    assert after.droppable_dropped is not None
    return (
        after.critical_dropped - before.critical_dropped,
        after.droppable_dropped - before.droppable_dropped + _trimmed(after) - _trimmed(before),
    )


def _trimmed(port: PortCount) -> int:
    return sum(one.trimmed for one in port.classes)


def test_bounded_messages_lose_nothing_critical_under_overload(bed: SwitchedLab) -> None:
    # dlcp is told that it has a fifth of the line to itself, so that it does not slow down.
    settings = {"congestion": "line_rate", "line_rate_bps": RATE_BPS // 5}
    common = {"bytes": 400_000, "messages": 3, "settings": settings}
    before = bed.counts()["l0"]["h2"]
    receiver = bed.start(
        2,
        [sys.executable, PEER, "receive", json.dumps({**common, "bind": bed.addresses[2]})],
        stdin=subprocess.PIPE,
    )
    assert receiver.stdout is not None
    assert receiver.stdout.readline(), finish(receiver)
    deaf = [load(bed, source, 2, DEAF_SHARE, 60.0) for source in (1, 3)]
    begin(deaf)
    how = {"delivery": "bounded", "loss_ratio": BUDGET}
    options = {**common, "bind": bed.addresses[0], "to": f"{bed.addresses[2]}:7500", "how": how}
    sender = bed.start(0, [sys.executable, PEER, "send", json.dumps(options)])
    sent = json.loads(finish(sender))["messages"]
    for one in deaf:
        one.terminate()
    received = json.loads(finish(receiver))
    offered_bps = sum(json.loads(finish(one))["rate_bps"] for one in deaf)
    after = bed.counts()["l0"]["h2"]

    assert offered_bps > 0.93 * 2 * DEAF_SHARE * RATE_BPS, "no overload was made"
    assert len(received) == common["messages"]
    for one, told in zip(received, sent, strict=True):
        assert one["wrong_bytes"] == 0
        assert one["abandoned_critical_blocks"] == 0
        assert one["abandoned_bytes"] == told["abandoned_bytes"] <= BUDGET * common["bytes"]
        assert one["accounted_bytes"] == common["bytes"]
    critical, droppable = lost_between(before, after)
    assert critical == 0, after
    assert droppable > 0, after
    assert sum(one["abandoned_bytes"] for one in received) > 0, "nothing was given up, so nothing was shown"


def test_bounded_all_reduce_ends_with_the_same_bits_on_all_ranks(bed: SwitchedLab) -> None:
    pytest.importorskip("torch")
    from bench.collectives.world import Backend, Place, Ranks
    from bench.gradient_lab import train
    from tests.torch import ranks as torch_ranks

    torch_ranks.start_server()
    before = bed.counts()["l0"]
    # All ranks send to rank 0 what it adds; the load fills three quarters of its port besides. Windows might settle
    # before the queue is full, so each rank is told that it has half of the line to itself: nearly twice what the port
    # carries arrives.
    unyielding = {"DLCP_SHM": "0", "DLCP_CONGESTION": "line_rate", "DLCP_LINE_RATE_BPS": str(RATE_BPS // 2)}
    begin([load(bed, 3, 0, 0.75, PATIENCE_S)])
    with Ranks() as ranks:
        place = Place.of_lab(bed, bed.hosts)
        backend = Backend("dlcp that yields to nobody", "dlcp", unyielding)
        found = ranks.run(train, place, backend, 2, {"loss_budget": BUDGET}, timeout_s=PATIENCE_S)
    after = bed.counts()["l0"]
    assert len({rank.digest for rank in found}) == 1
    for rank in found:
        assert rank.abandoned is not None
        assert rank.abandoned.abandoned_bytes <= BUDGET * rank.abandoned.sent_bytes
    for port in after:
        critical, _ = lost_between(before[port], after[port])
        assert critical == 0, after[port]
    assert lost_between(before["h0"], after["h0"])[1] > 0, after["h0"]


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output
