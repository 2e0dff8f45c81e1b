"""The network lab itself: it loses what it is told to, keeps the rate, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.lab import Lab, LabError, Link, Loss, missing, tcp_fill
from dlcp.lab.namespaces import INTERFACE, each
from dlcp.lab.netlab import SWITCH

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif((reason := missing()) is not None, reason=reason or ""),
]

# Sends as many datagrams as asked, the first bytes those of a dlcp header on path 0, 1, 0, 1, …
SEND = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[2])):
    out.sendto(bytes([2, 1, 0, 0, 0, 0, 0, i % 2]) + bytes(92), (sys.argv[1], 9))
"""


def own_namespaces() -> set[str]:
    """Names of this process's labs; others may have some too."""
    return {name for name, _, owner in each() if owner == os.getpid()}


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def send(lab: Lab, packets: int, source: int = 0, target: int = 1) -> None:
    process = lab.start(source, [sys.executable, "-c", SEND, lab.addresses[target], str(packets)])
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors


def test_loss_is_what_was_asked(lab: Lab) -> None:
    lab.set_loss(Loss(0.1))
    send(lab, 10_000)
    seen = lab.arrivals(1)
    assert seen.packets >= 10_000
    assert 0.08 < seen.loss_ratio < 0.12  # six standard deviations


def test_loss_of_one_path_spares_the_others(lab: Lab) -> None:
    lab.set_loss(Loss(bad_path=1, bad_path_ratio=1.0))
    send(lab, 1_000)
    assert lab.arrivals(1).dropped == 500


def test_loss_can_be_taken_back(lab: Lab) -> None:
    lab.set_loss(Loss(0.5))
    lab.set_loss(Loss())
    send(lab, 100)
    assert lab.arrivals(1).dropped == 0


def test_hosts_on_a_hub_reach_each_other() -> None:
    with Lab(hosts=4, rate_bps=10**8) as lab:
        for other in lab.addresses[1:]:
            process = lab.start(0, ["ping", "-c", "1", "-W", "2", other])
            assert process.wait(timeout=10) == 0
        assert lab.queue_drops() == 0


def reaches(lab: Lab, host: int, other: int) -> bool:
    # Asked anew: a question that nobody answered while a cable was out is given up in the middle of this ping.
    subprocess.run(["ip", "-n", lab.namespace(host), "neigh", "flush", "all"], check=True)
    process = lab.start(host, ["ping", "-c", "1", "-W", "2", lab.addresses[other]])
    return process.wait(timeout=10) == 0


def test_a_cable_can_be_pulled_and_plugged_in_again() -> None:
    with Lab(hosts=3) as lab:
        lab.set_link(1, up=False)
        assert not reaches(lab, 0, 1)
        assert reaches(lab, 0, 2)
        lab.set_link(1, up=True)
        assert reaches(lab, 0, 1)


def test_a_namespace_has_a_name_for_other_tools() -> None:
    with Lab() as lab:
        assert {lab.namespace(host) for host in range(2)} == own_namespaces()


def test_a_bad_link_loses_both_ways_and_the_others_lose_nothing() -> None:
    with Lab(hosts=3, links={1: Link(loss=Loss(0.2))}) as lab:
        for source, target in ((0, 1), (1, 0), (0, 2)):
            lab.set_loss(Loss())  # counts from zero, and leaves the bad link as it is
            send(lab, 5_000, source, target)
            seen = lab.arrivals(1)
            if 1 in (source, target):
                assert seen.packets >= 5_000
                assert 0.16 < seen.loss_ratio < 0.24  # seven standard deviations
            else:
                # Not this traffic: what is left of the direction before, on a busy machine.
                assert seen.packets < 50
            assert lab.arrivals(0).packets == lab.arrivals(2).packets == 0


def rate_bps(lab: Lab, namespace: str, interface: str) -> int:
    """What the kernel shapes an interface to."""
    words = ["tc", "-n", namespace, "-j", "qdisc", "show", "dev", interface]
    (found,) = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return int(8 * found["options"]["rate"])


def test_a_slow_link_is_slow_in_both_directions_and_the_others_are_not() -> None:
    with Lab(hosts=3, rate_bps=2 * 10**8, links={2: Link(rate_bps=10**8)}) as lab:
        for host, expected in ((0, 2 * 10**8), (1, 2 * 10**8), (2, 10**8)):
            assert rate_bps(lab, lab.namespace(host), INTERFACE) == expected
            assert rate_bps(lab, lab.namespace(SWITCH), f"port{host}") == expected


def start_and_fail() -> None:
    with Lab(hosts=3) as lab:
        lab.start(0, ["sleep", "60"])
        raise KeyError(lab._started[0].pid)


def test_leaving_removes_namespaces_and_processes() -> None:
    before = own_namespaces()
    with pytest.raises(KeyError) as raised:
        start_and_fail()
    assert not Path(f"/proc/{raised.value.args[0]}").exists()
    assert own_namespaces() == before


def test_a_lab_that_cannot_be_built_leaves_nothing() -> None:
    before = own_namespaces()
    with pytest.raises(LabError, match="congctl"), Lab(congestion="no_such_algorithm"):
        pass
    assert own_namespaces() == before


def has_netem() -> bool:
    try:
        with Lab(delay_s=0.001):
            return True
    except LabError:
        return False


def test_delay_is_what_was_asked_or_refused_with_a_reason() -> None:
    if not has_netem():
        before = own_namespaces()
        with (
            pytest.raises(LabError, match="no netem .*leave the delay out"),
            Lab(hosts=3, rate_bps=10**8, delay_s=0.001),
        ):
            pass
        assert own_namespaces() == before
        pytest.skip("this kernel has no netem; that a delay is refused was tested")
    with Lab(rate_bps=10**8, delay_s=0.02) as lab:
        ping = lab.start(0, ["ping", "-c", "3", "-i", "0.2", lab.addresses[1]])
        output, _ = ping.communicate(timeout=100)
        times_ms = [float(word) for word in re.findall(r"time=([0-9.]+)", output)]
        assert min(times_ms) >= 40


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="hosts is 1"):
        Lab(hosts=1)
    with pytest.raises(ValueError, match="delay_s is -1"):
        Lab(delay_s=-1)
    with pytest.raises(ValueError, match="ratio is 2"):
        Loss(2)
    with pytest.raises(ValueError, match="rate_bps is 0"):
        Link(rate_bps=0)
    with pytest.raises(ValueError, match="hosts is 2: they share one link"):
        Lab(links={1: Link(rate_bps=10**8)})
    with pytest.raises(ValueError, match="links has host 3; accepted: 0 to 2"):
        Lab(hosts=3, links={3: Link(rate_bps=10**8)})
    with pytest.raises(ValueError, match="offload"):
        Lab(hosts=3, links={1: Link(loss=Loss(0.1))}, offload=True)
    with pytest.raises(ValueError, match="offload"):
        Lab(loss=Loss(0.1), offload=True)
    with Lab() as lab, pytest.raises(ValueError, match="hosts is 2"):
        lab.set_link(0, up=False)


def test_one_tcp_stream_is_measured_against_the_links_rate() -> None:
    with Lab(rate_bps=5 * 10**7) as lab:
        fill = tcp_fill.measure(lab)
    assert fill.congestion == "cubic"  # whatever the host defaults to
    assert 0 < fill.share < 1.05
