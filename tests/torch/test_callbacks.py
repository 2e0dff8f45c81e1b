"""The threads that complete futures, and the order in which callbacks start collectives."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch

from dlcp.errors import CollectiveTimeoutError
from dlcp.torch.callbacks import CallbackPool
from dlcp.torch.futures import CallbackOrder, CollectiveFuture, Failure, line_of_callback

# How long a test waits for what happens at once; long, since it only passes when something is wrong.
LIMIT_S = 30.0


def test_a_task_may_wait_for_tasks_submitted_after_it() -> None:
    pool = CallbackPool()
    gates = [threading.Event() for _ in range(100)]

    def wait_for_the_next(number: int) -> None:
        assert gates[number + 1].wait(LIMIT_S)
        gates[number].set()

    for number in range(99):
        pool.submit(lambda number=number: wait_for_the_next(number))
    pool.submit(gates[99].set)
    assert gates[0].wait(LIMIT_S)
    pool.close()


def test_idle_threads_are_used_again() -> None:
    pool = CallbackPool()
    used = set()
    for _ in range(50):
        done = threading.Event()

        def note(done: threading.Event = done) -> None:
            used.add(threading.current_thread().name)
            done.set()

        pool.submit(note)
        assert done.wait(LIMIT_S)
    pool.close()
    # A thread may not have gone back to waiting when the next task comes, so it is not always one.
    assert len(used) < 50


def test_idle_threads_end() -> None:
    pool = CallbackPool(idle_s=0.01)
    threads: list[threading.Thread] = []
    done = threading.Event()
    pool.submit(lambda: (threads.append(threading.current_thread()), done.set()))
    assert done.wait(LIMIT_S)
    threads[0].join(LIMIT_S)
    assert not threads[0].is_alive()
    again = threading.Event()
    pool.submit(again.set)
    assert again.wait(LIMIT_S)
    pool.close()


def test_close_waits_for_what_was_submitted_and_later_tasks_run_at_once() -> None:
    pool = CallbackPool()
    ran: list[int] = []
    for number in range(20):
        pool.submit(lambda number=number: ran.append(number))
    pool.close(LIMIT_S)
    assert sorted(ran) == list(range(20))
    pool.submit(lambda: ran.append(threading.get_ident()))
    assert ran[-1] == threading.get_ident()


def test_a_task_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pool = CallbackPool()

    def fail() -> None:
        raise ValueError("of a user's")

    with caplog.at_level(logging.ERROR, "dlcp"):
        pool.submit(fail)
        pool.close(LIMIT_S)
    assert "of a user's" in caplog.text


def test_callbacks_take_their_turn_in_the_order_of_registration() -> None:
    line = CallbackOrder("callbacks")
    first, second = line.enter("one"), line.enter("one")
    order: list[str] = []
    started = threading.Event()

    def later() -> None:
        started.set()
        line.wait_turn(LIMIT_S)
        order.append("second")

    thread = threading.Thread(target=lambda: line.run(second, later))
    thread.start()
    assert started.wait(LIMIT_S)
    line.run(first, lambda: order.append("first"))
    thread.join(LIMIT_S)
    assert order == ["first", "second"]


def test_error_of_a_turn_that_does_not_come_names_the_callback() -> None:
    line = CallbackOrder("callbacks")
    line.enter("receive")
    ticket = line.enter("all_reduce")
    with pytest.raises(CollectiveTimeoutError, match="the callback of receive was registered before"):
        line.run(ticket, lambda: line.wait_turn(0.01))


def test_what_a_callback_registers_has_its_ticket() -> None:
    line = CallbackOrder("callbacks")
    ticket, after = line.enter("one"), line.enter("one")
    inner: list[int] = []
    line.run(ticket, lambda: inner.append(line.enter("one")))
    assert inner == [ticket]
    # Still to run: whoever comes after waits for it.
    waiting = threading.Thread(target=lambda: line.run(after, lambda: line.wait_turn(LIMIT_S)))
    waiting.start()
    assert waiting.is_alive()
    line.run(ticket, lambda: line.wait_turn(LIMIT_S))
    waiting.join(LIMIT_S)
    assert not waiting.is_alive()
    assert line_of_callback() is None


def test_callbacks_of_a_complete_future_run_at_once_and_others_on_a_thread_of_their_own() -> None:
    for early in (True, False):
        future = CollectiveFuture()
        if not early:
            future.set_result([torch.ones(1)])
        child = future.then(lambda done: (threading.get_ident(), done.value()))
        if early:
            future.set_result([torch.ones(1)])
        thread, value = child.wait()
        assert (thread == threading.get_ident()) is not early
        assert value[0].item() == 1.0


def test_errors_pass_from_future_to_future() -> None:
    future = CollectiveFuture()
    child = future.then(lambda done: done.value()[0] * 2)
    grandchild = child.then(lambda done: done.wait())
    future.set_exception(KeyError("gone"))
    for one in (future, child, grandchild):
        with pytest.raises(KeyError, match="gone"):
            one.wait()
        with pytest.raises(KeyError, match="gone"):
            one.value()


def test_collected_futures_that_failed_are_of_no_use() -> None:
    good, bad = CollectiveFuture(), CollectiveFuture()
    good.set_result([torch.ones(1)])
    bad.set_exception(KeyError("gone"))
    values: list[Any] = torch.futures.wait_all([good, bad])
    assert values[0][0].item() == 1.0
    for use in (lambda: values[1][0], lambda: list(values[1]), lambda: values[1].shape):
        with pytest.raises(KeyError, match="gone"):
            use()
    assert isinstance(values[1], Failure)


def test_a_failure_says_what_it_is() -> None:
    # DDP's reducer shows a hook's value that is no tensor, and nothing else.
    assert repr(Failure(RuntimeError("rank 1 is gone"))) == "RuntimeError: rank 1 is gone"
