"""What the software switch makes of a policy and of its command line, before anything is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dlcp.arguments import Parser
from dlcp.errors import ArgumentError
from dlcp.switch.policy import Policy, PolicyError, Port, Thresholds, TrafficClass
from dlcp.switch.software import SoftwareSwitch, SwitchError, SwitchOptions, connect, start
from dlcp.switch.software.command import add_parser
from dlcp.switch.software.errors import PortNameError
from dlcp.switch.software.native_policy import (
    check,
    format_mac,
    parse_mac,
    port_rate,
    to_native,
)
from dlcp.switch.software.table import table

PORTS = ("a", "b", "c")


def test_policy_that_it_cannot_carry_out_is_refused() -> None:
    for policy, sentence in (
        (Policy(pause_above_bytes=9), "pause_above_bytes is 9; accepted: none"),
        (
            Policy(path_groups={"up": ("a", "x")}),
            r"the policy names port 'x' \(path_groups.up\), which is not among --ports a,b,c: add it as INTERFACE=x",
        ),
        (Policy(ports=(Port("x", 1),)), r"port 'x' \(port\[0\]\), which is not among --ports a,b,c"),
    ):
        with pytest.raises((PolicyError, PortNameError), match=sentence):
            check(policy, PORTS)
        with pytest.raises((PolicyError, PortNameError)):
            to_native(policy, PORTS, 0, {})
    with pytest.raises(PortNameError, match=r"lies behind 'x'; accepted: a, b, c, up"):
        to_native(Policy(path_groups={"up": ("a",)}), PORTS, 0, {"02:00:00:00:00:01": "x"})


def test_policy_as_a_whole_is_taken() -> None:
    limit = Thresholds(1000, 2000, 0.5, 3000, 4000)
    levels = tuple(Thresholds(drop_above_bytes=1000 * (i + 1)) for i in range(8))
    policy = Policy(
        "whole",
        (TrafficClass(1, dscp=(8,), critical=limit, droppable=levels), TrafficClass(7, dscp=(56, 57))),
        "adaptive",
        {"up": ("b", "c")},
        (Port("a", 10**9, (TrafficClass(1, critical=limit),)), Port("b", 5), Port("c", 6)),
        foreign_class=3,
        shared_bytes=10**6,
        shared_alpha_log2=-2,
        trimmed_run_packets=10,
    )
    to_native(policy, PORTS, 7, {"02:00:00:00:00:01": "up"})
    assert [port_rate(policy, port, 7) for port in (*PORTS, "d")] == [10**9, 5, 6, 7]
    assert policy.resolved().trimmed_dscp == 56
    assert Policy(trimmed_class=6).resolved().trimmed_dscp is None


def test_mac_addresses_are_read_as_written() -> None:
    assert format_mac(parse_mac("02:00:00:00:AB:0f")) == "02:00:00:00:ab:0f"
    for text in ("", "02:00:00:00:00", "02:00:00:00:00:100", "02-00-00-00-00-01", "x:00:00:00:00:01"):
        with pytest.raises(PortNameError, match="accepted: six bytes"):
            parse_mac(text)


def test_options_out_of_range_are_refused_by_name() -> None:
    for options, name in (
        (SwitchOptions(rate_bps=-1), "rate_bps"),
        (SwitchOptions(salt=2**32), "salt"),
        (SwitchOptions(frames=0), "frames"),
        (SwitchOptions(ring_frames=1), "ring_frames"),
        (SwitchOptions(ageing_s=0), "ageing_s"),
    ):
        with pytest.raises(ArgumentError, match=f"{name} is "):
            SoftwareSwitch(Policy(), ["lo"], options)
    with pytest.raises(PortNameError, match="0 ports"):
        SoftwareSwitch(Policy(), [])


def test_words_of_the_command() -> None:
    parser = Parser(prog="dlcp switch")
    add_parser(parser.add_subparsers())
    words = "p.toml --ports a,b --rate 2.5G --sample 10ms --duration 3 --capture a=x=y --address 02:00:00:00:00:01=a"
    options = parser.parse_args(["run", *words.split()])
    assert options.rate == 2_500_000_000
    assert options.sample == pytest.approx(0.01)
    assert options.duration == 3
    assert options.capture == [("a", "x=y")]
    assert options.address == [("02:00:00:00:00:01", "a")]


def test_table_shows_what_passed() -> None:
    empty = dict.fromkeys(("sent", "marked", "trimmed", "dropped", "max_waiting_bytes"), 0)
    status = {
        "ports": {
            "a": {
                "classes": [empty, {**empty, "sent": 5, "dropped": 2}],
                "drops": {"malformed": 0, "oversize": 3},
            },
            "b": {"classes": [empty], "drops": {"malformed": 0}},
        },
        "groups": {"up": {"members": {"a": 4, "b": 1}}},
        "addresses": {"known": 2, "moved": 0},
    }
    lines = table(status).splitlines()
    assert lines[1].split() == ["a", "1", "5", "0", "0", "2", "0"]
    assert lines[2].strip() == "not forwarded: oversize 3"
    assert lines[3].split() == ["b", "-", "0"]
    assert lines[4] == "group up: a 4, b 1"


def test_a_switch_that_does_not_start_or_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(SwitchError, match="port 'a' is named twice"):
        start(Policy(), ["a", "a"])
    with pytest.raises(SwitchError, match="no switch answers"):
        connect(tmp_path / "none.sock", timeout_s=0.01)
    missing = tmp_path / "none.toml"
    command = [sys.executable, "-m", "dlcp", "switch", "run", str(missing), "--ports", "a"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"dlcp switch: {missing}: No such file or directory\n"


UNSHARED = """
set -e
ip link set lo up
ip link add eth0 type veth peer name host0
ip link add eth1 type veth peer name host1
for each in eth0 eth1 host0 host1; do ip link set $each addrgenmode none; ip link set $each up; done
exec "$@"
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-Urnm", "true"], capture_output=True).returncode != 0,
    reason="needs namespaces of one's own: unshare -Urnm",
)
def test_it_runs_in_a_network_of_ones_own(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    Policy("own").save(policy)
    words = [
        sys.executable,
        "-m",
        "dlcp",
        "switch",
        "run",
        str(policy),
        "--ports",
        "eth0,eth1",
        "--duration",
        "50ms",
    ]
    done = subprocess.run(
        ["unshare", "-Urnm", "sh", "-c", UNSHARED, "sh", *words], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ready: eth0, eth1\n")
