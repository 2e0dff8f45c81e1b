"""The ping command: what it prints, what it refuses, and the talk between its two ends."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dlcp import errors
from dlcp.transport import Endpoint, ping
from dlcp.transport.ping_report import PingSample, figures, report
from tests.support.relay import Header, Relay

# Ends what would hang.
PATIENCE_S = 60.0
COMMAND = [sys.executable, "-P", "-m", "dlcp.transport.ping"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_demo_prints_a_report() -> None:
    result = run("--demo", "--size", "64K", "--count", "40", "--class", "0,6", "--paths", "3")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert re.match(
        r"dlcp ping 127.0.0.1:\d+, messages of 65536 bytes, 4 at once, reliable, authenticated",
        " ".join(lines[:2]),
    )
    assert re.match(r"messages +40 in ", lines[2])
    for word in ("goodput", "latency        p50", "lost", "retransmitted", "abandoned      0 B"):
        assert sum(line.startswith(word) for line in lines) == 1
    classes = lines[lines.index("") + 2 :][:2]
    assert [line.split()[:2] for line in classes] == [["0", "20"], ["6", "20"]]
    paths = [line.split()[0] for line in lines if line.endswith(" up")]
    assert paths == ["0", "1", "2"]


def test_json_has_the_numbers_of_the_report() -> None:
    result = run("--demo", "--size", "64K", "--count", "40", "--class", "0,6", "--paths", "3", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert (found["ended"], found["messages"], found["message_bytes"]) == ("done", 40, 40 << 16)
    assert found["plan"]["size_bytes"] == 1 << 16
    assert found["goodput_bps"] > 0
    assert 0 < found["latency_s"]["p50"] <= found["latency_s"]["max"]
    assert [(one["class"], one["messages"]) for one in found["classes"]] == [(0, 20), (6, 20)]
    assert [one["path"] for one in found["paths"]] == [0, 1, 2]


def test_a_listener_has_no_json() -> None:
    result = run("--listen", "--json")
    assert result.returncode == 2
    assert "--json is of what the client measured; leave it out with --listen" in result.stderr


def test_demo_bounded_and_encrypted() -> None:
    result = run(
        "--demo", "--size", "10K", "--count", "9", "--delivery", "bounded", "--loss-ratio", "0.1", "--encrypt"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "bounded, loss ratio 0.1, encrypted" in result.stdout


def test_listener_serves_several_clients_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(bytes(range(32)))
    with subprocess.Popen(
        [*COMMAND, "--listen", "--key-file", str(key)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as listener:
        assert listener.stdout is not None
        address = listener.stdout.readline().removeprefix("listening on ").strip()
        for _ in range(2):
            result = run(address, "--key-file", str(key), "--size", "1000", "--count", "5")
            assert (result.returncode, result.stderr) == (0, "")
            assert "messages       5 in" in result.stdout
            assert (
                '{"messages": 5, "message_bytes": 5000, "abandoned_bytes": 0, "held_packets": 0}'
                in listener.stdout.readline()
            )
        listener.send_signal(signal.SIGINT)
        assert listener.wait(PATIENCE_S) == 0
        assert listener.stderr is not None
        assert listener.stderr.read() == ""


def test_demo_takes_no_port_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("DLCP_PORT", str(taken.getsockname()[1]))
        result = run("--demo", "--size", "1K", "--count", "5")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_lost_listener_leaves_a_report_and_an_error(end: signal.Signals) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    data_packets = itertools.count(1)
    measured = threading.Event()

    def look(header: Header, towards_server: bool) -> bool:
        # Of messages of one packet, a few of them under way at once. The client itself says nothing until it ends.
        if towards_server and header["type"] in (1, 4) and next(data_packets) == 100:
            measured.set()
        return False

    with subprocess.Popen([*COMMAND, "--listen"], **pipes) as listener:  # type: ignore[call-overload]
        address = listener.stdout.readline().removeprefix("listening on ").strip()
        with Relay(address, look) as relay:
            client = subprocess.Popen([*COMMAND, relay.address, "--size", "1K", "--duration", "600"], **pipes)  # type: ignore[call-overload]
            with client:
                begun = measured.wait(PATIENCE_S)
                listener.send_signal(end)
                out, err = client.communicate(timeout=PATIENCE_S)
        assert begun, err
        assert listener.wait(PATIENCE_S) == 0
        assert listener.stderr.read() == ""
    assert client.returncode == 2
    assert "failed after" in out
    assert "goodput" in out
    assert "the peer closed its endpoint" in err
    assert err.count("\n") == 1


def test_output_that_nobody_reads_is_no_error() -> None:
    command = [*COMMAND, "--demo", "--size", "1K", "--count", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) == 141


def test_duration_in_place_of_a_count() -> None:
    result = run("--demo", "--size", "1K", "--duration", "0.1")
    assert (result.returncode, result.stderr) == (0, "")
    assert "goodput" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give one of ADDRESS, --listen and --demo"),
        (("--demo", "--listen"), "give one of"),
        (("--demo", "--port", "7000"), "leave out --bind, --port"),
        (("--demo", "--size", "0"), "'0' is no size; accepted: such as 512M"),
        (("--demo", "--size", "4G"), "'4G'; accepted"),
        (("--demo", "--size", "5X"), "'5X' is no size; accepted"),
        (("--demo", "--count", "-1"), "'-1'; accepted: more than 0"),
        (("--demo", "--class", "7"), "'7'; accepted: classes from 0 to 6"),
        (("--demo", "--class", "a,b"), "'a,b'; accepted"),
        (("--demo", "--count", "5", "--duration", "1"), "give one of them"),
        (("--demo", "--loss-ratio", "0.5"), "'reliable', which loses nothing"),
        (("--demo", "--delivery", "bounded", "--loss-ratio", "1"), "loss_ratio is 1.0; accepted"),
        (("--demo", "--delivery", "bounded", "--loss-ratio", "1.5"), "give 1.5% or 0.015"),
        (("--demo", "--delivery", "deadline"), "deadline_s is None; accepted"),
        (("--demo", "--paths", "65"), "setting paths is 65; accepted: an integer from 1 to 64"),
        (("--listen", "--interface", "absent0"), "no interface 'absent0'"),
        (("--listen", "--key-file", "/nowhere/key"), "key file /nowhere/key: No such file"),
        (("--listen", "--bind", "0.0.0.0"), "no job key, and other hosts can reach 0.0.0.0"),
        (("nowhere",), "address 'nowhere' of rank 0"),
        (("127.0.0.1:9", "--timeout", "0.1"), "the listener at 127.0.0.1:9 did not answer within 0.1 s"),
    ],
)
def test_mistakes_end_with_2_and_a_sentence(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = ping.main(arguments)
    except SystemExit as end:  # argparse's own
        status = int(str(end.code))
    assert status == 2
    assert words in capsys.readouterr().err


def test_measure_and_serve_agree_on_what_was_sent() -> None:
    with Endpoint(0) as listener, Endpoint(1) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        served = pool.submit(ping.serve, listener)
        client.connect(0, listener.address, timeout_s=PATIENCE_S)
        before = client.stats()
        samples: list[PingSample] = []
        plan = ping.PingPlan(size_bytes=5000, count=7, depth=3, classes=(1, 2))
        counted = ping.measure(client, 0, plan, samples)
        assert counted == {"messages": 7, "message_bytes": 35_000, "abandoned_bytes": 0, "held_packets": 0}
        assert served.result(PATIENCE_S) == (1, counted)
        assert [sample.traffic_class for sample in samples] == [1, 2, 1, 2, 1, 2, 1]
        assert "no message ended" in list(report(figures(client, 0, before, [])))
        assert any(
            line.startswith("messages       7") for line in report(figures(client, 0, before, samples))
        )


def test_nothing_is_held_by_a_listener_with_little_room() -> None:
    with (
        Endpoint(0, max_unexpected_bytes=1 << 16) as listener,
        Endpoint(1) as client,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        served = pool.submit(ping.serve, listener)
        client.connect(0, listener.address, timeout_s=PATIENCE_S)
        ping.measure(client, 0, ping.PingPlan(size_bytes=1 << 18, count=200, depth=8), [])
        assert served.result(PATIENCE_S)[1]["held_packets"] == 0
        assert listener.stats().engine.held_packets == 0


def test_client_sends_no_more_than_receives_are_posted() -> None:
    with Endpoint(1) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        with Endpoint(0) as listener:
            client.connect(0, listener.address, timeout_s=PATIENCE_S)
            samples: list[PingSample] = []
            measured = pool.submit(
                ping.measure, client, 0, ping.PingPlan(size_bytes=1, count=50, depth=3), samples
            )
            listener.receive(1, bytearray(ping.OFFER_BYTES_MAX), tag=ping.CONTROL_TAG, timeout_s=PATIENCE_S)
            # Receives for all, and no reply to any.
            posted = [listener.ireceive(1, bytearray(1), tag=tag) for tag in range(50)]
            listener.send(
                1,
                json.dumps({"version": ping.TALK_VERSION}).encode(),
                tag=ping.CONTROL_TAG,
                timeout_s=PATIENCE_S,
            )
            allowed = 3 + ping.RECEIVES_AHEAD
            posted[allowed - 1].result(PATIENCE_S)
            with pytest.raises(errors.TransferTimeoutError):
                posted[allowed].result(0.2)
            assert not measured.done()
        with pytest.raises(errors.PeerClosedError):
            measured.result(PATIENCE_S)


def test_report_of_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    with Endpoint(0) as listener, Endpoint(1) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        served = pool.submit(ping.serve, listener)
        client.connect(0, listener.address, timeout_s=PATIENCE_S)
        before = client.stats()
        samples: list[PingSample] = []
        ping.measure(client, 0, ping.PingPlan(size_bytes=1, count=1), samples)
        served.result(PATIENCE_S)
        after = client.stats()
        lost = before.engine.lost_packets + 5
        late = before.engine.spurious_losses + 3
        engine = dataclasses.replace(after.engine, lost_packets=lost, spurious_losses=late)
        monkeypatch.setattr(client, "stats", lambda: dataclasses.replace(after, engine=engine))
        lines = list(report(figures(client, 0, before, samples, held_packets=9)))
        assert any(line.startswith("lost           2 of") and "3 more came late" in line for line in lines)
        assert any(line.startswith("held           9 packets") for line in lines)
        assert not any(line.startswith("held") for line in report(figures(client, 0, before, samples)))


def test_a_message_ends_not_before_its_latency() -> None:
    with Endpoint(0) as listener, Endpoint(1) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        served = pool.submit(ping.serve, listener)
        client.connect(0, listener.address, timeout_s=PATIENCE_S)
        samples: list[PingSample] = []
        ping.measure(client, 0, ping.PingPlan(size_bytes=1 << 24, count=1), samples)
        served.result(PATIENCE_S)
        assert samples[0].ended_s >= samples[0].outcome.waited_s


@pytest.mark.parametrize(
    "offer",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        json.dumps({"size_bytes": 1, "receives": 1}).encode(),
        json.dumps({"version": ping.TALK_VERSION, "size_bytes": 1, "receives": 0}).encode(),
    ],
)
def test_listener_refuses_a_bad_offer(offer: bytes) -> None:
    with Endpoint(0) as listener, Endpoint(1) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        served = pool.submit(ping.serve, listener)
        client.connect(0, listener.address, timeout_s=PATIENCE_S)
        client.send(0, offer, tag=ping.CONTROL_TAG, timeout_s=PATIENCE_S)
        _, counted = served.result(PATIENCE_S)
        assert "accepted" in counted["error"] or "offer" in counted["error"]


def test_listener_refuses_more_memory_than_it_may_take() -> None:
    with Endpoint(0) as listener, Endpoint(1) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(ping.serve, listener)
        client.connect(0, listener.address, timeout_s=PATIENCE_S)
        with pytest.raises(errors.SettingsError, match="lower --size or --depth"):
            ping.measure(client, 0, ping.PingPlan(size_bytes=1 << 30, depth=8), [])
