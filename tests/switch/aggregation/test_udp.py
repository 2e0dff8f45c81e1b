"""Aggregation over real sockets, without a switch. Through BMv2: tests/p4/test_aggregation_bmv2.py."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from dlcp.errors import AddressError, CollectiveTimeoutError
from dlcp.switch.aggregation import JobSettings
from dlcp.switch.aggregation.__main__ import main
from dlcp.switch.aggregation.udp import UdpHub, UdpWorker


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_hub_does_it_all_without_a_switch() -> None:
    """The exact sum, and the same bits, of workers that come one after the other."""
    settings = JobSettings(job=5, workers=3, slots=64, trust_switch=True)
    ports = [free_port() for _ in range(4)]
    addresses = [("127.0.0.1", port) for port in ports]
    stop = threading.Event()
    inputs = [np.random.default_rng(w).standard_normal(5000).astype(np.float32) for w in range(3)]
    outcomes = {}

    def serve() -> None:
        with UdpHub(settings, addresses[3], addresses[:3]) as hub:
            hub.serve(stop.is_set)

    def work(number: int) -> None:
        with UdpWorker(settings, number, addresses[number], addresses[3]) as worker:
            outcomes[number] = (
                worker.all_reduce(inputs[number]),
                worker.all_reduce(np.full(3, number, np.int32)),
            )
            assert worker.linger(10.0)

    hub = threading.Thread(target=serve)
    workers = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in (hub, *workers):
        thread.start()
    for thread in workers:
        thread.join(60.0)
    stop.set()
    hub.join(10.0)
    assert sorted(outcomes) == [0, 1, 2]
    for floats, integers in outcomes.values():
        assert floats.values.tobytes() == outcomes[0][0].values.tobytes()
        assert integers.values.tolist() == [3, 3, 3]
        assert set(floats.contributors.tolist()) == {0b111}
    assert np.abs(outcomes[0][0].values - np.sum(inputs, axis=0)).max() < 1e-6


def test_address_that_is_taken_or_not_here() -> None:
    settings = JobSettings(job=5, workers=1, slots=64, trust_switch=True)
    taken = ("127.0.0.1", free_port())
    with (
        UdpHub(settings, taken, [("127.0.0.1", 1)]),
        pytest.raises(AddressError, match="cannot bind UDP socket to 127.0.0.1:\\d+: Address already in use"),
    ):
        UdpWorker(settings, 0, taken, taken)
    with pytest.raises(AddressError, match="192.0.2.1:5000: Cannot assign requested address"):
        UdpHub(settings, ("192.0.2.1", 5000), [taken])


def test_address_that_would_have_to_be_looked_up() -> None:
    """Each packet would be, and what comes back would count as a stranger's."""
    settings = JobSettings(job=5, workers=2, slots=64, trust_switch=True)
    here = ("127.0.0.1", 0)
    with pytest.raises(AddressError, match="hub is 'localhost:5000'; accepted: an IPv4 address in numbers"):
        UdpWorker(settings, 0, here, ("localhost", 5000))
    with pytest.raises(AddressError, match=r"workers\[1\] is '127.0.0.1:70000'"):
        UdpHub(settings, here, [("127.0.0.1", 5000), ("127.0.0.1", 70000)])
    for workers in ([("127.0.0.1", 5000)], [("127.0.0.1", 5000)] * 2):
        with pytest.raises(AddressError, match="accepted: 2, each once"):
            UdpHub(settings, here, workers)


def test_flood_of_strangers_holds_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """More comes than is taken: the hub still hears that it shall stop, and the worker that its time is over."""
    monkeypatch.setattr("dlcp.switch.aggregation.udp._receive", lambda made: (b"", ("10.0.0.1", 1)))
    settings = JobSettings(job=5, workers=1, slots=64, trust_switch=True, timeout_ns=10**8)
    here = ("127.0.0.1", 0)
    stops = iter((False, False, True))
    with UdpHub(settings, here, [("127.0.0.1", 5000)]) as hub:
        hub.serve(lambda: next(stops))
        assert hub.engine.counters["stray"] == 512
    with (
        UdpWorker(settings, 0, here, ("127.0.0.1", free_port())) as worker,
        pytest.raises(CollectiveTimeoutError, match="the hub does not answer"),
    ):
        worker.all_reduce(np.ones(4, np.float32))


def test_worker_that_was_closed_ends_at_once() -> None:
    settings = JobSettings(job=5, workers=1, slots=64, trust_switch=True)
    with UdpWorker(settings, 0, ("127.0.0.1", 0), ("127.0.0.1", free_port())) as worker:
        pass
    with pytest.raises(AddressError, match="closed"):
        worker.all_reduce(np.ones(4, np.float32))


def test_command_wants_trust_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["worker", "--bind", "127.0.0.1:5000", "--hub", "127.0.0.1:5001", "--worker", "0", "--of", "2"]
    assert main(command) == 2
    assert "dlcp: --trust-switch must be given" in capsys.readouterr().err
    assert main([*command, "--trust-switch", "--slots", "1"]) == 2
    assert "dlcp: slots is 1; accepted: an integer from 2 to 65535" in capsys.readouterr().err
    for words, text in [
        (["--bind", "nowhere"], "'nowhere'; accepted: IP:PORT"),
        (["--deadline-ms", "nan"], "'nan'; accepted: a number above 0"),
        (["--repeat", "0"], "'0'; accepted: an integer from 1"),
        (["--elements", "-5"], "'-5'; accepted: an integer from 1"),
    ]:
        with pytest.raises(SystemExit, match="2"):
            main([*command, *words])
        assert text in capsys.readouterr().err
