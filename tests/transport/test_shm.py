"""Endpoints of one host through shared memory: what is found, what arrives, who is believed, and how it ends.

The channel counters say which way the bytes went; no test measures time.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport import Endpoint

KEY = bytes(range(32))
# Ends what would hang; far above what anything here takes.
PATIENCE_S = 60.0


def _local(rank: int, **changes: object) -> Endpoint:
    return Endpoint(rank, driver="local", key=KEY, **changes)  # type: ignore[arg-type]


@pytest.fixture
def pair() -> Iterator[tuple[Endpoint, Endpoint]]:
    with _local(0) as a, _local(1) as b:
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        b.connect(0, a.address, timeout_s=PATIENCE_S)
        yield a, b


def _exchange(a: Endpoint, b: Endpoint, elements: int) -> None:
    """Both ways at once, compared."""
    there = np.arange(elements, dtype=np.int64)
    back = there[::-1].copy()
    got_there, got_back = np.zeros_like(there), np.zeros_like(back)
    waiting = [
        b.ireceive(0, got_there),
        a.ireceive(1, got_back),
        a.isend(1, there),
        b.isend(0, back),
    ]
    for one in waiting:
        one.result(PATIENCE_S)
    assert np.array_equal(got_there, there)
    assert np.array_equal(got_back, back)


def test_address_names_host_and_endpoint_behind_the_networks_own(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    network, shared = a.address.split("+shm:")
    assert network.startswith("127.0.0.1:")
    host, name = shared.split("/")
    assert host == b.address.split("+shm:")[1].split("/")[0]
    assert name != b.address.rsplit("/", 1)[1]


def test_messages_both_ways_go_through_shared_memory_alone(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    _exchange(a, b, 1_000_000)
    for endpoint in pair:
        io = endpoint.stats().io
        assert io.channels == 1
        assert io.channel_tx_bytes > 8_000_000
        assert (io.channel_tx_packets, io.channel_rx_packets) == (io.tx_packets, io.rx_packets)
        assert io.tx_dropped_packets == 0


def test_endpoint_without_shared_memory_is_reached_over_the_network() -> None:
    with _local(0) as a, Endpoint(1, driver="udp", key=KEY) as b:
        assert "+" not in b.address
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        b.connect(0, a.address, timeout_s=PATIENCE_S)
        _exchange(a, b, 10_000)
        assert a.stats().io.channel_tx_packets == 0


def test_other_key_is_refused_in_shared_memory_too() -> None:
    with _local(0) as a, Endpoint(1, driver="local", key=bytes(32)) as b:
        a.connect(1, b.address, wait=False)
        while b.stats().engine.bad_tag == 0:
            b.progress(0.01)
        with pytest.raises(errors.UnknownPeerError):
            b.peer_stats(0)
        assert b.stats().io.channel_rx_packets > 0


def test_injected_loss_leaves_shared_memory_alone() -> None:
    with _local(0, inject_loss_ratio=0.5) as a, _local(1, inject_loss_ratio=0.5) as b:
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        b.connect(0, a.address, timeout_s=PATIENCE_S)
        _exchange(a, b, 100_000)
        assert a.stats().engine.lost_packets == 0


def test_ring_size_is_a_setting_and_a_small_ring_carries_everything() -> None:
    words = "ring_bytes=65536"
    with _local(0, driver_options=words) as a, _local(1, driver_options=words) as b:
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        _exchange(a, b, 200_000)
    with pytest.raises(errors.SettingsError, match=r"ring_bytes=N, a power of two from 65536"):
        _local(0, driver_options="ring_bytes=3")


class _Echo:
    """A process of its own that sends back what it is sent."""

    def __init__(self) -> None:
        script = """
            import sys, numpy as np
            from dlcp.transport import Endpoint
            with Endpoint(1, driver="local", key=bytes(range(32))) as endpoint:
                print(endpoint.address, flush=True)
                endpoint.connect(0, sys.stdin.readline().strip(), timeout_s=60)
                data = np.zeros(250_000, dtype=np.float32)
                while True:
                    endpoint.receive(0, data, timeout_s=60)
                    endpoint.send(0, data, timeout_s=60)
        """
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def meet(self, endpoint: Endpoint) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(endpoint.address + "\n")
        self.process.stdin.flush()
        endpoint.connect(1, self.process.stdout.readline().strip(), timeout_s=PATIENCE_S)

    def __enter__(self) -> _Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_processes_exchange_and_a_killed_one_is_noticed_long_before_its_silence_is() -> None:
    # The silence that would tell is longer than the patience of this test.
    with _local(0, peer_timeout_s=10 * PATIENCE_S) as a, _Echo() as echo:
        echo.meet(a)
        sent = np.arange(250_000, dtype=np.float32)
        got = np.zeros_like(sent)
        for _ in range(3):
            waiting = a.ireceive(1, got)
            a.send(1, sent, timeout_s=PATIENCE_S)
            waiting.result(PATIENCE_S)
            assert np.array_equal(got, sent)
        assert a.stats().io.channels == 1
        waiting = a.ireceive(1, got)
        echo.process.kill()
        with pytest.raises(errors.PeerClosedError, match="process ended"):
            waiting.result(PATIENCE_S)
        assert a.stats().io.channels == 0
