"""What befalls a driver, from the host's log to the logger `dlcp`."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from dlcp.errors import ForkError
from dlcp.transport import Endpoint, driver_events
from dlcp.transport.driver_events import EventWatch
from dlcp.transport.transfer import PeerLog

NO_LINK = "port 0000:3b:00.0 has no link"


class Host:
    """Answers each list of events once, in turn."""

    def __init__(self, *events: list[tuple[str, str]]) -> None:
        self.events = list(events)

    def drain_log(self) -> list[tuple[Any, ...]]:
        events = self.events.pop(0) if self.events else []
        return [(1.5, kind, None, None, 0, 0.0, text) for kind, text in events]


def log_of(*events: list[tuple[str, str]]) -> PeerLog:
    return PeerLog(Host(*events), 3)  # type: ignore[arg-type]


def test_events_are_logged_once_and_kept_until_drained(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dlcp")
    log = log_of([("link_down", NO_LINK)], [("link_up", "port 0000:3b:00.0 has a link"), ("peer_down", "")])
    log.look()
    assert not log.has_closed(7)
    entries = log.drain()
    assert [(one.kind, one.text, one.rank) for one in entries] == [
        ("link_down", NO_LINK, None),
        ("link_up", "port 0000:3b:00.0 has a link", None),
        ("peer_down", "", None),
    ]
    assert log.drain() == ()
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("WARNING", f"rank 3: link down: {NO_LINK}"),
        ("INFO", "rank 3: link up: port 0000:3b:00.0 has a link"),
    ]


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("link_down", "WARNING"),
        ("no_buffers", "WARNING"),
        ("neighbour_lost", "WARNING"),
        ("address_taken", "WARNING"),
        ("device_gone", "WARNING"),
        ("driver_event", "WARNING"),
        ("link_up", "INFO"),
        ("neighbour_found", "INFO"),
    ],
)
def test_level_is_by_kind(kind: str, level: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dlcp")
    log_of([(kind, "a sentence")]).look()
    assert [one.levelname for one in caplog.records] == [level]


def test_handler_may_ask_for_the_log() -> None:
    log = log_of([("link_down", NO_LINK)])
    seen = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((record.getMessage(), log.drain()))

    handler = Handler()
    logging.getLogger("dlcp").addHandler(handler)
    try:
        log.look()
    finally:
        logging.getLogger("dlcp").removeHandler(handler)
    ((_, entries),) = seen
    assert [one.kind for one in entries] == ["link_down"]


def test_watch_looks_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_events, "_LOOK_EVERY_S", 0.001)
    looked = threading.Semaphore(0)
    watch = EventWatch(0, looked.release)
    assert looked.acquire(timeout=10)
    assert looked.acquire(timeout=10)
    watch.stop()
    assert not watch._thread.is_alive()


def test_watch_looks_once_more_at_the_end() -> None:
    looked: list[None] = []
    EventWatch(0, lambda: looked.append(None)).stop()
    assert len(looked) == 1


def test_watch_ends_with_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_events, "_LOOK_EVERY_S", 0.001)

    def look() -> None:
        raise ForkError("as in a child")

    watch = EventWatch(0, look)
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    watch.stop()


def test_kernel_sockets_have_neither_events_nor_counters_of_their_own() -> None:
    with Endpoint(0) as endpoint:
        assert endpoint.driver_statistics() == {}
        assert not any(thread.name == "dlcp-events-0" for thread in threading.enumerate())
    assert endpoint.driver_statistics() == {}
