"""What arrives between two endpoints: contents, order, shapes, who sent."""

from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest

from dlcp import _native, errors
from dlcp.transport import Endpoint, Settings, TransferFuture
from tests.support.endpoints import KEY, PATIENCE_S, open_endpoint


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


@pytest.mark.parametrize("cipher", ["aes_128_gcm", "aegis_128x2"])
@pytest.mark.parametrize("encrypt", [False, True])
def test_same_key_on_both_sides(encrypt: bool, cipher: str) -> None:
    if cipher not in _native.offered_ciphers():
        pytest.skip(f"no {cipher} on this processor")
    settings = Settings(key=KEY, encrypt=encrypt, cipher=cipher)
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
