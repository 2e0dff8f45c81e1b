"""The software switch while it runs: its ports, its control socket, its command, and how it ends."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlcp.switch.policy import Policy, Port, TrafficClass
from dlcp.switch.software import SwitchError, connect
from dlcp.switch.software.control import MAX_CLIENTS, MAX_REQUEST_BYTES
from tests.support.namespaces import missing
from tests.support.switched_hosts import (
    ADDRESSES,
    PATIENCE_S,
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


def until(holds: Callable[[], bool]) -> None:
    """Returns once it holds; an AssertionError, if it does not for long."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
                # One that is longer than the TAP's frames were is not sent on as its beginning.
                at.switch.ip("link set t0 mtu 3000")
                tap.socket.send(back[:12] + b"\x88\xb5" + bytes(2000))
                until(lambda: process.control.status()["ports"]["t0"]["drops"]["oversize"] == 1)
            # Without its TAP the switch is idle, and forwards between the others.
            at.switch.ip("link delete t0")
            before = process.control.status()
            until(lambda: not process.control.status()["ports"]["t0"]["link"])
            time.sleep(0.2)
            after = process.control.status()
            assert after["waits"] - before["waits"] < 1000
            assert after["ports"]["eth0"]["sent_packets"] == 1
            process.stop()
        assert received == frames
        gone = subprocess.run(at.switch.command("ip", "link", "show", "t0"), capture_output=True)
        assert gone.returncode != 0


@pytest.mark.parametrize("arguments", [[], ["--busy-poll"]])
def test_an_interface_that_goes_down_leaves_its_group(arguments: list[str]) -> None:
    policy = Policy(path_choice="random", path_groups={"up": ("eth1w0", "eth1w1")})
    ports = ["eth0", "eth1w0", "eth1w1"]
    with bed(2, ways=(1, 2)) as at, RawSocket(at.hosts[0]) as sender:
        addresses = {"02:00:00:00:00:02": "up"}
        with at.start(policy, ports, addresses=addresses, arguments=arguments) as process:
            at.hosts[1].ip("link set eth1 down")  # the carrier of the switch's end goes with it
            until(lambda: not process.control.status()["ports"]["eth1w1"]["link"])
            before = process.control.status()["groups"]["up"]["members"]["eth1w1"]
            sender.send_at(RATE_BPS, [packet(i) for i in range(100)])
            until(lambda: process.control.status()["ports"]["eth1w0"]["sent_packets"] == 100)
            status = process.stop()
    assert status["groups"]["up"]["members"]["eth1w1"] == before
    assert not status["ports"]["eth1w1"]["link"]


# ---- the command ----


EACH = """
import contextlib, io, json, sys
from dlcp.cli import main
found = []
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        try:
            status = main(["switch", "run", *words])
        except SystemExit as ended:
            status = ended.code
    found.append([status, out.getvalue(), error.getvalue()])
json.dump(found, sys.stdout)
"""


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    folder, control, pcap = tmp_path / "left", tmp_path / "left/control.sock", tmp_path / "left/eth0.pcap"
    folder.mkdir()
    captured = ["--capture", f"eth0={pcap}"]
    cases = [
        ("", ["--ports", "eth0,eth9"], "port eth9: there is no such interface here"),
        ("", ["--ports", "eth0,eth0"], "port 'eth0' is named twice; accepted: each once"),
        ("", ["--ports", "eth0,"], "--ports: ''; accepted: PORT, or PORT=NAME with the policy's name"),
        ("pause_above_bytes = 9", ["--ports", "eth0"], "pause_above_bytes is 9; accepted: none"),
        (
            'path_groups = {up = ["eth7"]}',
            ["--ports", "eth0,eth1"],
            "the policy names port 'eth7' (path_groups.up), which is not among --ports eth0,eth1: add it as "
            "INTERFACE=eth7, or take it out of the policy",
        ),
        (
            'path_groups = {a = ["eth0"], b = ["eth0"]}',
            ["--ports", "eth0"],
            "path_groups.b is 'eth0'; accepted: a port of no other group",
        ),
        (
            '[[port]]\nname = "eth5"\nrate_bps = 1',
            ["--ports", "eth0"],
            "the policy names port 'eth5' (port[0]), which is not among --ports eth0: add it as INTERFACE=eth5",
        ),
        ("", ["--ports", "eth0=up1"], "the policy names no port 'up1'; accepted: none, it names no port"),
        ("foreign_class = 8", ["--ports", "eth0"], "foreign_class is 8; accepted: an integer from 0 to 7"),
        ("", ["--ports", "eth0", "--rate", "fast"], "'fast' is not a rate; accepted: such as 500k"),
        ("", ["--ports", "eth0", "--address", "02:00=eth0"], "MAC address '02:00'; accepted: six bytes"),
        ("", ["--ports", "eth0", "--capture", "eth0=/nowhere/x"], "capture of port eth0: /nowhere/x"),
        ("", ["--ports", "eth0", "--capture", "eth3=x"], "port 'eth3'; accepted: eth0"),
        ("", ["--ports", "tap:t0,lo"], "port lo: accepted: an interface of Ethernet frames"),
        ("", ["--ports", "tap:t0,eth0", "--sample", "1us"], "interval_s is 1e-06; accepted: 0, or"),
        ("", ["--ports", "eth0", "--control", "/nowhere/x", *captured], "control socket /nowhere/x: No such"),
        (
            "",
            ["--ports", "eth0", "--frames", "1048576"],
            "frames is 1048576; accepted: 1 to 476266, of 9018 bytes each",
        ),
    ]
    with bed(2) as at:
        at.switch.ip("link set eth0 mtu 9000")
        commands = []
        for number, (policy, words, _) in enumerate(cases):
            file = tmp_path / f"{number}.toml"
            file.write_text(policy)
            commands.append([str(file), "--control", str(control), *words])
        done = subprocess.run(
            at.switch.command(sys.executable, "-c", EACH),
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        for (status, out, error), (_, words, sentence) in zip(json.loads(done.stdout), cases, strict=True):
            assert (status, out) == (2, ""), (words, error)
            assert error.count("\n") == 1, error
            assert sentence in error
        assert list(folder.iterdir()) == []
        gone = subprocess.run(at.switch.command("ip", "link", "show", "t0"), capture_output=True)
        assert gone.returncode != 0
        details = subprocess.run(
            at.switch.command("ip", "-d", "link", "show", "eth0"), capture_output=True, text=True
        )
        assert "promiscuity 0" in details.stdout


def test_whoever_may_not_open_a_port_is_told_what_would_help(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    command = ["setpriv", "--bounding-set=-net_raw,-net_admin", "--inh-caps=-net_raw,-net_admin"]
    command += [sys.executable, "-m", "dlcp", "switch", "run", str(file), "--ports", "eth0"]
    with bed(1) as at:
        done = subprocess.run(at.switch.command(*command), capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "port eth0: a packet socket: Operation not permitted; needs root" in done.stderr
    assert "unshare -Urnm" in done.stderr


def test_ports_go_by_the_policys_names_and_links_are_told(tmp_path: Path) -> None:
    file, control, errors = tmp_path / "policy.toml", tmp_path / "control.sock", tmp_path / "errors"
    # The names are crossed: renamed twice, they would be as before.
    policy = Policy(
        path_groups={"up": ("eth1", "up2")},
        ports=(Port("eth1", RATE_BPS), Port("up2", 2 * RATE_BPS), Port("eth0", 3 * RATE_BPS)),
    )
    policy.save(file)
    words = [sys.executable, "-m", "dlcp", "switch", "run", str(file), "--control", str(control)]
    words += ["--ports", "eth0=eth1,eth1=up2,eth2=eth0"]
    with bed(3) as at:
        at.switch.ip("link set eth1 down")
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                at.switch.command(*words), stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(
                "ready: eth0, eth1 (down), eth2: ip link set eth1 up, and the other end, control"
            )
            with connect(control) as running:
                for other in (policy, policy):
                    status = running.status()
                    assert list(status["groups"]["up"]["members"]) == ["eth0", "eth1"]
                    rates = [status["ports"][name]["rate_bps"] for name in ("eth0", "eth1", "eth2")]
                    assert rates == [RATE_BPS, 2 * RATE_BPS, 3 * RATE_BPS]
                    running.set_policy(other)
                at.switch.ip("link set eth1 up")
                at.switch.ip("link delete eth2")
                until(lambda: errors.read_text().count("\n") == 2)
                running.stop()
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.wait()
    assert errors.read_text().splitlines() == [
        "dlcp switch: port eth1 is up",
        "dlcp switch: port eth2 is down or away",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_with_a_table(tmp_path: Path, number: int) -> None:
    file, control = tmp_path / "policy.toml", tmp_path / "control.sock"
    file.write_text('name = "x"\n[[class]]\nnumber = 1\ndscp = [8]\n')
    words = [sys.executable, "-m", "dlcp", "switch", "run", str(file), "--ports", "eth0,eth1"]
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
            out, _ = process.communicate(timeout=PATIENCE_S)
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
                at.start(Policy(), ["tap:t0"], control=control)
            with pytest.raises(SwitchError, match="port eth0: another switch forwards by it"):
                at.start(Policy(), ["eth0"])
            for line in (
                b"{",
                b"[]",
                b'{"do": "fly"}',
                b'{"do": "set_faults"}',
                b'{"do": "status", "x": 1}',
                b'{"do": []}',
                b'{"do": "set_policy", "policy": 5}',
                b'{"do": "samples", "since": -1}',
                b'{"do": "sample", "interval_s": 1e999}',
                b'{"do": "set_link", "port": "eth0", "up": "no"}',
                b'{"do": "capture", "port": "eth0", "path": ""}',
                b"[" * 100_000,
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
            _check_bounds(control)
            assert process.control.status()["policy"] == ""
        # A socket that nobody listens at is no obstacle.
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(control))
        stale.close()
        with at.start(Policy(ports=(Port("eth0", 10**8),)), ["eth0"], control=control) as process:
            assert process.control.status()["ports"]["eth0"]["rate_bps"] == 10**8
        # One that is no switch's is left alone.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.bind(str(control))
            with pytest.raises(SwitchError, match="something else is there"):
                at.start(Policy(), ["eth0"], control=control)
            assert control.is_socket()


def _check_bounds(control: Path) -> None:
    """Of the length of a request, and of the number of clients."""
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(control))
        raw.settimeout(PATIENCE_S)
        raw.sendall(b" " * (MAX_REQUEST_BYTES + 1))
        with raw.makefile() as file:
            assert "a request of more than" in json.loads(file.readline())["error"]
            assert file.readline() == ""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(MAX_CLIENTS + 1)]
        for client in clients:
            client.connect(str(control))
            client.settimeout(PATIENCE_S)
        assert b"others command the switch" in clients[-1].recv(1000)
        assert clients[-1].recv(1) == b""

    def answered() -> bool:
        with contextlib.suppress(SwitchError), connect(control) as one:
            return bool(one.status())
        return False

    until(answered)
