"""SONiC: what the file replaces of the vendor's, and what the instructions leave alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlcp.switch import Policy, Thresholds, TrafficClass
from dlcp.switch.render import render, sonic

ROOT = Path(__file__).resolve().parents[3]
PORTS = ("Ethernet0", "Ethernet4")
TRIMS = Thresholds(trim_above_bytes=90_000)
MARKS = TrafficClass(4, dscp=(32,), critical=Thresholds(mark_from_bytes=50_000))
TOP = TrafficClass(7, dscp=(56,))
CLASSES = (TrafficClass(2, dscp=(16,), critical=TRIMS, droppable=(TRIMS,)), MARKS, TOP)


def tables(policy: Policy) -> dict[str, dict[str, dict[str, str]]]:
    return json.loads(render(policy, "sonic", PORTS).text)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "policy",
    [Policy(classes=CLASSES), Policy(classes=(MARKS,), shared_bytes=10**7)],
    ids=["one class trims", "shared buffer"],
)
def test_every_queue_has_a_buffer_where_one_has(policy: Policy) -> None:
    rows = tables(policy)["BUFFER_QUEUE"]
    # The vendor's rows may be ranges over several queues; a queue of theirs that is not here would have no buffer left.
    assert sorted(rows) == sorted(f"{port}|{queue}" for port in PORTS for queue in range(8))


def test_queue_that_does_not_trim_ends_with_its_pool() -> None:
    profiles = tables(Policy(classes=CLASSES))["BUFFER_PROFILE"]
    assert profiles["DLCP_Q2"] == {
        "pool": "egress_lossy_pool",
        "size": "0",
        "static_th": "90000",
        "packet_discard_action": "trim",
    }
    assert profiles["DLCP_Q4"]["static_th"] == str(2**32 - 2)
    assert profiles["DLCP_Q4"]["packet_discard_action"] == "drop"


def test_policy_without_buffers_leaves_the_vendors() -> None:
    assert not {"BUFFER_QUEUE", "BUFFER_PROFILE"} & set(tables(Policy(classes=(MARKS,))))


@pytest.mark.parametrize("place", ["docs/switch/operating_systems.md", "the rendered notes"])
def test_instructions_keep_the_buffer_pools(place: str) -> None:
    text = "\n".join(sonic.SYSTEM.install) if place.startswith("the") else (ROOT / place).read_text("utf-8")
    for sentence in text.replace("\n", " ").split(". "):
        assert "config qos clear" not in sentence or "ever type" in sentence or "never `config" in sentence
    assert "EXISTS 'BUFFER_POOL|egress_lossy_pool'" in text
    assert "QUEUE $(grep -om1 BUFFER_QUEUE" in text
