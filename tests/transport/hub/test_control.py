"""The control connection: both ends need the key, and nothing that a stranger sends is taken."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.transport.hub.control import FRAME_BYTES_MAX, ControlError, HubControl

KEY = bytes(range(32))


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for stream in (near, far):
        stream.settimeout(20)
    return near, far


def served(
    far: socket.socket,
    work: Callable[[HubControl], object] = lambda control: None,
    timeout_s: float = 20,
) -> tuple[Any, list[Any]]:
    """A hub's end on a thread of its own, and what came of it: the job's name, or the error."""
    found: list[Any] = []

    def serve() -> None:
        try:
            control, name = HubControl.accept(far, {"job": KEY}.get, timeout_s)
            found.append(name)
            work(control)
        except (ControlError, OSError) as error:
            found.append(error)
        finally:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, found


def test_texts_pass_both_ways_and_end() -> None:
    near, far = pair()

    def answer(control: HubControl) -> None:
        while (said := control.receive()) is not None:
            control.send({"twice": 2 * said["number"]})

    thread, found = served(far, answer)
    control = HubControl.connect(near, KEY, "job")
    assert [control.ask({"number": number})["twice"] for number in range(3)] == [0, 2, 4]
    control.close()
    thread.join()
    assert found == ["job"]


@pytest.mark.parametrize("change", ["key", "text", "again"])
def test_what_is_not_the_ranks_own_is_refused(change: str) -> None:
    """Another key; one bit of the text; a text that was there before."""
    near, far = pair()

    def answer(control: HubControl) -> None:
        control.receive()
        control.receive()

    thread, found = served(far, answer)
    control = HubControl.connect(near, bytes(32) if change == "key" else KEY, "job")
    sent: list[bytes] = []

    class Tap:
        def sendall(self, frame: bytes) -> None:
            sent.append(frame)

    control._stream = Tap()  # type: ignore[assignment]
    control.send({"do": "join"})
    frame = bytearray(sent[0])
    if change == "text":
        frame[-3] ^= 1
    near.sendall(frame)
    if change == "again":
        near.sendall(frame)
    thread.join()
    assert "the keys differ" in str(found[-1])
    near.close()


def test_a_hub_with_another_key_is_found_out() -> None:
    """A stranger in the hub's place answers, and is not believed."""
    near, far = pair()

    def answer(control: HubControl) -> None:
        control._key = bytes(32)
        control.send({"cores": []})

    thread, _ = served(far, answer)
    control = HubControl.connect(near, KEY, "job")
    with pytest.raises(ControlError, match="the keys differ"):
        control.receive()
    thread.join()
    near.close()


@settings(max_examples=30)
@given(st.binary(max_size=200))
def test_a_strangers_bytes_end_the_connection(content: bytes) -> None:
    near, far = pair()
    thread, found = served(far, lambda control: None)
    near.sendall(struct.pack(">I", len(content)) + content)
    near.shutdown(socket.SHUT_WR)
    thread.join()
    near.close()
    assert isinstance(found[0], ControlError)


@pytest.mark.parametrize("length", [1025, 0xFFFFFFFF])
def test_a_strangers_long_text_is_refused_unread(length: int) -> None:
    near, far = pair()
    thread, found = served(far, lambda control: None)
    near.sendall(struct.pack(">I", length))
    thread.join()
    near.close()
    assert f"a text of {length} bytes; accepted: up to 1024" in str(found[0])


def test_a_first_request_is_short_until_the_rank_has_proved_anything() -> None:
    near, far = pair()
    thread, found = served(far, HubControl.receive)
    HubControl.connect(near, KEY, "job")
    near.sendall(struct.pack(">I", FRAME_BYTES_MAX))
    thread.join()
    near.close()
    assert f"a text of {FRAME_BYTES_MAX} bytes; accepted: up to 16416" in str(found[-1])


def test_a_stranger_has_one_time_for_all_that_it_says() -> None:
    near, far = pair()
    near.sendall(struct.pack(">I", 100) + b"{")  # there is always something to read
    thread, found = served(far, timeout_s=0)
    thread.join()
    near.close()
    assert "too little in too long a time" in str(found[0])


def test_a_long_text_is_not_sent() -> None:
    near, far = pair()
    thread, _ = served(far, lambda control: None)
    control = HubControl.connect(near, KEY, "job")
    with pytest.raises(ControlError, match=f"accepted: up to {FRAME_BYTES_MAX}"):
        control.send({"text": "x" * FRAME_BYTES_MAX})
    thread.join()
    near.close()


def test_a_job_without_a_key_here_is_said() -> None:
    near, far = pair()
    thread, _ = served(far)
    with pytest.raises(ControlError, match="it has no key for a job 'other'"):
        HubControl.connect(near, KEY, "other")
    thread.join()
    near.close()


def test_a_key_travels_covered_and_each_connection_covers_it_otherwise() -> None:
    given, seen = bytes(range(50, 82)), set()
    for _ in range(2):
        near, far = pair()
        thread, _ = served(far)
        control = HubControl.connect(near, KEY, "job")
        covered = control.cover(given)
        assert control.cover(covered) == given
        assert not any(covered[at : at + 4] in given for at in range(28))
        seen.add(covered)
        control.close()
        thread.join()
    assert len(seen) == 2
