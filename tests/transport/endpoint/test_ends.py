"""How messages, peers and endpoints end before their time: what is told on each side."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport import Endpoint, Settings
from tests.support.endpoints import KEY, PATIENCE_S, open_endpoint
from tests.support.relay import Header, Relay


def test_receive_too_small_fails_on_both_sides(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    small = np.zeros(10)
    future = b.ireceive(0, small, tag=4)
    with pytest.raises(errors.RefusedError, match="send to rank 1, tag 4.*8000 bytes"):
        a.send(1, np.ones(1000), tag=4, timeout_s=PATIENCE_S)
    with pytest.raises(errors.ReceiveTooSmallError, match="receive from rank 0, tag 4.*8000 bytes"):
        future.result(PATIENCE_S)
    assert not small.any()


def test_closed_endpoint_says_so(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    a.close()
    a.close()
    assert a.closed
    for call in (
        lambda: a.connect(1, b.address),
        lambda: a.send(1, b"x"),
        lambda: a.ireceive(1, bytearray(1)),
        lambda: a.progress(),
        lambda: a.disconnect(1),
        lambda: a.wait_for_peer(1),
    ):
        with pytest.raises(errors.ClosedError, match=r"rank 0\) is closed; open another"):
            call()
    assert a.stats().engine.control_packets_sent > 0
    assert a.address


def test_closing_fails_what_is_under_way_on_both_sides(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    own = a.ireceive(1, np.zeros(10))
    other = b.ireceive(0, np.zeros(10))
    a.close()
    with pytest.raises(errors.TransferClosedError, match="this endpoint was closed"):
        own.result(PATIENCE_S)
    with pytest.raises(errors.PeerClosedError, match="receive from rank 0"):
        other.result(PATIENCE_S)


def test_cancelled_receive_names_who_gave_up(pair: tuple[Endpoint, Endpoint]) -> None:
    receive = pair[0].ireceive(1, np.zeros(10), tag=8)
    assert receive.cancel()
    with pytest.raises(
        errors.TransferCancelledError, match="receive from rank 1, tag 8: given up by this side"
    ):
        receive.result(PATIENCE_S)
    assert receive.cancelled()


@pytest.mark.loopback("the relay is a socket")
def test_cancelled_send_tells_the_receiver() -> None:
    def drops(header: Header, towards_server: bool) -> bool:
        return towards_server and header["type"] in (1, 4) and header["block_index"] == 1

    settings = Settings(paths=1, max_datagram_bytes=1064)
    with (
        Endpoint(0, settings=settings) as a,
        Endpoint(1, settings=settings) as b,
        Relay(b.address, drops) as relay,
    ):
        a.connect(1, relay.address, timeout_s=PATIENCE_S)
        receive = b.ireceive(0, bytearray(2000))
        send = a.isend(1, bytes(2000))
        while b.stats().engine.data_packets_received == 0:
            b.progress(0.01)
        assert send.cancel()
        with pytest.raises(errors.TransferCancelledError):
            send.result(PATIENCE_S)
        with pytest.raises(
            errors.PeerCancelledError, match="receive from rank 0, tag 0: given up by the peer"
        ):
            receive.result(PATIENCE_S)


def test_timeout_of_a_blocking_call_frees_the_memory(pair: tuple[Endpoint, Endpoint]) -> None:
    a, _ = pair
    buffer = np.zeros(10)
    alive = weakref.ref(buffer)
    with pytest.raises(
        errors.TransferTimeoutError, match="was not over after 0.01 s .timeout. and was given up"
    ):
        a.receive(1, buffer, timeout_s=0.01)
    assert a.stats().outstanding_operations == 0
    del buffer
    gc.collect()
    assert alive() is None


def test_timeout_of_a_result_leaves_the_message(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    got = np.zeros(10)
    future = a.ireceive(1, got)
    with pytest.raises(TimeoutError, match="it goes on"):
        future.result(0.01)
    with pytest.raises(errors.DlcpError, match="not over"):
        future.outcome  # noqa: B018
    b.send(0, np.ones(10), timeout_s=PATIENCE_S)
    future.result(PATIENCE_S)
    assert got.all()


def test_dropped_future_keeps_the_memory_alive(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    buffer = np.zeros(1000)
    alive = weakref.ref(buffer)
    b.ireceive(0, buffer)
    del buffer
    gc.collect()
    assert alive() is not None
    a.send(1, np.ones(1000), timeout_s=PATIENCE_S)
    kept = alive()
    assert kept is not None
    del kept
    # Any later start frees what is over.
    flag = b.ireceive(0, bytearray(1))
    a.send(1, b"x", timeout_s=PATIENCE_S)
    flag.result(PATIENCE_S)
    b.ireceive(0, bytearray(1))
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("here", "there", "hint"),
    [
        pytest.param(
            KEY, bytes(32), "packets with a wrong tag came meanwhile: the job keys differ", id="wrong"
        ),
        pytest.param(
            KEY, None, "packets came with a tag and without a key here, or the reverse", id="absent there"
        ),
        pytest.param(
            None, KEY, "packets came with a tag and without a key here, or the reverse", id="absent here"
        ),
    ],
)
def test_wrong_or_absent_key_keeps_peers_apart(here: bytes | None, there: bytes | None, hint: str) -> None:
    with open_endpoint(0, key=here) as a, open_endpoint(1, key=there) as b:
        b.connect(0, a.address, wait=False)
        with pytest.raises(
            errors.PeerTimeoutError, match="rank 1 at .* did not answer within 0.5 s"
        ) as caught:
            a.connect(1, b.address, timeout_s=0.5)
        assert hint in str(caught.value)
        assert a.peers == ()
        counted = b.stats().engine
        assert counted.bad_tag + counted.unauthenticated > 0
        assert counted.data_packets_received == 0


def test_other_job_is_foreign() -> None:
    with open_endpoint(0, job=1) as a, open_endpoint(1, job=2) as b:
        with pytest.raises(errors.PeerTimeoutError):
            a.connect(1, b.address, timeout_s=0.3)
        assert b.stats().engine.foreign_job > 0


def test_nobody_at_the_address() -> None:
    with open_endpoint(0) as a:
        with open_endpoint(1) as b:
            address = b.address
        with pytest.raises(errors.PeerTimeoutError, match="see that it is started as rank 1"):
            a.connect(1, address, timeout_s=0.2)


def test_wait_for_peer_that_does_not_come() -> None:
    with (
        open_endpoint(0) as a,
        pytest.raises(errors.PeerTimeoutError, match="rank 7 did not come within 0.05 s"),
    ):
        a.wait_for_peer(7, timeout_s=0.05)


LISTENER = """
    import sys
    from dlcp.transport import Endpoint
    endpoint = Endpoint(1, port={port})
    print(endpoint.address, flush=True)
    for line in sys.stdin:
        endpoint.connect(0, line.strip())
        print("connected", flush=True)
"""


@pytest.mark.loopback("a process of its own")
def test_dead_peer_is_named_after_its_silence(child: Any) -> None:
    other = child(LISTENER.format(port=0))
    with Endpoint(0, peer_timeout_s=0.5) as a:
        a.connect(1, other.line(), timeout_s=PATIENCE_S)
        waiting = a.ireceive(1, np.zeros(10))
        other.kill()
        with pytest.raises(
            errors.PeerTimeoutError, match="send to rank 1, tag 6: the peer went silent after"
        ):
            a.send(1, np.zeros(1000), tag=6, timeout_s=PATIENCE_S)
        with pytest.raises(errors.PeerTimeoutError, match="receive from rank 1, tag 0"):
            waiting.result(PATIENCE_S)
        assert any(entry.kind == "peer_down" and entry.rank == 1 for entry in a.drain_log())


@pytest.mark.loopback("a process of its own")
def test_restarted_peer_fails_what_was_under_way(child: Any) -> None:
    first = child(LISTENER.format(port=0))
    with Endpoint(0) as a:
        address = first.line()
        a.connect(1, address, timeout_s=PATIENCE_S)
        future = a.ireceive(1, np.zeros(10))
        first.kill()
        second = child(LISTENER.format(port=address.rsplit(":", 1)[1]))
        assert second.line() == address
        second.tell(a.address)
        assert second.line() == "connected"
        with pytest.raises(errors.PeerRestartedError, match="came back as another process"):
            future.result(PATIENCE_S)


def test_disconnected_peer_may_come_again(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    future = a.ireceive(1, np.zeros(10))
    a.disconnect(1)
    with pytest.raises(errors.TransferError):
        future.result(PATIENCE_S)
    assert a.peers == ()
    a.connect(1, b.address, timeout_s=PATIENCE_S)
    got = np.zeros(10)
    arrived = b.ireceive(0, got)
    a.send(1, np.ones(10), timeout_s=PATIENCE_S)
    arrived.result(PATIENCE_S)
    assert got.all()


def test_timeout_says_that_the_peer_had_closed() -> None:
    with open_endpoint(0, peer_timeout_s=0.5) as a:
        with open_endpoint(1) as b:
            a.connect(1, b.address)
            b.wait_for_peer(0, timeout_s=PATIENCE_S)  # otherwise there is nobody to say goodbye to
        seen: list[str] = []
        give_up = time.monotonic() + PATIENCE_S
        while "peer_down" not in seen and time.monotonic() < give_up:
            seen += [entry.kind for entry in a.drain_log() if entry.kind.startswith("peer_")]
            time.sleep(0.01)
        assert seen == ["peer_established", "peer_down"]
        words = "closed its endpoint before and has not come back within"
        with pytest.raises(errors.PeerTimeoutError, match=words):
            a.send(1, b"x", timeout_s=PATIENCE_S)
        with pytest.raises(errors.TransferTimeoutError, match=words):
            a.send(1, b"x", timeout_s=0.05)


def test_connection_timeouts_say_what_both_sides_need() -> None:
    words = "both sides have the same job key, job number and version"
    with open_endpoint(0) as a, open_endpoint(1, job=7) as b:
        with pytest.raises(errors.PeerTimeoutError, match=words):
            a.connect(1, b.address, timeout_s=0.2)
        b.connect(0, a.address, wait=False)
        with pytest.raises(errors.PeerTimeoutError, match=words + "; packets of another job"):
            a.wait_for_peer(1, timeout_s=0.5)
