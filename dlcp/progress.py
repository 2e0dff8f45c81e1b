"""How far something is: one line on standard error that is written over, for a person who looks on."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from dlcp.units import duration


class Line:
    """Shows whatever has words on one line of a stream; `clear` removes it."""

    def __init__(self, stream: TextIO | None = None, prefix: str = "") -> None:
        """`stream`: standard error if None. `prefix`: what runs, when there are several."""
        self._stream = sys.stderr if stream is None else stream
        self._prefix = prefix
        self._shown = 0

    def __call__(self, words: object) -> None:
        """Shows them in place of the last ones, as far as a line of the terminal holds them."""
        text = f"{self._prefix}{words}"[: shutil.get_terminal_size().columns - 1]
        print(f"\r{text:<{self._shown}}", end="", file=self._stream, flush=True)
        self._shown = len(text)

    def clear(self) -> None:
        """Leaves an empty line."""
        if self._shown:
            print(f"\r{'':<{self._shown}}\r", end="", file=self._stream, flush=True)
            self._shown = 0


def terminal_line(wanted: bool | None = None, prefix: str = "") -> Line | None:
    """A line on standard error: if it is a terminal (None), always (True) or never (False)."""
    if wanted is None:
        wanted = sys.stderr.isatty()
    return Line(prefix=prefix) if wanted else None


@contextmanager
def shown() -> Iterator[Callable[[object], None]]:
    """What shows words on such a line until the end of the `with`; where nobody looks it does nothing."""
    line = terminal_line()
    try:
        yield line or (lambda _words: None)
    finally:
        if line is not None:
            line.clear()


def left(begin_s: float, share: float) -> str:
    """How long it still takes, as the end of a line, if it goes on as since `begin_s` of time.monotonic().

    `share`: how much is over, from 0 to 1; below 1 % it is too early to say.
    """
    return f", {duration((time.monotonic() - begin_s) * (1 / share - 1))} left" if share >= 0.01 else ""
