"""The software switch while it runs: its ports, its control socket, its command, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlcp.switch.policy import Policy, Port, TrafficClass
from dlcp.switch.software import SwitchError, connect
from tests.support.namespaces import missing
from tests.support.switched_hosts import (
    ADDRESSES,
    Bed,
    Collector,
    RawSocket,
    bed,
    packet,
    read_pcap,
)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif((why := missing()) is not None, reason=why or ""),
]

RATE_BPS = 50_000_000


def test_a_port_is_captured_faults_are_made_and_depths_sampled(tmp_path: Path) -> None:
    policy = Policy(classes=(TrafficClass(1, dscp=(8,)),))
    frames = [packet(i, dscp=8) for i in range(1_000)]
    capture = tmp_path / "eth1.pcap"
    with bed(2) as at, RawSocket(at.hosts[0]) as sender, RawSocket(at.hosts[1]) as receiver:
        control = tmp_path / "control.sock"
        with at.start(
            policy, ["eth0", "eth1"], rate_bps=RATE_BPS, addresses=ADDRESSES, control=control
        ) as process:
            with connect(control) as second, Collector([receiver]) as collector:
                second.set_faults("eth1", loss_ratio=0.2, seed=3)
                second.capture("eth1", capture)
                second.sample(0.01)
                sender.send_at(2 * RATE_BPS, frames)
                (received,) = collector.stop()
                second.capture("eth1", None)
                samples = [sample for sample in second.samples() if sample["port"] == "eth1"]
                lost = second.status()["ports"]["eth1"]["drops"]["fault_out"]
                with pytest.raises(SwitchError, match=r"port 'eth9'; accepted: eth0, eth1"):
                    second.set_faults("eth9")
                with pytest.raises(SwitchError, match="loss_ratio is 2"):
                    second.set_faults("eth1", loss_ratio=2)
                assert second.macs() == ADDRESSES
            status = process.stop()
        assert not control.exists()
        with pytest.raises(SwitchError, match="no switch answers"):
            connect(control, timeout_s=0.05)
    assert lost + len(received) == len(frames)
    assert 120 < lost < 280
    assert status["ports"]["eth1"]["faults"]["out"]["loss_ratio"] == 0.2
    assert read_pcap(capture) == received
    depths = [sample["waiting_bytes"][1] for sample in samples]
    assert max(depths) > 50_000
    assert depths[-1] == 0
    assert samples[-1]["sent"][1] == len(received)
    assert [sample["time_s"] for sample in samples] == sorted(sample["time_s"] for sample in samples)


def test_a_tap_port_is_made_and_goes_with_the_switch() -> None:
    policy = Policy(classes=(TrafficClass(1, dscp=(8,)),))
    frames = [packet(i, dscp=8) for i in range(200)]
    with bed(1) as at, RawSocket(at.hosts[0]) as sender:
        with at.start(policy, ["eth0", "tap:t0"]) as process:
            with RawSocket(at.switch, "t0") as tap, Collector([tap]) as collector:
                sender.send_at(RATE_BPS, frames)
                (received,) = collector.stop()
                back = packet(7, source=1, destination=0, dscp=8)
                with Collector([sender]) as other:
                    tap.socket.send(back)
                    assert other.stop() == [[back]]
            process.stop()
        assert received == frames
        gone = subprocess.run(at.switch.command("ip", "link", "show", "t0"), capture_output=True)
        assert gone.returncode != 0


def test_an_interface_that_goes_down_leaves_its_group() -> None:
    policy = Policy(path_choice="random", path_groups={"up": ("eth1w0", "eth1w1")})
    ports = ["eth0", "eth1w0", "eth1w1"]
    with bed(2, ways=(1, 2)) as at, RawSocket(at.hosts[0]) as sender:
        addresses = {"02:00:00:00:00:02": "up"}
        with at.start(policy, ports, addresses=addresses) as process:
            at.hosts[1].ip("link set eth1 down")  # the carrier of the switch's end goes with it
            deadline = time.monotonic() + 5
            while process.control.status()["ports"]["eth1w1"]["link"]:
                assert time.monotonic() < deadline
            before = process.control.status()["groups"]["up"]["members"]["eth1w1"]
            sender.send_at(RATE_BPS, [packet(i) for i in range(100)])
            deadline = time.monotonic() + 5
            while process.control.status()["ports"]["eth1w0"]["sent_packets"] < 100:
                assert time.monotonic() < deadline
            status = process.stop()
    assert status["groups"]["up"]["members"]["eth1w1"] == before
    assert not status["ports"]["eth1w1"]["link"]


# ---- the command ----


def run_command(
    at: Bed, tmp_path: Path, policy: str, *words: str, user: bool = False
) -> tuple[int, str, str]:
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    command = [sys.executable, "-m", "dlcp.switch.software", str(file), *words]
    if user:
        command = [
            "setpriv",
            "--bounding-set=-net_raw,-net_admin",
            "--inh-caps=-net_raw,-net_admin",
            *command,
        ]
    done = subprocess.run(at.switch.command(*command), capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    control = tmp_path / "control.sock"
    cases = [
        ("", ["--ports", "eth0,eth9"], "port eth9: there is no such interface here"),
        ("", ["--ports", "eth0,eth0"], "port 'eth0' is named twice; accepted: each once"),
        ("", ["--ports", "eth0,"], "port ''; accepted: the name of an interface, or tap:NAME"),
        ("pause_above_bytes = 9", ["--ports", "eth0"], "pause_above_bytes is 9; accepted: none"),
        (
            'path_groups = {up = ["eth7"]}',
            ["--ports", "eth0,eth1"],
            "path_groups.up names port 'eth7'; accepted: eth0, eth1",
        ),
        (
            'path_groups = {a = ["eth0"], b = ["eth0"]}',
            ["--ports", "eth0"],
            "path_groups.b is 'eth0'; accepted: a port of no other group",
        ),
        (
            '[[port]]\nname = "eth5"\nrate_bps = 1',
            ["--ports", "eth0"],
            "port 'eth5' of the policy; accepted: eth0",
        ),
        ("foreign_class = 8", ["--ports", "eth0"], "foreign_class is 8; accepted: an integer from 0 to 7"),
        ("", ["--ports", "eth0", "--rate", "fast"], "'fast'; accepted: bits per second"),
        ("", ["--ports", "eth0", "--address", "02:00=eth0"], "MAC address '02:00'; accepted: six bytes"),
        ("", ["--ports", "eth0", "--capture", "eth0=/nowhere/x"], "capture of port eth0: /nowhere/x"),
        ("", ["--ports", "eth0", "--capture", "eth3=x"], "port 'eth3'; accepted: eth0"),
    ]
    with bed(2) as at:
        for policy, words, sentence in cases:
            status, out, error = run_command(at, tmp_path, policy, *words, "--control", str(control))
            assert (status, out) == (2, ""), (words, error)
            assert error.count("\n") == 1, error
            assert sentence in error
            assert not control.exists()
        status, _, error = run_command(at, tmp_path, "", "--ports", "eth0", user=True)
        assert status == 2
        assert "port eth0: a packet socket: Operation not permitted; needs root" in error
        assert "unshare -Urnm" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_with_a_table(tmp_path: Path, number: int) -> None:
    file, control = tmp_path / "policy.toml", tmp_path / "control.sock"
    file.write_text('name = "x"\n[[class]]\nnumber = 1\ndscp = [8]\n')
    words = [sys.executable, "-m", "dlcp.switch.software", str(file), "--ports", "eth0,eth1"]
    with bed(2) as at:
        process = subprocess.Popen(
            at.switch.command(*words, "--control", str(control)), stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready: eth0, eth1")
            with RawSocket(at.hosts[0]) as sender, connect(control) as running:
                sender.send_at(RATE_BPS, [packet(i, dscp=8) for i in range(50)])
                while running.status()["ports"]["eth1"]["sent_packets"] < 50:
                    pass
            process.send_signal(number)
            out, _ = process.communicate(timeout=10)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert not control.exists()
    (row,) = [line for line in out.splitlines() if line.startswith("eth1")]
    assert row.split()[:3] == ["eth1", "1", "50"]


def test_the_control_socket_answers_nonsense_and_serves_on(tmp_path: Path) -> None:
    with bed(1) as at:
        control = tmp_path / "control.sock"
        with at.start(Policy(), ["eth0"], control=control) as process:
            assert control.stat().st_mode & 0o077 == 0
            with pytest.raises(SwitchError, match="another switch listens there"):
                at.start(Policy(), ["eth0"], control=control)
            for line in (
                b"{",
                b"[]",
                b'{"do": "fly"}',
                b'{"do": "set_faults"}',
                b'{"do": "status", "x": 1}',
                b"\xff",
            ):
                with socket.socket(socket.AF_UNIX) as raw:
                    raw.connect(str(control))
                    raw.sendall(line + b"\n")
                    answer = json.loads(raw.makefile().readline())
                assert not answer["ok"], line
            with pytest.raises(SwitchError, match="pause_above_bytes"):
                process.control.set_policy(Policy(pause_above_bytes=5))
            assert process.control.status()["policy"] == ""
        # A socket that nobody listens at is no obstacle.
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(control))
        stale.close()
        with at.start(Policy(ports=(Port("eth0", 10**8),)), ["eth0"], control=control) as process:
            assert process.control.status()["ports"]["eth0"]["rate_bps"] == 10**8
