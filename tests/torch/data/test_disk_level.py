"""The disk level: entries are whole or gone, whoever is killed, whatever the disk refuses."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from dlcp.errors import ArgumentError
from dlcp.torch.data import disk_level
from dlcp.torch.data.disk_level import HEADER_BYTES, DiskLevel, Found

NO_BOUND = 1 << 40
MISSING = Found(None)
TORN = Found(None, torn=True)


def entry_of(folder: Path, index: int) -> Path:
    (path,) = folder.rglob(f"{index}.sample")
    return path


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != "used_bytes")


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.sample"))


def test_entries_outlive_the_process_that_wrote_them(tmp_path: Path) -> None:
    written = DiskLevel(tmp_path, NO_BOUND)
    payloads = {index: os.urandom(index % 300) for index in (0, 1, 255, 256, 10**12)}
    assert all(written.put(index, payload) for index, payload in payloads.items())
    read = DiskLevel(tmp_path, NO_BOUND)
    assert {index: read.get(index).payload for index in payloads} == payloads
    assert read.get(2) == MISSING
    assert read.used_bytes == bytes_in(tmp_path) == sum(map(len, payloads.values())) + 5 * HEADER_BYTES


@pytest.mark.parametrize("seed", range(8))
def test_any_damage_is_found_and_mended(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    disk = DiskLevel(tmp_path, NO_BOUND)
    payload = chance.randbytes(chance.randrange(1, 2000))
    disk.put(3, payload)
    path = entry_of(tmp_path, 3)
    entry = bytearray(path.read_bytes())
    match seed % 4:
        case 0:
            del entry[chance.randrange(len(entry)) :]
        case 1:
            entry[chance.randrange(len(entry))] ^= 1 << chance.randrange(8)
        case 2:
            entry += b"\0"
        case 3:
            entry[:] = bytes(len(entry))
    path.write_bytes(entry)
    assert disk.get(3) == TORN
    assert disk.get(3) == MISSING
    assert disk.put(3, payload)
    assert disk.get(3) == Found(payload)


def test_an_entry_under_another_index_or_version_is_none(tmp_path: Path) -> None:
    disk = DiskLevel(tmp_path, NO_BOUND, "of May")
    disk.put(3, b"three")
    disk.put(259, b"like three")
    entry_of(tmp_path, 3).rename(entry_of(tmp_path, 259))
    assert disk.get(259) == TORN
    disk.put(3, b"three")
    assert DiskLevel(tmp_path, NO_BOUND, "of June").get(3) == TORN


def test_the_bound_holds_for_all_who_write_into_the_folder(tmp_path: Path) -> None:
    one, other = (DiskLevel(tmp_path, 5 * (HEADER_BYTES + 10)) for _ in range(2))
    kept = [index for index in range(12) if (one, other)[index % 2].put(index, b"x" * 10)]
    assert kept == [0, 1, 2, 3, 4]
    assert one.put(2, b"x" * 10)
    assert not one.read_only
    smaller = DiskLevel(tmp_path, 3 * (HEADER_BYTES + 10) + 1)
    assert smaller.used_bytes == bytes_in(tmp_path) == 3 * (HEADER_BYTES + 10)
    assert files_in(tmp_path) == ["0.sample", "1.sample", "2.sample"]


@pytest.mark.parametrize("written", [0, 20, HEADER_BYTES, HEADER_BYTES + 100])
def test_a_writer_that_is_killed_leaves_nothing(tmp_path: Path, written: int) -> None:
    disk = DiskLevel(tmp_path, NO_BOUND)
    disk.put(1, b"before")
    if (child := os.fork()) == 0:
        left = written
        write = os.write

        def write_and_die(descriptor: int, data: bytes) -> int:
            nonlocal left
            left -= write(descriptor, bytes(data)[:left])
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return written - left

        os.write = write_and_die  # type: ignore[assignment]
        disk.put(2, b"x" * 100)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert disk.get(2) == MISSING
    again = DiskLevel(tmp_path, NO_BOUND)
    assert files_in(tmp_path) == ["1.sample"]
    assert again.used_bytes == bytes_in(tmp_path)
    assert again.put(2, b"anew")
    assert again.get(2) == Found(b"anew")


def test_opening_the_folder_spares_an_entry_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskLevel(tmp_path, NO_BOUND)
    write = os.write

    def open_meanwhile(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        DiskLevel(tmp_path, NO_BOUND)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", open_meanwhile)
    assert disk.put(1, b"one")
    assert disk.get(1) == Found(b"one")


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_refuses_makes_the_level_read_only_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusal: int
) -> None:
    disk = DiskLevel(tmp_path, NO_BOUND)
    disk.put(1, b"before")
    used_bytes = disk.used_bytes
    write = os.write

    def refuse_the_payload(descriptor: int, data: bytes) -> int:
        if bytes(data) == b"after":
            raise OSError(refusal, os.strerror(refusal))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", refuse_the_payload)
    with caplog.at_level(logging.WARNING, "dlcp"):
        assert not any(disk.put(index, b"after") for index in range(2, 6))
    assert len(caplog.records) == 1
    assert os.strerror(refusal) in caplog.text
    assert disk.read_only
    assert disk.get(1) == Found(b"before")
    assert files_in(tmp_path) == ["1.sample"]
    assert disk.used_bytes == used_bytes


def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small file system needs root: {mounted.stderr.decode().strip()}")
    try:
        disk = DiskLevel(tmp_path / "samples", NO_BOUND)
        payloads = {index: bytes([index]) * 20_000 for index in range(30)}
        kept = {index for index, payload in payloads.items() if disk.put(index, payload)}
        assert 0 < len(kept) < 30
        assert disk.read_only
        assert {index for index in payloads if disk.get(index) == Found(payloads[index])} == kept
        assert all(disk.get(index) == MISSING for index in payloads.keys() - kept)
        shutil.rmtree(tmp_path / "samples")
        # Without a bound of its own the level leaves room to others.
        disk = DiskLevel(tmp_path / "samples", None)
        assert 0 < sum(disk.put(index, payload) for index, payload in payloads.items()) < len(kept)
        assert not disk.read_only
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# --- what another user may have made -------------------------------------------------------------------------


TRAPS = ["link", "pipe", "open", "another user's"]


def plant(trap: str, path: Path) -> None:
    """In place of what is there, or as it."""
    match trap:
        case "link":
            path.symlink_to(path.rename(f"{path}.elsewhere"))
        case "pipe":
            path.rename(f"{path}.elsewhere")
            os.mkfifo(path)
        case "open":
            path.chmod(0o770)
        case _:
            if os.geteuid():
                pytest.skip("only root gives files away")
            os.chown(path, 65534, -1)


@pytest.mark.parametrize("place", [".", "03"])
@pytest.mark.parametrize("trap", TRAPS)
def test_a_folder_that_another_user_may_have_made_is_refused(tmp_path: Path, place: str, trap: str) -> None:
    folder = tmp_path / "cache"
    DiskLevel(folder, NO_BOUND).put(3, b"three")
    plant(trap, folder / place)
    with pytest.raises(ArgumentError, match=rf"folder: .*{folder / place}.* use another"):
        DiskLevel(folder, NO_BOUND)


@pytest.mark.parametrize("trap", TRAPS)
def test_a_file_that_another_user_may_have_made_is_neither_read_nor_written(
    tmp_path: Path, trap: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = DiskLevel(tmp_path, NO_BOUND)
    disk.put(3, b"three")
    account = (tmp_path / "used_bytes").read_bytes()
    for path in (entry_of(tmp_path, 3), tmp_path / "used_bytes"):
        plant(trap, path)
    assert [disk.get(3), disk.get(3)] == [TORN, MISSING]
    assert DiskLevel(tmp_path, NO_BOUND).read_only
    assert "no file of this user's alone" in caplog.text
    if trap == "link":
        assert (tmp_path / "used_bytes.elsewhere").read_bytes() == account


def test_a_lock_that_is_kept_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(disk_level, "_LOCK_TIMEOUT_S", 0.01)
    disk = DiskLevel(tmp_path, NO_BOUND)
    disk.put(1, b"before")
    with disk._account():
        late = DiskLevel(tmp_path, NO_BOUND)
        assert (late.get(1), late.put(2, b"after")) == (Found(b"before"), False)
        assert not disk.put(2, b"after")
    assert [record.getMessage().count("another process has had its lock") for record in caplog.records] == [
        1,
        1,
    ]
