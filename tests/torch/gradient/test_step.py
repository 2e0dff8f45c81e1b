"""A step: when all of its buffers are settled, and what their norm is."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dlcp.errors import DlcpError
from dlcp.torch.gradient.step import Step


class Buffer:
    """A pending buffer that ends as it is asked to."""

    def __init__(self, square: float | None = None, error: Exception | None = None) -> None:
        self.square = square
        self._error = error

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


def step(*buffers: Any) -> Step:
    return Step(3, loss_scale=2.0, buffers=list(buffers))


def test_the_norm_is_of_all_buffers_and_unscaled() -> None:
    assert step(Buffer(9.0), Buffer(None), Buffer(16.0)).gradient_norm() == 2.5
    assert step(Buffer(None)).gradient_norm() is None


@pytest.mark.parametrize(
    "error", [DlcpError("lost"), ValueError("wrong"), RuntimeError("broken"), IndexError()]
)
def test_a_step_with_a_failed_buffer_ends_badly_without_raising(error: Exception) -> None:
    assert step(Buffer(), Buffer()).wait()
    assert not step(Buffer(error=error), Buffer()).wait()


def test_a_buffer_that_could_not_be_started_ends_the_step_badly() -> None:
    one = step(Buffer())
    one.failed = True
    assert not one.wait()


def test_the_end_waits_for_buffers_that_are_being_started() -> None:
    one, late = step(), Buffer(error=ValueError("late"))
    one.begin_start()

    def start() -> None:
        one.buffers.append(late)  # type: ignore[arg-type]
        one.end_start()

    thread = threading.Thread(target=start)
    thread.start()
    assert not one.wait()
    thread.join()
