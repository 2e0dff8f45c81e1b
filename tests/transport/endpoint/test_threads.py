"""Many threads on one endpoint, and the thread that calls back."""

from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest

from dlcp import errors
from dlcp.transport import Endpoint, TransferFuture
from tests.support.endpoints import PATIENCE_S


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
