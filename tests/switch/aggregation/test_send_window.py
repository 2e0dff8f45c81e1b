"""How many blocks a worker has in flight, and how long it waits for one."""

from __future__ import annotations

from dlcp.switch.aggregation.send_window import FIRST_WINDOW, LEAST_WINDOW, MOST_WAIT_NS, SendWindow

# ---- pace ----

MS = 1_000_000


def window(pace: SendWindow) -> int:
    while pace.has_room:
        pace.in_flight += 1
    room, pace.in_flight = pace.in_flight, 0
    return room


def test_window_doubles_until_something_is_lost() -> None:
    pace = SendWindow(100, 10 * MS)
    assert window(pace) == FIRST_WINDOW
    for _ in range(FIRST_WINDOW):
        pace.handle_result(MS)
    assert window(pace) == 2 * FIRST_WINDOW
    pace.handle_wait_over(50 * MS)
    pace.handle_wait_over(51 * MS)  # of the same burst
    assert window(pace) == FIRST_WINDOW
    for _ in range(FIRST_WINDOW + 1):
        pace.handle_result(MS)
    assert window(pace) == FIRST_WINDOW + 1
    for _ in range(20_000):
        pace.handle_result(MS)
    assert window(pace) == 100
    for turn in range(20):
        pace.handle_wait_over((100 + 20 * turn) * MS)
    assert window(pace) == LEAST_WINDOW


def test_smallest_range_has_one_block_in_flight() -> None:
    pace = SendWindow(1, 10 * MS)
    pace.handle_wait_over(0)
    assert window(pace) == 1


def test_wait_follows_what_blocks_take() -> None:
    pace = SendWindow(100, 10 * MS)
    assert pace.wait_ns == 10 * MS
    for _ in range(100):
        pace.handle_result(40 * MS)
    assert 40 * MS <= pace.wait_ns < 45 * MS
    for _ in range(100):
        pace.handle_result(MS)
    assert pace.wait_ns == 10 * MS
    for _ in range(100):
        pace.handle_result(5000 * MS)
    assert pace.wait_ns == MOST_WAIT_NS
