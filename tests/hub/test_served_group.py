"""A group at a hub acts on announcements in the order in which workers sent them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlcp.hub import group as served
from dlcp.hub.core import Core
from dlcp.hub.group import ServedGroup
from dlcp.transport import DataType, Reduction, Settings
from dlcp.transport.element import native_op
from dlcp.transport.hub.announcement import Announcement
from dlcp.transport.hub.plan import HubShape


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


def test_what_is_kept_is_let_go_behind_the_sums_that_wait_for_memory() -> None:
    """A worker that has its part of a scattered sum says so; another core may not have begun it.

    Sums of another group wait for memory, maybe for this.
    """
    acted: list[str] = []
    ends: list[Callable[[], None]] = []

    def run(said: Announcement, plan: object, when_over: Callable[[], None], present: int) -> bool:
        acted.append(f"sum {said.sequence}")
        ends.append(when_over)
        return True

    def forget(number: int) -> None:
        acted.append(f"forget {number}")

    shape, op = HubShape((0, 0), 1), native_op(Reduction.SUM, DataType.f32)
    group, other = (SimpleNamespace(shape=shape, rank=2, rack=0, run=run, forget=forget) for _ in range(2))
    core = Core(2, 0, Settings(bind_host="127.0.0.1", key=bytes(32)), 0, memory_bytes=10_000)
    try:
        for sequence, whose in enumerate((other, group, other)):
            core.start(cast("Any", whose), Announcement(sequence, 4096, 0, 0, 0, DataType.f32, op))
        core.forget(cast("Any", group), Announcement.to_forget(7))
        while ends:
            ends.pop(0)()
    finally:
        core.close()
    assert acted == ["sum 0", "sum 1", "forget 7", "sum 2"]
