"""The doctor between ranks and hosts: real processes in real networks, whole, cut, filtered and narrow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dlcp.doctor.hosts import Listener, examine_hosts, rank_of, resolve
from dlcp.doctor.probe import REQUEST_TAG, RankPair, Responder, ask, probe, split_address
from dlcp.doctor.ranks import examine_ranks
from dlcp.errors import AddressError, AuthenticationError
from dlcp.transport import Endpoint, Settings
from dlcp.transport.store import MemoryStore
from tests.support.namespaces import Namespace, missing
from tests.support.ports import free_port

needs_namespaces = pytest.mark.skipif((why := missing()) is not None, reason=why or "")
KEY = bytes(range(32))
# Several processes that load torch, on a machine that may be busy.
slow_start = pytest.mark.timeout(300)


# --- one pair --------------------------------------------------------------------------------------------------


def test_open_way_is_measured() -> None:
    with (
        Endpoint(1, key=KEY) as answering,
        Responder(answering),
        Endpoint(0, key=KEY, max_datagram_bytes=1472) as asking,
    ):
        pairs = [probe(asking, 0, 1, 1, answering.address, timeout_s=20) for _ in range(2)]
    for pair in pairs:
        assert pair.error is None
        assert pair.rtt_s is not None
        assert pair.echo_s is not None
        assert 0 < pair.rtt_s <= pair.echo_s
        assert pair.goodput_bps is not None
        assert pair.goodput_bps > 0
        assert 0 <= pair.lost_packets <= pair.sent_packets
        assert (pair.datagram_bytes, pair.datagram_bytes_own) == (1472, 1472)
        # One clock, so what is left is the error of the measurement.
        assert pair.clock_offset_s is not None
        assert abs(pair.clock_offset_s) < pair.echo_s + 1


def test_way_to_nobody_is_refused() -> None:
    with Endpoint(0, key=KEY) as asking:
        pair = probe(asking, 0, 1, 1, f"127.0.0.1:{free_port()}", timeout_s=0.2)
    assert pair.silence == "refused"
    assert "did not answer within 0.2 s" in str(pair.error)


def test_way_with_another_key_is_named() -> None:
    with (
        Endpoint(1, key=bytes(32)) as answering,
        Responder(answering),
        Endpoint(0, key=KEY) as asking,
    ):
        pair = probe(asking, 0, 1, 1, answering.address, timeout_s=0.5)
    assert "see that it is started as rank 1" in str(pair.error)
    assert "both sides have the same job key" in str(pair.error)
    assert pair.silence == "unanswered", "a closed port of that host refuses, so no firewall drops UDP"


def test_responder_survives_what_it_does_not_understand() -> None:
    with (
        Endpoint(1, key=KEY) as answering,
        Responder(answering, lambda rank, request: {"rank": rank, "asked": request["order"]}),
        Endpoint(7, key=KEY) as asking,
    ):
        asking.connect(1, answering.address, timeout_s=20)
        for rubbish in (b"", b"{", b"[]", b"{}", b'{"base": "x"}', b'{"base": -1, "echoes": 1}'):
            asking.send(1, rubbish, tag=REQUEST_TAG, timeout_s=20)
        assert ask(asking, 1, {"version": 99}, 20)["error"].startswith(
            "this is version 2 of the doctor's exchange"
        )
        assert ask(asking, 1, {"order": "card"}, 20) == {"rank": 7, "asked": "card"}
        assert probe(asking, 0, 1, 1, answering.address, timeout_s=20).error is None


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("10.0.0.1:7000", ("10.0.0.1", 7000)),
        ("[fd00::1]:7000", ("fd00::1", 7000)),
        ("10.0.0.1:7000+shm:00ff/ee11", ("10.0.0.1", 7000)),
    ],
)
def test_address_is_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


# --- listeners ------------------------------------------------------------------------------------------------


def test_listeners_are_examined_each_with_each() -> None:
    with contextlib.ExitStack() as stack:
        settings = Settings(key=KEY, bind_host="127.0.0.1")
        listeners = [stack.enter_context(Listener(settings.replace(port=free_port()))) for _ in range(2)]
        peers = [*(one.address for one in listeners), f"127.0.0.1:{free_port()}"]
        found = examine_hosts(peers, settings, timeout_s=1.0, environ={})
    assert found.names == ["here", *peers]
    # Three who know something ask each of the three others; of the absent one nothing comes.
    closed = {(pair.source, pair.target): pair.silence for pair in found.pairs if pair.error is not None}
    assert closed == {(0, 3): "refused", (1, 3): "refused", (2, 3): "refused"}
    opened = {(pair.source, pair.target) for pair in found.pairs if pair.error is None}
    assert opened == {(0, 1), (0, 2), (1, 2), (2, 1)}
    assert len(found.hosts) == 3
    assert [one.verdict for one in found.findings if one.topic == "reach"] == ["fail"] * 3 + ["ok"]


def test_listener_needs_a_key_for_a_reachable_address() -> None:
    with pytest.raises(AuthenticationError, match="no job key"):
        Listener(Settings(bind_host="0.0.0.0"))


def test_peer_without_an_address_is_named() -> None:
    assert resolve("localhost:7010") == "127.0.0.1:7010"
    assert resolve("[::1]:7010") == "[::1]:7010"
    assert rank_of("127.0.0.1:7010") != rank_of("127.0.0.1:7011")
    for peer in ("no-host.invalid:7010", "127.0.0.1", "127.0.0.1:x"):
        with pytest.raises(AddressError, match="accepted: host:port, such as node1:7010"):
            resolve(peer)


def test_listener_command_ends_with_ctrl_c() -> None:
    words = ["--listen", "--bind", "127.0.0.1", "--port", str(free_port()), "--allow-unauthenticated"]
    with subprocess.Popen(
        [sys.executable, "-m", "dlcp", "doctor", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on 127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")


# --- ranks ----------------------------------------------------------------------------------------------------


def examine(size: int, **changes: Any) -> Any:
    """What rank 0 concludes, with ranks as threads and a store in memory."""
    store = MemoryStore()
    found: list[Any] = [None] * size
    failed: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            own = changes.get("by_rank", {}).get(rank, {})
            found[rank] = examine_ranks(
                store, rank, size, toward="127.0.0.1", environ={}, timeout_s=20, changes=own
            )
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert found[1:] == [None] * (size - 1)
    return found[0]


def test_every_pair_of_ranks_is_measured() -> None:
    found = examine(3)
    assert found.names == ["rank 0", "rank 1", "rank 2"]
    assert sorted((pair.source, pair.target) for pair in found.pairs) == [
        (a, b) for a in range(3) for b in range(3) if a != b
    ]
    assert [pair.error for pair in found.pairs] == [None] * 6
    assert [host.ranks for host in found.hosts] == [[0, 1, 2]]


def test_rank_that_cannot_start_says_why_and_the_others_go_on() -> None:
    found = examine(3, by_rank={1: {"interface": "no-such-interface"}})
    assert found.names == ["rank 0", "rank 2"]
    assert [(pair.source, pair.target) for pair in found.pairs] == [(0, 1), (1, 0)]
    (refusal,) = [one for one in found.findings if one.verdict == "fail"]
    assert refusal.text.startswith("rank 1 cannot take part: this host has no interface 'no-such-interface'")


@slow_start
def test_torchrun_prints_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "dlcp", "doctor", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [(pair["source"], pair["target"], pair["error"]) for pair in report["pairs"]] == [
        (0, 1, None),
        (1, 0, None),
    ]


# --- networks -------------------------------------------------------------------------------------------------


class Star:
    """Hosts around a router, each in a network of its own: host i is 10.8.i.1."""

    def __init__(self, router: Namespace, hosts: list[Namespace]) -> None:
        self.router = router
        self.hosts = hosts
        subprocess.run(router.command("sysctl", "-q", "-w", "net.ipv4.ip_forward=1"), check=True)
        for number, host in enumerate(hosts):
            host.join(router, "eth0", f"port{number}")
            router.ip(f"address add 10.8.{number}.254/24 dev port{number}")
            router.ip(f"link set port{number} up")
            host.ip(f"address add 10.8.{number}.1/24 dev eth0")
            host.ip("link set eth0 up")
            host.ip(f"route add default via 10.8.{number}.254")

    def start(self, number: int, *words: str, **environ: str) -> subprocess.Popen[str]:
        """`dlcp doctor` on a host."""
        return subprocess.Popen(
            self.hosts[number].command(sys.executable, "-m", "dlcp", "doctor", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )

    def ranks(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Status and report of rank 0, with a rank on every host, as a launcher would start them."""
        job = {"WORLD_SIZE": str(len(self.hosts)), "MASTER_ADDR": "10.8.0.1", "MASTER_PORT": "29500"}
        processes = [
            self.start(rank, "--json", *words, **job, RANK=str(rank)) for rank in range(len(self.hosts))
        ]
        outputs = [process.communicate(timeout=240) for process in processes]
        for process, (output, errors) in zip(processes[1:], outputs[1:], strict=True):
            assert (process.returncode, output, errors) == (0, "", "")
        assert outputs[0][0], outputs[0][1]
        return processes[0].returncode, json.loads(outputs[0][0])


@contextlib.contextmanager
def star(size: int) -> Iterator[Star]:
    with contextlib.ExitStack() as stack:
        yield Star(stack.enter_context(Namespace()), [stack.enter_context(Namespace()) for _ in range(size)])


def between(report: dict[str, Any], topic: str) -> dict[str, str]:
    (found,) = [one for one in report["between"] if one["topic"] == topic]
    return dict(found)


@pytest.fixture
def two() -> Iterator[Star]:
    pytest.importorskip("torch")
    with star(2) as network:
        yield network


@pytest.mark.needs_root
@needs_namespaces
@slow_start
def test_whole_network_is_in_order(two: Star) -> None:
    status, report = two.ranks()
    assert status == 0
    assert between(report, "reach")["text"] == "all 2 pairs of 2 are open"
    assert between(report, "mtu")["text"] == "every pair carries datagrams of 1472 bytes"
    assert len(report["hosts"]) == 2
    texts = [one["text"] for host in report["hosts"] for one in host["findings"]]
    assert "dlcp binds 10.8.1.1 on eth0, which leads to 10.8.0.1 (MASTER_ADDR)" in texts


@pytest.mark.needs_root
@needs_namespaces
@slow_start
def test_filtered_network_fails_and_names_the_firewall(two: Star) -> None:
    """TCP comes through, so the ranks meet; UDP does not."""
    two.router.ip("rule add pref 1 to 10.8.0.0/16 ipproto udp blackhole")
    status, report = two.ranks("--timeout", "1")
    assert status == 1
    found = between(report, "reach")
    assert found["verdict"] == "fail"
    host = socket.gethostname()
    assert f"rank 0 ({host}, eth0, 10.8.0.1:" in found["text"]
    assert f"rank 1 ({host}, eth0, 10.8.1.1:" in found["text"]
    assert "do not reach each other: nothing comes back" in found["text"]
    assert "ip saddr 10.8.0.1 meta l4proto udp accept" in str(found["remedy"])
    assert [pair["silence"] for pair in report["pairs"]] == ["silent", "silent"]


@pytest.mark.needs_root
@needs_namespaces
@slow_start
def test_narrow_link_on_the_way_is_found(two: Star) -> None:
    """Interfaces of 1500 at both hosts, 1200 at the router's second port."""
    two.router.ip("link set port1 mtu 1200")
    status, report = two.ranks()
    assert status == 0
    for pair in report["pairs"]:
        assert pair["error"] is None
        assert pair["datagram_bytes"] <= 1200 - 28
    there, back = (one for one in report["between"] if one["topic"] == "mtu")
    assert "though the interfaces carry 1472: something in between has MTU 1200" in there["text"]
    assert "ip link set dev eth0 mtu 1200" in there["remedy"]
    # Into the narrow port no router stands before it, so nobody says.
    assert back["text"].endswith("something in between has a smaller MTU and does not say which")


@pytest.mark.needs_root
@needs_namespaces
@slow_start
def test_cut_link_is_told_from_open_ones() -> None:
    with star(3) as network, contextlib.ExitStack() as stack:
        listeners = []
        for number in (1, 2):
            process = stack.enter_context(network.start(number, "--listen", "--allow-unauthenticated"))
            stack.callback(process.terminate)
            assert process.stdout is not None
            assert process.stdout.readline().startswith(f"listening on 10.8.{number}.1:7010; ")
            listeners.append(process)
        network.router.ip("link set port2 down")
        asking = network.start(
            *(0, "--peers", "10.8.1.1:7010,10.8.2.1:7010", "--allow-unauthenticated"),
            *("--json", "--timeout", "1"),
        )
        output, errors = asking.communicate(timeout=240)
        assert (asking.returncode, errors) == (1, "")
        report = json.loads(output)
    states = {(pair["source"], pair["target"]): pair["error"] is None for pair in report["pairs"]}
    assert states == {(0, 1): True, (0, 2): False, (1, 2): False}
    failed = [one["text"] for one in report["between"] if one["verdict"] == "fail"]
    assert len(failed) == 2
    assert failed[0].startswith("here (")
    assert "cannot reach 10.8.2.1:7010 (10.8.2.1, 10.8.2.1:7010): the network answers that" in failed[0]


@pytest.mark.needs_root
@needs_namespaces
def test_what_the_network_answers_is_told_from_silence() -> None:
    def pair(address: str, expected: str) -> str | None:
        found = None
        # A busy machine may take longer to be told.
        for timeout_s in (0.5, 5.0, 20.0):
            with Endpoint(0, bind_host="10.8.0.1", allow_unauthenticated=True) as asking:
                found = probe(asking, 0, 1, 1, address, timeout_s=timeout_s).silence
            if found == expected:
                break
        return found

    with star(2) as network:
        asker = network.hosts[0]
        assert asker.run(lambda: pair("10.8.1.1:7010", "refused")) == "refused"
        network.router.ip("link set port1 down")
        assert asker.run(lambda: pair("10.8.1.2:7010", "unreachable")) == "unreachable"
        asker.ip("neighbour add 10.8.0.9 dev eth0 nud failed")
        assert asker.run(lambda: pair("10.8.0.9:7010", "no neighbour")) == "no neighbour"
        network.router.ip("rule add pref 1 to 10.8.0.0/16 ipproto udp blackhole")
        assert asker.run(lambda: pair("10.8.1.3:7010", "silent")) == "silent"


def test_ways_survive_json() -> None:
    pair = RankPair(source=0, target=1, error="x", silence="silent")
    assert RankPair(**json.loads(json.dumps(asdict(pair)))) == pair
