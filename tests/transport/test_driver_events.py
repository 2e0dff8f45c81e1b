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
    assert caplog.records == []
    assert not log.has_closed(7)
    log.look()
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
    log = log_of([(kind, "a sentence")])
    log.look()
    log.look()
    assert [one.levelname for one in caplog.records] == [level]


def test_link_that_goes_down_shortly_before_the_end_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dlcp")
    log = log_of([("no_buffers", "none"), ("link_down", NO_LINK)], [])
    log.look()
    log.look(closing=True)
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("WARNING", "rank 3: no buffers: none"),
        ("INFO", f"rank 3: link down: {NO_LINK}"),
    ]


def test_link_that_stays_down_is_a_warning_after_a_second_look(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dlcp")
    log = log_of([("link_down", NO_LINK)], [("link_down", "port 1 has no link")], [])
    log.look()
    log.look()
    log.look()
    log.look(closing=True)
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("WARNING", f"rank 3: link down: {NO_LINK}"),
        ("WARNING", "rank 3: link down: port 1 has no link"),
    ]


def test_handler_may_ask_for_the_log() -> None:
    log = log_of([("no_buffers", NO_LINK)])
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
    assert [one.kind for one in entries] == ["no_buffers"]


class Looked:
    """Counts looks; `error`: what one raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.looks = threading.Semaphore(0)
        self.closing: list[bool] = []
        self.error = error

    def look(self, *, closing: bool = False) -> None:
        self.closing.append(closing)
        self.looks.release()
        if self.error is not None:
            raise self.error


def no_counters() -> dict[str, int]:
    return {}


def test_watch_looks_until_it_is_stopped_and_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_events, "_LOOK_EVERY_S", 0.001)
    looked = Looked()
    watch = EventWatch(0, looked, no_counters)
    assert looked.looks.acquire(timeout=10)
    assert looked.looks.acquire(timeout=10)
    watch.stop()
    assert not watch._thread.is_alive()
    assert looked.closing.index(True) == len(looked.closing) - 1


def test_watch_ends_with_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_events, "_LOOK_EVERY_S", 0.001)
    watch = EventWatch(0, Looked(ForkError("as in a child")), no_counters)
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    watch.stop()


def test_frames_longer_than_the_mtu_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_events, "_LOOK_EVERY_S", 0.001)
    looked = Looked()
    watch = EventWatch(3, looked, lambda: {"port0_rx_oversized_frames": 4, "port1_rx_oversized_frames": 3})
    for _ in range(3 * driver_events._LOOKS_PER_COUNT):
        assert looked.looks.acquire(timeout=10)
    watch.stop()
    (line,) = caplog.messages
    assert line.startswith("rank 3: oversized frames: 7 were dropped that are longer than the MTU")
    assert "DLCP_SEGMENTATION_OFFLOAD=0" in line


def test_kernel_sockets_have_neither_events_nor_counters_of_their_own() -> None:
    with Endpoint(0) as endpoint:
        assert endpoint.driver_statistics() == {}
        assert not any(thread.name == "dlcp-events-0" for thread in threading.enumerate())
    assert endpoint.driver_statistics() == {}
