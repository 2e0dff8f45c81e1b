"""A group at a hub acts on announcements in the order in which workers sent them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dlcp.hub import group as served
from dlcp.hub.group import ServedGroup


@pytest.mark.parametrize("posted", [1, 2, 4])
@pytest.mark.parametrize("told", ["in order", "last first"])
def test_announcements_are_acted_on_as_sent(monkeypatch: pytest.MonkeyPatch, posted: int, told: str) -> None:
    """All are there before the first is heard, so receives that are posted meanwhile are over at once."""
    arrived = iter(range(1, 13))
    callbacks: list[Callable[[object], None]] = []
    busy = False

    def start_message(*arguments: Any) -> Any:
        if (number := next(arrived, None)) is not None:
            arguments[-1][0] = number
        return SimpleNamespace(result=SimpleNamespace(error=None, peer=0), over=number is not None)

    def add(watched: Any, heard: Callable[[object], None]) -> None:
        if busy and watched.over:
            heard(None)  # over already: on the thread that adds it
        elif watched.over:
            callbacks.append(heard)

    acted: list[int] = []
    monkeypatch.setattr(served, "WatchedOperation", lambda operation: operation)
    monkeypatch.setattr(served, "Span", SimpleNamespace(of=lambda content: content))
    monkeypatch.setattr(served, "Announcement", SimpleNamespace(read=lambda said: said[0]))
    monkeypatch.setattr(ServedGroup, "_take", lambda _, number, worker: acted.append(number))
    group = object.__new__(ServedGroup)
    group.__dict__ |= {"number": 1, "_lock": threading.Lock(), "_posted": deque(), "_busy": False}
    core = SimpleNamespace(endpoint=SimpleNamespace(dispatcher=SimpleNamespace(add=add)))
    at_core: Any = SimpleNamespace(runtime=SimpleNamespace(start_message=start_message), core=core)
    for _ in range(posted):
        group._listen(at_core)
    busy = True
    for heard in callbacks if told == "in order" else reversed(callbacks):
        heard(None)
    assert acted == list(range(1, 13))
