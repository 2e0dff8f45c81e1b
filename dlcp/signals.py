"""Signals: another meaning for a while, and how a process ended by one.

What is undone or shut down in order needs them for that long; then they mean again what they did before.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object], *numbers: int) -> Iterator[None]:
    """The signals call `handler` meanwhile. Only the main thread can do that; in others nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def raising(error: type[BaseException], *numbers: int) -> AbstractContextManager[None]:
    """The signals raise `error` meanwhile, so that the end of every `with` runs."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise error

    return handled(interrupt, *numbers)


def fate(returncode: int) -> str:
    """How a process ended, for a sentence about it."""
    if returncode < 0:
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"ended with status {returncode}"
