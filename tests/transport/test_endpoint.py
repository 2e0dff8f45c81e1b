"""Endpoints over real loopback sockets: what arrives, what is refused, who is told what, and how it ends.

No test measures time; timeouts are only there to end a test that would hang. Those without the mark `loopback` say
nothing of sockets, and run over other drivers too (tests/support/endpoints.py).
"""

from __future__ import annotations

import concurrent.futures
import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport import Endpoint, Settings, TransferFuture
from tests.support.endpoints import open_endpoint
from tests.support.relay import Header, Relay

KEY = bytes(range(32))
# Ends what would hang; far above what anything here takes.
PATIENCE_S = 60.0


@pytest.fixture
def pair() -> Iterator[tuple[Endpoint, Endpoint]]:
    with open_endpoint(0) as a, open_endpoint(1) as b:
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        b.connect(0, a.address, timeout_s=PATIENCE_S)
        yield a, b


class Child:
    """A Python process that runs a script and tells lines."""

    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def child() -> Iterator[Any]:
    children: list[Child] = []

    def start(script: str) -> Child:
        children.append(Child(script))
        return children[-1]

    yield start
    for one in children:
        one.kill()


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


# --- what arrives -------------------------------------------------------------------------------------------


def test_blocking_send_and_receive(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    sent = np.random.default_rng(1).standard_normal((100, 1000)).astype(np.float32)
    got = np.zeros_like(sent)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        received = pool.submit(b.receive, 0, got, tag=7)
        outcome = a.send(1, sent, tag=7, timeout_s=PATIENCE_S)
        assert received.result(PATIENCE_S).message_bytes == sent.nbytes
    np.testing.assert_array_equal(got, sent)
    assert outcome.rank == 1
    assert outcome.tag == 7
    assert outcome.delivered_bytes == outcome.message_bytes == sent.nbytes
    assert outcome.blocks == a.block_count(1, sent.nbytes)
    assert not outcome.abandoned.any()
    assert outcome.abandoned.shape == (outcome.blocks,)
    assert outcome.abandoned_ranges().shape == (0, 2)


def test_futures_in_both_directions(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    left, right = np.arange(5000), np.arange(5000) * 2
    got_left, got_right = np.zeros_like(left), np.zeros_like(right)
    futures = [b.ireceive(0, got_left), a.ireceive(1, got_right), a.isend(1, left), b.isend(0, right)]
    for future in futures:
        assert isinstance(future, TransferFuture)
        assert future.result(PATIENCE_S).message_bytes == left.nbytes
        assert future.done()
        assert future.exception() is None
        assert not future.cancelled()
        assert not future.cancel()
    np.testing.assert_array_equal(got_left, left)
    np.testing.assert_array_equal(got_right, right)


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u8", "f2", "f4", ">f4", "f8", "c16", "S3", "M8[s]", "i4,f8"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (7, 11), (2, 3, 4)])
def test_dtypes_and_shapes(pair: tuple[Endpoint, Endpoint], dtype: str, shape: tuple[int, ...]) -> None:
    a, b = pair
    sent = np.zeros(shape, dtype)
    sent.reshape(-1).view(np.uint8)[...] = np.arange(sent.nbytes) % 2
    got = np.zeros_like(sent)
    future = b.ireceive(0, got)
    a.send(1, sent, timeout_s=PATIENCE_S)
    assert future.result(PATIENCE_S).message_bytes == sent.nbytes
    assert got.tobytes() == sent.tobytes()


def test_bytes_memoryview_and_tensor(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    torch = pytest.importorskip("torch")
    tensor = torch.arange(1000).to(torch.bfloat16)
    for data in (
        b"some bytes",
        bytearray(b"more"),
        memoryview(b"abcdef")[2:],
        np.frombuffer(b"const", np.uint8),
    ):
        got = bytearray(32)
        future = b.ireceive(0, memoryview(got))
        a.send(1, data, timeout_s=PATIENCE_S)
        assert bytes(got[: future.result(PATIENCE_S).message_bytes]) == bytes(data)
    target = torch.zeros(1000, dtype=torch.bfloat16)
    future = b.ireceive(0, target)
    a.send(1, tensor, timeout_s=PATIENCE_S)
    future.result(PATIENCE_S)
    assert torch.equal(target, tensor)


def test_many_messages_of_every_size(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    random = np.random.default_rng(2)
    sent = [random.integers(0, 256, size, np.uint8) for size in random.integers(0, 40_000, 500)]
    got = [np.zeros_like(message) for message in sent]
    receives = [b.ireceive(0, message, tag=tag) for tag, message in enumerate(got)]
    order = random.permutation(len(sent))
    sends = [a.isend(1, sent[tag], tag=int(tag), traffic_class=int(tag) % 7) for tag in order]
    for future in sends + receives:
        future.result(PATIENCE_S)
    for message, copy in zip(sent, got, strict=True):
        np.testing.assert_array_equal(copy, message)
    assert a.stats().engine.messages_sent == len(sent)
    assert b.stats().engine.messages_received == len(sent)
    assert a.stats().outstanding_operations == 0


def test_messages_of_one_tag_keep_their_order(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    got = np.zeros((100, 1), np.int64)
    receives = [b.ireceive(0, row) for row in got]
    sends = [a.isend(1, np.array([i])) for i in range(100)]
    for future in sends + receives:
        future.result(PATIENCE_S)
    np.testing.assert_array_equal(got[:, 0], np.arange(100))


def test_message_before_its_receive_is_kept(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    future = a.isend(1, np.arange(1000), tag=1)
    b.ireceive(0, bytearray(1), tag=2)
    a.send(1, b"", tag=2, timeout_s=PATIENCE_S)  # by now the first has arrived
    got = np.zeros(1000, np.int64)
    b.receive(0, got, tag=1, timeout_s=PATIENCE_S)
    future.result(PATIENCE_S)
    np.testing.assert_array_equal(got, np.arange(1000))


def test_receive_from_anyone_tells_who_sent(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    got = np.zeros(3)
    future = b.ireceive(None, got, tag=3)
    a.send(1, np.ones(3), tag=3, timeout_s=PATIENCE_S)
    assert future.result(PATIENCE_S).rank == 0
    np.testing.assert_array_equal(got, 1)


@pytest.mark.loopback("IPv6 there")
def test_ipv6_loopback() -> None:
    try:
        endpoints = Endpoint(0, bind_host="::1"), Endpoint(1, bind_host="::1")
    except errors.AddressError as error:
        pytest.skip(f"no IPv6 loopback here: {error}")
    with endpoints[0] as a, endpoints[1] as b:
        assert b.address.startswith("[::1]:")
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        got = np.zeros(100_000)
        future = b.ireceive(0, got)
        a.send(1, np.ones(100_000), timeout_s=PATIENCE_S)
        future.result(PATIENCE_S)
        assert got.all()


@pytest.mark.loopback("four on one network")
def test_four_endpoints_all_to_all() -> None:
    world = 4
    endpoints = [Endpoint(rank) for rank in range(world)]
    try:
        for endpoint in endpoints:
            for other in endpoints:
                if other is not endpoint:
                    endpoint.connect(other.rank, other.address, timeout_s=PATIENCE_S)
        sent = np.arange(world * world * 20_000).reshape(world, world, 20_000)
        got = np.zeros_like(sent)
        futures = [
            start
            for i in range(world)
            for j in range(world)
            if i != j
            for start in (endpoints[j].ireceive(i, got[i, j]), endpoints[i].isend(j, sent[i, j]))
        ]
        for future in futures:
            future.result(PATIENCE_S)
        for i in range(world):
            got[i, i] = sent[i, i]
            assert sorted(endpoints[i].peers) == [j for j in range(world) if j != i]
        np.testing.assert_array_equal(got, sent)
    finally:
        for endpoint in endpoints:
            endpoint.close()


@pytest.mark.parametrize("encrypt", [False, True])
def test_same_key_on_both_sides(encrypt: bool) -> None:
    settings = Settings(key=KEY, encrypt=encrypt)
    with open_endpoint(0, settings=settings) as a, open_endpoint(1, settings=settings) as b:
        a.connect(1, b.address, timeout_s=PATIENCE_S)
        for _ in range(3):
            got = np.zeros(50_000)
            future = b.ireceive(0, got)
            a.send(1, np.ones(50_000), timeout_s=PATIENCE_S)
            future.result(PATIENCE_S)
            assert got.all()
            a.advance_key_epoch()


def test_no_extra_thread_takes_the_interpreters_lock(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    before = threading.active_count()
    future = b.ireceive(0, np.zeros(10))
    a.send(1, np.ones(10), timeout_s=PATIENCE_S)
    future.result(PATIENCE_S)
    assert threading.active_count() == before


# --- loss on purpose ----------------------------------------------------------------------------------------


def lossy_send(importance: Any, dropped: set[int], **arguments: Any) -> tuple[Any, Any, np.ndarray, int]:
    """Sends 60 blocks of ones through a relay that loses the first copy of some; both outcomes and the buffer."""
    settings = Settings(paths=1, max_datagram_bytes=1064)
    seen: set[int] = set()

    def drops(header: Header, towards_server: bool) -> bool:
        if not towards_server or header["type"] != 1 or header["block_index"] in seen:
            return False
        seen.add(header["block_index"])
        return header["block_index"] in dropped

    with (
        Endpoint(0, settings=settings) as a,
        Endpoint(1, settings=settings) as b,
        Relay(b.address, drops) as relay,
    ):
        a.connect(1, relay.address, timeout_s=PATIENCE_S)
        block = a.block_bytes(1)
        got = np.full(60 * block, 9, np.uint8)
        future = b.ireceive(0, got)
        sent = a.send(1, np.ones_like(got), importance=importance, timeout_s=PATIENCE_S, **arguments)
        return sent, future.result(PATIENCE_S), got, block


@pytest.mark.loopback("the relay is a socket")
def test_reliable_message_repairs_what_is_lost() -> None:
    sent, received, got, _ = lossy_send(None, {0, 7, 8, 59})
    assert (got == 1).all()
    assert sent.abandoned_bytes == received.abandoned_bytes == 0
    assert sent.retransmitted_bytes > 0


@pytest.mark.loopback("the relay is a socket")
def test_bounded_message_abandons_within_its_budget() -> None:
    dropped = {3, 4, 50}
    sent, received, got, block = lossy_send(None, dropped, delivery="bounded", loss_ratio=0.1)
    # Only what the network dropped. On a host that stalls for long the sender may have repaired some of it.
    missing = set(np.flatnonzero(received.abandoned))
    assert missing <= dropped
    assert (sent.abandoned == received.abandoned).all()
    for outcome in (sent, received):
        assert outcome.abandoned_blocks == len(missing)
        assert outcome.abandoned_bytes == len(missing) * block
        assert outcome.delivered_bytes == (60 - len(missing)) * block
        assert sum(end - start for start, end in outcome.abandoned_ranges().tolist()) == len(missing) * block
    # Abandoned blocks keep what the buffer held.
    assert (got.reshape(60, block) == np.where(received.abandoned, 9, 1)[:, None]).all()


@pytest.mark.loopback("the relay is a socket")
def test_bounded_message_never_abandons_critical_blocks() -> None:
    importance = np.full(60, 10, np.uint8)
    importance[[3, 4]] = 255
    sent, received, got, block = lossy_send(importance, {3, 4, 50}, delivery="bounded", loss_ratio=0.5)
    assert (got.reshape(60, block)[[3, 4]] == 1).all()
    assert set(np.flatnonzero(received.abandoned)) <= {50}
    assert (sent.abandoned == received.abandoned).all()


@pytest.mark.loopback("the relay is a socket")
def test_bounded_message_repairs_what_exceeds_its_budget() -> None:
    _, received, _, block = lossy_send(
        np.arange(60, dtype=np.uint8), set(range(30)), delivery="bounded", loss_ratio=0.1
    )
    assert received.abandoned_bytes <= 0.1 * 60 * block


@pytest.mark.loopback("the relay is a socket")
def test_deadline_message_ends_with_what_is_there() -> None:
    sent, received, _, _ = lossy_send(5, set(range(40)), delivery="deadline", loss_ratio=0.1, deadline_s=1e-4)
    assert received.delivered_bytes + received.abandoned_bytes == received.message_bytes
    assert sent.abandoned_bytes == received.abandoned_bytes


# --- bad input, bad peers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nowhere",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:70000",
        "[::1:5",
        "no.such.invalid:1",
    ],
)
def test_bad_address_is_refused(pair: tuple[Endpoint, Endpoint], address: str) -> None:
    with pytest.raises(errors.AddressError, match="rank 5") as caught:
        pair[0].connect(5, address)
    assert repr(address) in str(caught.value)
    assert pair[0].peers == (1,)


def test_address_must_be_text(pair: tuple[Endpoint, Endpoint]) -> None:
    with pytest.raises(errors.AddressError, match="accepted: a text"):
        pair[0].connect(5, 7000)  # type: ignore[arg-type]


@pytest.mark.loopback("the kernel knows its addresses")
def test_bad_bind_host_is_refused() -> None:
    with pytest.raises(errors.AddressError, match="192.0.2.1"):
        Endpoint(0, bind_host="192.0.2.1", key=KEY)


@pytest.mark.loopback("three on one network")
def test_port_in_use_is_named(pair: tuple[Endpoint, Endpoint]) -> None:
    port = int(pair[0].address.rsplit(":", 1)[1])
    with pytest.raises(errors.PortInUseError, match=str(port)):
        Endpoint(2, port=port)


@pytest.mark.loopback("the kernel knows its interfaces")
def test_absent_interface_is_named() -> None:
    with pytest.raises(errors.InterfaceError, match="'absent0'.*lo"):
        Endpoint(0, interface="absent0")


@pytest.mark.loopback("no driver is opened")
def test_absent_driver_is_named() -> None:
    with pytest.raises(errors.DriverError, match="'absent'.*libdlcp_io_absent.so"):
        Endpoint(0, datapath="absent")
    with pytest.raises(errors.SettingsError, match="lower-case letters"):
        Endpoint(0, datapath="No Such")


@pytest.mark.loopback("no driver is opened")
def test_library_that_is_no_driver_is_named() -> None:
    from dlcp import _native

    with pytest.raises(errors.DriverError, match="not a dlcp driver"):
        Endpoint(0, datapath=str(Path(_native.__file__).resolve()))


def test_own_and_taken_ranks_are_refused(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    with pytest.raises(errors.DuplicateRankError, match="own rank"):
        a.connect(0, b.address)
    with pytest.raises(errors.DuplicateRankError, match="rank 1 is a peer already"):
        a.connect(1, b.address.partition("+")[0].rpartition(":")[0] + ":9")
    a.connect(1, b.address)  # the same again is fine


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
        return towards_server and header["type"] == 1 and header["block_index"] == 1

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
    with pytest.raises(errors.TransferTimeoutError, match="was not over after 0.01 s and was given up"):
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


# --- threads, callbacks -------------------------------------------------------------------------------------


def test_many_threads_wait_at_once(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    got = np.zeros((8, 20, 3000))
    sent = np.random.default_rng(3).standard_normal(got.shape)

    def receive(lane: int) -> None:
        for i in range(20):
            b.receive(0, got[lane, i], tag=lane, timeout_s=PATIENCE_S)

    def send(lane: int) -> None:
        for i in range(20):
            a.send(1, sent[lane, i], tag=lane, timeout_s=PATIENCE_S)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(job, lane) for lane in range(8) for job in (receive, send)]
        for job in jobs:
            job.result(PATIENCE_S)
    np.testing.assert_array_equal(got, sent)


def test_two_threads_wait_for_one_future(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    future = b.ireceive(0, np.zeros(10))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(future.result, PATIENCE_S) for _ in range(2)]
        a.send(1, np.ones(10), timeout_s=PATIENCE_S)
        assert waits[0].result() == waits[1].result()


@pytest.mark.loopback("three on one network")
def test_statistics_and_connect_while_another_thread_waits(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    with concurrent.futures.ThreadPoolExecutor(1) as pool, Endpoint(2) as c:
        wait = pool.submit(a.receive, 1, np.zeros(10))
        for _ in range(50):
            assert a.stats().outstanding_operations <= 1
        a.connect(2, c.address, timeout_s=PATIENCE_S)
        assert a.peer_address(2) == c.address
        b.send(0, np.ones(10), timeout_s=PATIENCE_S)
        wait.result(PATIENCE_S)


def test_close_wakes_who_waits(pair: tuple[Endpoint, Endpoint]) -> None:
    a, _ = pair
    started = threading.Barrier(5)

    def wait() -> None:
        future = a.ireceive(1, np.zeros(10))
        started.wait(PATIENCE_S)
        with pytest.raises(errors.ClosedError):
            future.result(PATIENCE_S)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(wait) for _ in range(4)]
        started.wait(PATIENCE_S)
        a.close()
        for one in waits:
            one.result(PATIENCE_S)


def test_callbacks_run_once_each_off_the_callers_thread(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    called: list[tuple[int, TransferFuture, threading.Thread]] = []
    all_called = threading.Semaphore(0)
    futures = [b.ireceive(0, bytearray(1), tag=i) for i in range(20)]
    for number, future in enumerate(futures):
        for half in range(2):

            def note(done: TransferFuture, key: int = 2 * number + half) -> None:
                called.append((key, done, threading.current_thread()))
                all_called.release()

            future.add_done_callback(note)
    for i in range(20):
        a.send(1, b"x", tag=i, timeout_s=PATIENCE_S)
    for _ in range(40):
        assert all_called.acquire(timeout=PATIENCE_S)
    assert sorted(key for key, _, _ in called) == list(range(40))
    assert all(done is futures[key // 2] and done.done() for key, done, _ in called)
    assert threading.current_thread() not in {thread for _, _, thread in called}


def test_callback_of_a_done_future_runs_at_once(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    future = b.ireceive(0, bytearray(1))
    a.send(1, b"x", timeout_s=PATIENCE_S)
    future.result(PATIENCE_S)
    called: list[threading.Thread] = []
    future.add_done_callback(lambda _: called.append(threading.current_thread()))
    assert called == [threading.current_thread()]


def test_callback_may_wait_for_another_message(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    got = np.zeros(10)
    answers: list[int] = []
    done = threading.Event()
    first = b.ireceive(0, bytearray(1), tag=1)

    def then(_: TransferFuture) -> None:
        answers.append(b.receive(0, got, tag=2, timeout_s=PATIENCE_S).message_bytes)
        done.set()

    first.add_done_callback(then)
    a.send(1, b"x", tag=1, timeout_s=PATIENCE_S)
    a.send(1, np.ones(10), tag=2, timeout_s=PATIENCE_S)
    assert done.wait(PATIENCE_S)
    assert answers == [80]


def test_callback_that_raises_is_logged(
    pair: tuple[Endpoint, Endpoint], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair
    done = threading.Event()
    future = b.ireceive(0, bytearray(1))

    def fail(_: TransferFuture) -> None:
        raise RuntimeError("a bug of the user's")

    future.add_done_callback(fail)
    future.add_done_callback(lambda _: done.set())
    a.send(1, b"x", timeout_s=PATIENCE_S)
    assert done.wait(PATIENCE_S)
    assert "a bug of the user's" in caplog.text


def test_callbacks_of_what_close_fails_are_called(pair: tuple[Endpoint, Endpoint]) -> None:
    a, _ = pair
    called: list[str] = []
    for i in range(5):
        a.ireceive(1, bytearray(1), tag=i).add_done_callback(lambda future: called.append(repr(future)))
    a.close()
    assert len(called) == 5
    assert all("closed" in text for text in called)


def test_progress_reports_what_ended(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    future = b.ireceive(0, bytearray(1))
    send = a.isend(1, b"x")
    while not future.done():
        b.progress(0.01)
        a.progress()
    send.result(PATIENCE_S)


# --- processes ----------------------------------------------------------------------------------------------


@pytest.mark.loopback("a process of its own")
def test_forked_child_is_told_and_the_parent_goes_on() -> None:
    result = run(
        """
        import os, warnings
        import numpy as np
        from dlcp import errors
        from dlcp.transport import Endpoint
        warnings.simplefilter("ignore", DeprecationWarning)  # that is what is tested here
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        got = np.zeros(1000)
        future = b.ireceive(0, got)
        pid = os.fork()
        if pid == 0:
            refused = 0
            for call in (lambda: a.send(1, b"x"), a.stats, lambda: future.result(), lambda: future.cancel(),
                         lambda: a.connect(1, b.address), a.drain_log, lambda: a.peers,
                         lambda: future.add_done_callback(print)):
                try:
                    call()
                except errors.ForkError:
                    refused += 1
            assert a.closed
            a.close()
            with Endpoint(5) as own:
                own.connect(0, a.address)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 8
        a.send(1, np.ones(1000))
        future.result()
        assert got.all()
        print("parent done")
        """
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "parent done", "")


@pytest.mark.loopback("a process of its own")
def test_forked_child_ends_quietly() -> None:
    result = run(
        """
        import os, sys, warnings
        from dlcp.transport import Endpoint
        warnings.simplefilter("ignore", DeprecationWarning)
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        future = a.ireceive(1, bytearray(9))
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        a.close()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.loopback("a process of its own")
def test_interpreter_ends_with_everything_outstanding() -> None:
    result = run(
        """
        import threading
        import numpy as np
        from dlcp.transport import Endpoint
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        futures = [a.ireceive(1, np.zeros(1000), tag=i) for i in range(10)]
        futures += [a.isend(1, np.zeros(100_000), tag=100 + i) for i in range(10)]
        futures[0].add_done_callback(lambda future: None)
        started = threading.Barrier(4)
        def wait():
            started.wait()
            a.receive(1, np.zeros(10), tag=77)
        for _ in range(3):
            threading.Thread(target=wait, daemon=True).start()
        threading.excepthook = lambda args: None  # they end with TransferClosedError
        started.wait()
        print("end")
        """
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "end", "")


@pytest.mark.loopback("a process of its own")
def test_ctrl_c_ends_a_blocking_call() -> None:
    result = run(
        """
        import os, signal, threading
        from dlcp.transport import Endpoint
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        wait = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        wait.start()
        try:
            a.receive(1, bytearray(1))
        except KeyboardInterrupt:
            print("interrupted", a.stats().outstanding_operations)
        """
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "interrupted 0", "")


def test_dropped_endpoint_closes() -> None:
    a = open_endpoint(0)
    address = a.address.partition("+")[0]
    host = weakref.ref(a)
    a.ireceive(None, bytearray(1)).add_done_callback(lambda _: None)
    del a
    gc.collect()
    assert host() is None
    with open_endpoint(0, port=int(address.rsplit(":", 1)[1])) as again:
        assert again.address.partition("+")[0] == address


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
