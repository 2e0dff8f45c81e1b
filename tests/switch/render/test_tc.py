"""Linux tc: the lines are read back by the kernel's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.switch import Policy, Port, Thresholds, TrafficClass
from dlcp.switch.render import RenderError, htb, render, tc
from tests.support import render_golden as golden
from tests.support import render_tc
from tests.support.render_policies import policies


def parsed(lines: list[str]) -> tuple[dict[str, render_tc.Queue], list[render_tc.Filter]]:
    queues, filters = render_tc.parse(lines)
    assert list(render_tc.faults(queues, filters)) == []
    return queues, filters


@pytest.mark.parametrize("policy", golden.POLICIES)
@pytest.mark.parametrize("port", golden.PORTS["tc"])
def test_golden_lines_would_be_taken(policy: str, port: str) -> None:
    done = golden.rendered(policy, "tc")
    lines = [line for line in done.text.splitlines() if f"dev {port} " in line and " add " in line]
    if port in golden.source(policy, "tc"):
        assert parsed(lines)


@settings(max_examples=40)
@given(policies("tc"), st.booleans())
def test_any_lines_would_be_taken(policy: Policy, shape: bool) -> None:
    try:
        render(policy, "tc", shape=shape)
    except RenderError:
        return
    for port in policy.ports:
        queues, filters = parsed(tc.commands(policy, port.name, shape))
        expected = {
            (protocol, value << 2, f"dc01:{8 - number}")
            for value, number in policy.class_of_dscp().items()
            for protocol in ("ip", "ipv6")
        }
        assert {(f.protocol, f.byte, f.target) for f in filters} == expected
        assert queues["dc01:"].options["priomap"] == " ".join([str(7 - policy.foreign_class)] * 16)
        for handle, queue in queues.items():
            if "nodrop" in queue.flags:
                assert handle.startswith("dc1"), "only a stage that marks may spare what is not ECN-capable"
        parsed(htb.commands(policy, port))


@given(st.integers(1, 2**30 - 2), st.integers(1, 10**13))
def test_red_follows_the_depth_as_closely_as_it_can(threshold: int, rate_bps: int) -> None:
    policy = Policy(
        classes=(TrafficClass(0, dscp=(0,), droppable=(Thresholds(drop_above_bytes=threshold),)),),
        ports=(Port("eth0", rate_bps),),
    )
    queues, _ = parsed(tc.commands(policy, "eth0", shape=True))
    red = next(queue for queue in queues.values() if queue.kind == "red")
    assert (red.number("min"), red.number("max")) == (threshold, threshold + 1)


def stages(critical: Thresholds, droppable: Thresholds, **more: Any) -> list[tuple[int, int, bool]]:
    """min, max and whether it drops, of the stages of class 7, outermost first."""
    policy = Policy(classes=(TrafficClass(7, dscp=(56,), critical=critical, droppable=(droppable,)),), **more)
    queues, _ = parsed(tc.commands(policy, "eth0", shape=False))
    found, parent = [], "dc01:1"
    while True:
        inner = next(((h, q) for h, q in queues.items() if q.parent == parent and q.kind == "red"), None)
        if inner is None:
            return found
        handle, red = inner
        found.append((red.number("min"), red.number("max"), "nodrop" not in red.flags))
        parent = f"{handle}1"


@pytest.mark.parametrize(
    ("critical", "droppable", "expected"),
    [
        (Thresholds(), Thresholds(), []),
        (Thresholds(), Thresholds(drop_above_bytes=9_000), [(9_000, 9_001, True)]),
        (Thresholds(5_000), Thresholds(), [(5_000, 5_001, False)]),
        (
            Thresholds(5_000),
            Thresholds(drop_above_bytes=9_000),
            [(5_000, 5_001, False), (9_000, 9_001, True)],
        ),
        (
            Thresholds(5_000, 9_000, 0.5),
            Thresholds(drop_above_bytes=9_000),
            [(5_000, 9_000, False), (9_000, 9_001, True)],
        ),
        (Thresholds(9_000), Thresholds(drop_above_bytes=9_000), [(9_000, 9_001, True)]),
        (Thresholds(12_000), Thresholds(drop_above_bytes=9_000), [(9_000, 9_001, True)]),
        (Thresholds(5_000, 12_000), Thresholds(drop_above_bytes=9_000), [(9_000, 9_001, True)]),
        (Thresholds(0), Thresholds(), [(1, 2, False)]),
        (Thresholds(drop_above_bytes=8_000), Thresholds(drop_above_bytes=9_000), []),
        (
            Thresholds(5_000, drop_above_bytes=8_000),
            Thresholds(drop_above_bytes=9_000),
            [(5_000, 5_001, False)],
        ),
    ],
)
def test_stages_of_a_band(
    critical: Thresholds, droppable: Thresholds, expected: list[tuple[int, int, bool]]
) -> None:
    assert stages(critical, droppable) == expected


def test_queue_ends_where_the_buffer_does() -> None:
    policy = Policy(
        classes=(TrafficClass(7, dscp=(56,), droppable=(Thresholds(drop_above_bytes=9_000),)),),
        port_bytes=9_000,
    )
    queues, _ = parsed(tc.commands(policy, "eth0", shape=False))
    assert {q.number("limit") for q in queues.values() if q.kind == "bfifo"} == {9_000}
    assert not [q for q in queues.values() if q.kind == "red"]


def test_rules_find_what_the_kernel_refuses() -> None:
    red = "red limit 9 min 4 max 5 avpkt 4 burst 1 probability 0.9 bandwidth 8bit ecn"
    good = f"qdisc add dev e root handle dc20: {red}"
    for old, new in [
        ("limit 9", "limit 5"),
        ("max 5", "max 4"),
        ("min 4", "min 0"),
        ("burst 1", "burst 9"),
        ("avpkt 4", "avpkt 3"),
        ("0.9", "1.0"),
        (" ecn", ""),
        (" ecn", " ecn harddrop"),
        ("bandwidth 8bit", "bandwidth 800000000bit"),
    ]:
        assert list(render_tc.faults(*render_tc.parse([good]))) == []
        assert list(render_tc.faults(*render_tc.parse([good.replace(old, new)]))) != [], new
