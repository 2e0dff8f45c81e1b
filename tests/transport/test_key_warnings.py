"""What is said of key files that are accepted: open to others, or easily guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlcp.transport import Endpoint, Settings
from dlcp.transport.key_warnings import key_warnings

RANDOM = bytes(range(7, 7 + 32 * 5, 5))


def write(path: Path, key: bytes, mode: int = 0o600) -> Settings:
    path.write_bytes(key)
    path.chmod(mode)
    return Settings(key_file=str(path))


def test_private_random_key_needs_no_word(tmp_path: Path) -> None:
    assert key_warnings(write(tmp_path / "key", RANDOM)) == []
    assert key_warnings(write(tmp_path / "hex", RANDOM.hex().encode())) == []
    assert key_warnings(Settings(key=bytes(32))) == []
    assert key_warnings(Settings()) == []


@pytest.mark.parametrize("mode", [0o666, 0o640, 0o604, 0o620])
def test_file_open_to_others_is_named_with_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    assert key_warnings(write(path, RANDOM, mode)) == [
        f"key file {path} is open to other users (mode {mode:o}); chmod 600 {path}"
    ]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (bytes(32), "has only 1 different bytes"),
        (b"ab" * 16, "has only 2 different bytes"),
        (b"correct horse battery staple 1234", "is a text"),
    ],
    ids=["zeros", "pattern", "pass-phrase"],
)
def test_key_that_can_be_guessed_is_named(tmp_path: Path, key: bytes, reason: str) -> None:
    (sentence,) = key_warnings(write(tmp_path / "key", key[:32]))
    assert reason in sentence
    assert "head -c 32 /dev/urandom" in sentence


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_key_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = write(tmp_path / "key", RANDOM)
    os.chown(tmp_path / "key", 1234, -1)
    assert key_warnings(settings) == [
        f"key file {tmp_path / 'key'} belongs to another user (number 1234), who knows the key"
    ]


def test_endpoint_warns_of_its_key_file(tmp_path: Path) -> None:
    settings = write(tmp_path / "key", bytes(32), 0o644)
    with Endpoint(0, settings=settings) as endpoint:
        assert set(key_warnings(settings)) <= set(endpoint.warnings)
