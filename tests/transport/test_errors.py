"""The tree of exceptions, and the arguments that are refused before anything happens."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from dlcp import _native, errors
from dlcp.transport import Endpoint
from dlcp.transport import endpoint as endpoint_module


def test_every_error_is_a_dlcp_error() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]
    assert len(classes) > 20
    assert all(issubclass(c, errors.DlcpError) for c in classes)


def test_every_error_can_be_raised_with_a_sentence() -> None:
    for _, c in inspect.getmembers(errors, inspect.isclass):
        if issubclass(c, errors.DlcpError):
            assert str(c("what went wrong")) == "what went wrong"


def test_python_programs_can_catch_the_usual_classes() -> None:
    assert issubclass(errors.TransferTimeoutError, TimeoutError)
    assert issubclass(errors.SettingsError, ValueError)
    assert issubclass(errors.ShapeError, ValueError)
    assert issubclass(errors.PortInUseError, OSError)
    assert issubclass(errors.TransferClosedError, errors.ClosedError)


@pytest.fixture(scope="module")
def pair() -> Any:
    with Endpoint(0) as a, Endpoint(1) as b:
        a.connect(1, b.address)
        yield a, b


ARRAY = np.arange(1000, dtype=np.float32)
READ_ONLY = ARRAY.copy()
READ_ONLY.flags.writeable = False

BAD_SENDS = {
    "class above": ({"traffic_class": 7}, errors.TrafficClassError, "7; accepted: 0 to 6"),
    "class below": ({"traffic_class": -1}, errors.TrafficClassError, "-1; accepted: 0 to 6"),
    "class of another type": ({"traffic_class": 1.5}, errors.TrafficClassError, "1.5; accepted"),
    "class is a bool": ({"traffic_class": True}, errors.TrafficClassError, "True; accepted"),
    "tag above": ({"tag": 1 << 64}, errors.ArgumentError, "tag is 18446744073709551616; accepted"),
    "tag below": ({"tag": -1}, errors.ArgumentError, "tag is -1; accepted"),
    "delivery": ({"delivery": "fast"}, errors.ArgumentError, "'fast'; accepted: 'reliable', 'bounded'"),
    "delivery of another type": (
        {"delivery": ["reliable"]},
        errors.ArgumentError,
        r"\['reliable'\]; accepted",
    ),
    "loss of all": (
        {"delivery": "bounded", "loss_ratio": 1.0},
        errors.BudgetError,
        "1.0; accepted: 0 to less",
    ),
    "loss below": ({"delivery": "bounded", "loss_ratio": -0.1}, errors.BudgetError, "-0.1; accepted"),
    "loss is no number": ({"delivery": "bounded", "loss_ratio": float("nan")}, errors.BudgetError, "nan"),
    "loss is a text": ({"delivery": "bounded", "loss_ratio": "0.1"}, errors.BudgetError, "'0.1'"),
    "loss of a reliable": ({"loss_ratio": 0.1}, errors.BudgetError, "'reliable', which loses nothing"),
    "no deadline": ({"delivery": "deadline"}, errors.DeadlineError, "None; accepted: more than 0"),
    "deadline below": ({"delivery": "deadline", "deadline_s": -1.0}, errors.DeadlineError, "-1.0; accepted"),
    "deadline is infinite": (
        {"delivery": "deadline", "deadline_s": float("inf")},
        errors.DeadlineError,
        "inf; accepted",
    ),
    "deadline of a reliable": ({"deadline_s": 1.0}, errors.DeadlineError, "leave it out"),
    "importance too short": (
        {"delivery": "bounded", "importance": np.zeros(999, np.uint8)},
        errors.ShapeError,
        "importance has 999 entries; a message of 4000 bytes",
    ),
    "importance dtype": ({"importance": np.zeros(1, np.int64)}, errors.ShapeError, "int64 of shape"),
    "importance shape": ({"importance": np.zeros((1, 1), np.uint8)}, errors.ShapeError, r"\(1, 1\)"),
    "importance above": ({"importance": 256}, errors.ShapeError, "256; accepted: a number from 0 to 255"),
    "importance is a list": ({"importance": [1]}, errors.ShapeError, r"\[1\]; accepted"),
}


@pytest.mark.parametrize("case", BAD_SENDS)
def test_send_names_value_and_range(pair: tuple[Endpoint, Endpoint], case: str) -> None:
    arguments, kind, words = BAD_SENDS[case]
    before = pair[0].stats()
    with pytest.raises(kind, match=words):
        pair[0].send(1, ARRAY, **arguments)
    after = pair[0].stats()
    assert after.outstanding_operations == 0
    assert after.engine.data_packets_sent == before.engine.data_packets_sent


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros((10, 10))[:, ::2], "is not C-contiguous"),
        (np.zeros((10, 10)).T[1:], "strides"),
        (np.array([object()]), "Python objects"),
        (3, "int"),
        (None, "NoneType"),
        ("text", "str"),
        ([1, 2], "list, which has no memory to send"),
        (memoryview(b"abcdef")[::2], "memoryview"),
    ],
)
def test_send_refuses_memory_that_is_no_message(
    pair: tuple[Endpoint, Endpoint], data: Any, words: str
) -> None:
    with pytest.raises(errors.ShapeError, match=words):
        pair[0].send(1, data)


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (READ_ONLY, "read-only"),
        (b"constant", "of type bytes is read-only; accepted: writable"),
        (np.zeros((4, 4))[:, 0], "is not C-contiguous"),
        (np.array([object()]), "Python objects"),
        (7, "int, which has no memory to fill"),
    ],
)
def test_receive_refuses_memory_it_cannot_fill(
    pair: tuple[Endpoint, Endpoint], buffer: Any, words: str
) -> None:
    with pytest.raises(errors.ShapeError, match=words):
        pair[0].ireceive(1, buffer)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "1", True, [1]])
def test_timeout_must_be_a_time(pair: tuple[Endpoint, Endpoint], timeout: Any) -> None:
    words = "is .*; accepted: a number of seconds from 0, or None"
    a, b = pair
    with pytest.raises(errors.ArgumentError, match="timeout_s " + words):
        a.send(1, ARRAY, timeout_s=timeout)
    with pytest.raises(errors.ArgumentError, match="timeout_s " + words):
        a.receive(1, ARRAY.copy(), timeout_s=timeout)
    with pytest.raises(errors.ArgumentError, match="timeout_s " + words):
        a.connect(1, b.address, timeout_s=timeout)
    with pytest.raises(errors.ArgumentError, match="timeout_s " + words):
        a.wait_for_peer(1, timeout_s=timeout)
    with pytest.raises(errors.ArgumentError, match="timeout_s " + words):
        a.progress(timeout)
    future = a.ireceive(1, ARRAY.copy(), tag=99)
    with pytest.raises(errors.ArgumentError, match="timeout " + words):
        future.result(timeout)
    with pytest.raises(errors.ArgumentError, match="timeout " + words):
        future.exception(timeout)
    future.cancel()
    with pytest.raises(errors.TransferCancelledError):
        future.result(np.float32(10))


def test_settings_must_be_settings() -> None:
    with pytest.raises(errors.SettingsError, match=r"settings is \{'port': 1\}; accepted: a Settings"):
        Endpoint(0, settings={"port": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [-1, 1 << 32, 1.0, "1", True])
def test_rank_must_be_a_rank(pair: tuple[Endpoint, Endpoint], rank: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="rank is .*; accepted: an integer from 0 to 4294967295"):
        pair[0].isend(rank, ARRAY)
    with pytest.raises(errors.ArgumentError, match="rank is .*; accepted"):
        Endpoint(rank)


def test_unknown_peer_names_the_known_ones(pair: tuple[Endpoint, Endpoint]) -> None:
    with pytest.raises(errors.UnknownPeerError, match="rank 9 is not a peer; peers are: 1; call connect"):
        pair[0].isend(9, ARRAY)
    with pytest.raises(errors.UnknownPeerError, match="rank 9"):
        pair[0].ireceive(9, ARRAY.copy())
    with pytest.raises(errors.UnknownPeerError, match="rank 9"):
        pair[0].peer_stats(9)


def test_torch_tensors_must_be_plain(pair: tuple[Endpoint, Endpoint]) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.ShapeError, match="contiguous"):
        pair[0].isend(1, torch.zeros(4, 4).T)
    with pytest.raises(errors.ShapeError, match="memory of the CPU"):
        pair[0].isend(1, torch.zeros(4, device="meta"))


def test_message_of_4_gib_is_refused_before_it_is_touched(pair: tuple[Endpoint, Endpoint]) -> None:
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), shape=(1 << 32,), strides=(0,))
    assert not huge.flags.c_contiguous
    # Untouched pages of an empty array cost no memory.
    huge = np.empty(1 << 32, np.uint8)
    with pytest.raises(errors.MessageTooLongError, match="message has 4294967296 bytes; at most 4294967295"):
        pair[0].isend(1, huge)
    with pytest.raises(errors.MessageTooLongError, match="receive buffer has 4294967296 bytes"):
        pair[0].ireceive(1, huge)


def test_every_kind_of_io_error_has_a_class(repository: Any) -> None:
    header = (repository / "native/io/io_error.hpp").read_text()
    kinds = header[header.index("enum class IoErrorKind {") : header.index("const char* name(IoErrorKind")]
    words = {line.split("//")[0].strip().rstrip(",") for line in kinds.splitlines()[1:]} - {"", "};"}
    source = inspect.getsource(endpoint_module)
    assert len(words) >= 20
    assert [kind for kind in words if f'"{kind}":' not in source] == []


def test_native_parse_errors_are_named() -> None:
    assert _native.parse_header(b"")[0] == "too_short"
    assert _native.PARSE_ERRORS[0] == "none"
